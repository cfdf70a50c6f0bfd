package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// providers holds the configured providers, and selects one for each sandbox.
type providers struct {
	*gate
	vault   *vault
	images  *images
	skipped skippedSandboxes
}

// NoProvider, as Options.Active, leaves no provider active until a setting
// selects one.
const NoProvider = "none"

// initialActive returns the ID of the provider that is active until an operator
// changes the setting.
func (ps *providers) initialActive() string {
	if ps.Active == NoProvider {
		return ""
	}
	return cmp.Or(ps.Active, ps.builtinID)
}

// builtin returns the backend of the built-in provider. This provider owns the pool and the images.
func (ps *providers) builtin() *placement.Backend {
	return ps.backends.Current().Backends[ps.builtinID]
}

// isBuiltin reports whether m is the backend of the built-in provider.
func (ps *providers) isBuiltin(m *placement.Backend) bool { return m.ID == ps.builtinID }

// backendOf returns the backend of the provider that created a sandbox.
func (ps *providers) backendOf(s *brig.Sandbox) (*placement.Backend, error) {
	state := ps.backends.Current()
	if m := state.Backends[cmp.Or(s.Provider, ps.builtinID)]; m != nil {
		return m, nil
	}
	if cause := state.Broken[s.Provider]; cause != nil {
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
	return backend.Provider.Recover(ctx, r.ID, r.Handle)
}

// imageAt resolves ref to an image of the given provider.
func (ps *providers) imageAt(ctx context.Context, backend *placement.Backend, ref string) (*brig.Image, error) {
	if ps.isBuiltin(backend) {
		return ps.images.resolveImage(ctx, ref)
	}
	if p, ok := backend.Provider.(brig.Imager); ok {
		return p.Image(ctx, ref)
	}
	if ref != brig.HostImage {
		return nil, brig.InvalidField("image", "the provider %s has no images", backend.ID).WithHint("omit it: sandboxes of this provider use its host's files")
	}
	return &brig.Image{Digest: brig.HostImage + ":" + backend.ID, Names: []string{brig.HostImage}, Source: "host"}, nil
}

// attestationKey returns the key under which the findings about an image at a provider
// are stored in attestations.
func (ps *providers) attestationKey(backend *placement.Backend, digest string) string {
	if ps.isBuiltin(backend) {
		return digest
	}
	return backend.ID + " " + digest
}
