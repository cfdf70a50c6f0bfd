package e2e

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/docker"
	"github.com/brig-run/brig/provider/providertest"
)

// TestDocker tests the docker provider with a real Docker Engine: the provider contract with each
// runtime, the restrictions on programs, and the state after crashes.
//
//suite:part docker full
func TestDocker(t *testing.T) {
	l := startDocker(t, "runsc")
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) { l.conformance(t, runtime) })
	}
	t.Run("attacks", l.attacks)
	t.Run("deaths", l.checkCrashes)
	t.Run("images", l.images)
}

func (l *dockerLab) conformance(t *testing.T, runtime string) {
	dir := t.TempDir()
	open := func(t *testing.T) *docker.Provider {
		return l.provider(t, dir, func(o *docker.Options) { o.Runtime = runtime })
	}
	p := open(t)
	providertest.Run(t, providertest.Harness{
		Provider: p, Image: l.digest(t, p), Real: true, FixedName: runtime == "runc", ReadOnlyImage: true,
		Next: func(t *testing.T) brig.Provider { return open(t) },
	})
}
