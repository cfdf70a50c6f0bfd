package e2e

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/providertest"
)

// The real provider keeps the contract that the fake one keeps.
//
//suite:part providers
func TestProviderConformance(t *testing.T) {
	dir := t.TempDir()
	p, images := newProvider(t, dir)
	img, err := images.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	providertest.Run(t, providertest.Harness{
		Provider: p, Image: img.Digest, Real: true,
		Next: func(t *testing.T) brig.Provider {
			next, _ := newProvider(t, dir)
			return next
		},
	})
}
