package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// providers holds the configured providers, and selects one for each sandbox.
type providers struct {
	*gate
	vault   *vault
	images  *images
	skipped skipped
}

// backend is a configured provider and the number of its users.
type backend struct {
	id       string
	provider brig.Provider
	runsOnly bool // from its capabilities
	health   breaker

	mu      sync.Mutex // guards the fields below
	users   int        // current sandboxes and programs
	retired bool       // no new users are admitted
}

func newBackend(id string, p brig.Provider) *backend {
	return &backend{id: id, provider: p, runsOnly: p.Capabilities().RunsOnly}
}

// acquire counts one more user, up to most users; 0 means no limit.
func (m *backend) acquire(most int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.retired:
		return brig.WithRetry(brig.Errorf(brig.Unavailable, "the provider %s was just changed", m.id).WithHint("try again"), brig.RetryRoute)
	case most > 0 && m.users >= most:
		err := brig.Errorf(brig.RateLimited, "the provider %s is full: it has %d", m.id, most).WithHint("try again in a moment, or route overflow to other providers: brig provider route")
		err.RetryAfter = time.Second
		return err
	}
	m.users++
	return nil
}

// retain counts another use by an existing user. release ends that use.
func (m *backend) retain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
}

// release removes one user. The last user of a retired backend closes it.
func (m *backend) release() error {
	m.mu.Lock()
	m.users--
	over := m.retired && m.users == 0
	m.mu.Unlock()
	if over {
		return m.close()
	}
	return nil
}

// retire makes the backend reject new users. Existing users keep using it until
// they end.
func (m *backend) retire() error {
	m.mu.Lock()
	over := !m.retired && m.users == 0
	m.retired = true
	m.mu.Unlock()
	if over {
		return m.close()
	}
	return nil
}

func (m *backend) close() error {
	if c, ok := m.provider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// userCount returns the number of users.
func (m *backend) userCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users
}

// backends holds the providers of the server. The snapshot is immutable and is
// replaced as a whole, so that an administrator's change does not disturb
// running operations.
type backends struct {
	current  atomic.Pointer[snapshot]
	updateMu sync.Mutex // held while current is replaced
}

// snapshot is a consistent view of all providers and their settings.
type snapshot struct {
	active   string // the ID of the active provider, or empty
	backends map[string]*backend
	broken   map[string]error // configured providers that could not be opened
	terms    map[string]brig.Terms
	routing  map[string]brig.Routing // by tenant, "" for all tenants
	settings map[string]brig.Setting // the settings from which the snapshot was built
}

// NoProvider, as Options.Active, leaves no provider active until a setting
// selects one.
const NoProvider = "none"

// newBackends returns backends with only the built-in provider.
func newBackends(home *backend, active string) *backends {
	f := &backends{}
	f.current.Store(&snapshot{active: active, backends: map[string]*backend{home.id: home}})
	return f
}

// initialActive returns the ID of the provider that is active until an operator
// changes the setting.
func (ps *providers) initialActive() string {
	if ps.Active == NoProvider {
		return ""
	}
	return cmp.Or(ps.Active, ps.builtinID)
}

// builtin returns the backend of the built-in provider. It owns
// the pool and the images.
func (ps *providers) builtin() *backend { return ps.backends.current.Load().backends[ps.builtinID] }

// isBuiltin reports whether m is the backend of the built-in provider.
func (ps *providers) isBuiltin(m *backend) bool { return m.id == ps.builtinID }

// backendOf returns the backend of the provider that created a sandbox.
func (ps *providers) backendOf(s *brig.Sandbox) (*backend, error) {
	state := ps.backends.current.Load()
	if m := state.backends[cmp.Or(s.Provider, ps.builtinID)]; m != nil {
		return m, nil
	}
	if cause := state.broken[s.Provider]; cause != nil {
		apiErr := brig.AsError(cause)
		return nil, brig.Errorf(brig.Unavailable, "the provider %q of this sandbox cannot be used: %s", truncate(s.Provider), apiErr.Message).
			WithHint("%s", apiErr.Hint).Because(cause)
	}
	return nil, brig.Errorf(brig.Unavailable, "the provider %q of this sandbox is not configured any more", truncate(s.Provider)).
		WithHint("configure it again: brig provider configure").Because(errNotConfigured)
}

// errNotConfigured is the cause of errors about a provider that is not
// configured.
var errNotConfigured = errors.New("not configured")

// recoverInstance recovers the instance of a sandbox from its provider.
func (ps *providers) recoverInstance(ctx context.Context, r *brig.Record) (brig.Instance, error) {
	backend, err := ps.backendOf(&r.Sandbox)
	if err != nil {
		return nil, err
	}
	return backend.provider.Recover(ctx, r.ID, r.Handle)
}

// imageAt resolves ref to an image of the given provider.
func (ps *providers) imageAt(ctx context.Context, backend *backend, ref string) (*brig.Image, error) {
	if ps.isBuiltin(backend) {
		return ps.images.resolveImage(ctx, ref)
	}
	if p, ok := backend.provider.(brig.Imager); ok {
		return p.Image(ctx, ref)
	}
	if ref != brig.HostImage {
		return nil, brig.InvalidField("image", "the provider %s has no images", backend.id).WithHint("omit it: sandboxes of this provider use its host's files")
	}
	return &brig.Image{Digest: brig.HostImage + ":" + backend.id, Names: []string{brig.HostImage}, Source: "host"}, nil
}

// attestationKey returns the key under which the findings about an image at a provider
// are stored in attestations.
func (ps *providers) attestationKey(backend *backend, digest string) string {
	if ps.isBuiltin(backend) {
		return digest
	}
	return backend.id + " " + digest
}
