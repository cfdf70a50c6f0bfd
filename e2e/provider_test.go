package e2e

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/providertest"
)

// TestProviderConformance verifies that the gVisor provider satisfies the same
// contract as the fake provider.
//
//suite:part providers waits
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
		NewVolume: func(t *testing.T) string { return newVolumeImage(t, dir) },
	})
}
