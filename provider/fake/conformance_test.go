package fake_test

import (
	"testing"

	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/provider/providertest"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{Provider: &fake.Provider{}, Image: "sha256:fake"})
}
