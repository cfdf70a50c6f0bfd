package engine

import (
	"context"
	"maps"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/attest"
	"github.com/brig-run/brig/engine/placement"
)

// examine determines how strictly an instance enforces each area. In a vacant instance, which
// belongs to no tenant yet, it also tries to connect to this host.
func (ms *machines) examine(ctx context.Context, backend *placement.Backend, in brig.Instance, spec brig.Spec, vacant bool) (*attest.Examination, error) {
	host, err := ms.requestHostReport(ctx, backend, in)
	if err != nil {
		return nil, err
	}
	findings, err := attest.Probe(ctx, in, spec, vacant, newExecID)
	if err != nil {
		if hasEnded(in) || ctx.Err() != nil {
			return nil, err
		}
		ms.Log.WarnContext(ctx, "failed to verify the enforcement of a sandbox", "err", err)
		return &attest.Examination{Areas: ms.effectiveEnforcement(backend, host, attest.UnprobedFindings())}, nil
	}
	return &attest.Examination{Findings: findings, Areas: ms.effectiveEnforcement(backend, host, findings)}, nil
}

// effectiveEnforcement returns the enforcement of each area according to the
// host's report and the findings.
func (ms *machines) effectiveEnforcement(backend *placement.Backend, host map[brig.Area]brig.Enforcement, findings []attest.Finding) map[brig.Area]brig.Enforcement {
	return ms.providers.withEngineControls(backend.Provider.Capabilities().Uplinks, attest.Apply(host, findings, ms.Now().UTC()))
}

// requestHostReport returns the host's report on an instance.
func (ms *machines) requestHostReport(ctx context.Context, backend *placement.Backend, in brig.Instance) (map[brig.Area]brig.Enforcement, error) {
	reported, err := in.Enforced(ctx)
	if err != nil {
		return nil, err
	}
	c := ms.providers.capabilities(backend)
	return ms.providers.withEngineControls(c.Uplinks, attest.LowerTo(reported, c.Enforces)), nil
}

// attestOnce examines an instance that belongs to no tenant yet, unless its image
// was examined before.
func (ms *machines) attestOnce(ctx context.Context, backend *placement.Backend, in brig.Instance, digest string, spec brig.Spec) {
	seen := ms.providers.attestationKey(backend, digest)
	if !ms.attestations.Begin(seen) {
		return
	}
	found, err := ms.examine(ctx, backend, in, spec, true)
	if err != nil && ctx.Err() == nil {
		ms.Log.WarnContext(ctx, "failed to verify the enforcement of an image", "image", digest, "err", err)
	}
	if found != nil && found.Findings == nil {
		found = nil // the probe failed; the next instance is examined instead
	}
	ms.attestations.End(seen, found)
}

// checkAttestation rejects a sandbox, before its main program runs, if other
// instances of its image do not meet its requirements. If no instance of the
// image was examined yet, attestImage creates one for that purpose.
func (ms *machines) checkAttestation(ctx context.Context, m *machine) error {
	need := ms.providers.requirementOf(&m.rec.Spec)
	if len(need) == 0 {
		return nil
	}
	found := ms.attestations.Get(ms.providers.attestationKey(m.backend, m.rec.Digest))
	if found == nil {
		var err error
		if found, err = ms.attestImage(ctx, m.backend, m.rec.Digest); err != nil {
			return err
		}
	}
	return need.UnmetError("require", "a sandbox of this image", found.Areas)
}

// attestImage creates an instance of an image in order to examine it.
func (ms *machines) attestImage(ctx context.Context, backend *placement.Backend, digest string) (*attest.Examination, error) {
	ms.attesting.Lock()
	defer ms.attesting.Unlock()
	if found := ms.attestations.Get(ms.providers.attestationKey(backend, digest)); found != nil {
		return found, nil
	}
	release, err := ms.capacity.Acquire(ctx, "", time.Now())
	if err != nil {
		return nil, err
	}
	defer release()
	id, spec := newID(), brig.Spec{Name: newName("probe-"), Image: digest, Limits: ms.LimitRange.Default, Ephemeral: true, Blank: true, TTL: time.Minute}
	in, err := backend.Provider.Create(ctx, id, spec, ms.Now().Add(spec.TTL))
	if err != nil {
		return nil, err
	}
	defer ms.destroyInstance(ctx, id, in)
	found, err := ms.examine(ctx, backend, in, spec, true)
	if err == nil && found.Findings != nil {
		ms.attestations.End(ms.providers.attestationKey(backend, digest), found)
	}
	return found, err
}

// verifyEnforcement makes the host examine the instance of a sandbox that has
// requirements, and rejects the sandbox if they are not met. Sandboxes without
// requirements skip this, and their records contain no enforcement (see
// fillEnforcement).
func (ms *machines) verifyEnforcement(ctx context.Context, m *machine) error {
	need := ms.providers.requirementOf(&m.rec.Spec)
	if len(need) == 0 {
		return nil
	}
	host, err := ms.requestHostReport(ctx, m.backend, m.in)
	if err != nil {
		return err
	}
	if m.rec.Spec.BuildRights { // the findings of other instances do not hold for it
		found, err := ms.examine(ctx, m.backend, m.in, m.rec.Spec, false)
		if err != nil {
			return err
		}
		m.rec.Enforcement = found.Areas
		return need.UnmetError("require", "this sandbox", m.rec.Enforcement)
	}
	findings := attest.UnprobedFindings()
	if found := ms.attestations.Get(ms.providers.attestationKey(m.backend, m.rec.Digest)); found != nil {
		findings = found.Findings
	}
	m.rec.Enforcement = ms.effectiveEnforcement(m.backend, host, findings)
	return need.UnmetError("require", "this sandbox", m.rec.Enforcement)
}

// fillEnforcement fills in the enforcement that was observed in other instances
// of a sandbox's image, if the sandbox's own instance was not examined. A sandbox with the rights of
// a build differs from these instances.
func (ms *machines) fillEnforcement(s *brig.Sandbox) {
	if s.Enforcement != nil || s.Spec.BuildRights || !s.State.IsLive() {
		return
	}
	backend, err := ms.providers.backendOf(s)
	if err != nil {
		return
	}
	if found := ms.attestations.Get(ms.providers.attestationKey(backend, s.Digest)); found != nil {
		s.Enforcement = maps.Clone(found.Areas)
	}
}

// Attest implements brig.Service.
func (ms *machines) Attest(ctx context.Context, name string) (out *brig.Sandbox, err error) {
	err = ms.lifecycle.withInstance(ctx, brig.OpAttest, name, func(v *call, in brig.Instance) error {
		backend, err := ms.providers.backendOf(&v.rec.Sandbox)
		if err != nil {
			return err
		}
		found, err := ms.examine(ctx, backend, in, v.rec.Spec, false)
		if err != nil {
			return err
		}
		rec, err := ms.updateRecord(ctx, v.rec.Tenant, v.rec.ID, func(r *brig.Record) error {
			r.Enforcement = found.Areas
			return nil
		})
		if err != nil {
			return err
		}
		out = &rec.Sandbox
		return nil
	})
	return out, err
}
