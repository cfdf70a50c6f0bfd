package engine

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// skippedSandboxes holds the sandboxes that Recover skipped because their provider did
// not respond. Their records remain, and the engine recovers them when the
// provider responds. A provider that is down must not prevent the server from
// serving the sandboxes of other providers.
type skippedSandboxes struct {
	mu sync.Mutex // guards the field below
	by map[brig.ID]skippedSandbox
}

type skippedSandbox struct{ tenant, name string }

func (m *skippedSandboxes) add(r *brig.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[brig.ID]skippedSandbox{}
	}
	m.by[r.ID] = skippedSandbox{r.Tenant, r.Spec.Name}
}

func (m *skippedSandboxes) remove(id brig.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, id)
}

func (m *skippedSandboxes) list() map[brig.ID]skippedSandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.by)
}

// skippedInterval is the interval at which the engine tries to recover skipped
// sandboxes.
const skippedInterval = 5 * time.Second

// startupCheckTimeout is the timeout of the health check of a provider when the
// engine starts.
const startupCheckTimeout = 5 * time.Second

// checkProviders checks concurrently whether the providers other than the built-in one respond.
// Without this check, Recover would wait for each sandbox of a provider that is down.
func (ps *providers) checkProviders(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startupCheckTimeout)
	defer cancel()
	var work sync.WaitGroup
	for _, m := range ps.backends.Current().Backends {
		if c, ok := m.Provider.(brig.Checker); ok && !ps.isBuiltin(m) {
			work.Go(func() { ps.ping(ctx, m, c) })
		}
	}
	work.Wait()
}

// checkReachable returns an error if the instance of a sandbox cannot be looked
// up now, because its provider cannot be used or did not respond. The built-in
// provider is always reachable.
func (ps *providers) checkReachable(s *brig.Sandbox) error {
	if cmp.Or(s.Provider, ps.builtinID) == ps.builtinID {
		return nil
	}
	backend, err := ps.backendOf(s)
	if err != nil {
		return err
	}
	if broke, cause := backend.Health.LastFailure(); broke {
		return brig.Errorf(brig.Unavailable, "the provider %s of this sandbox does not answer: %s", backend.ID, brig.AsError(cause).Message).
			WithHint("try again in a moment; the sandbox is found again when its provider answers").Because(cause)
	}
	return nil
}
