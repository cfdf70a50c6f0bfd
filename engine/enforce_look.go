package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/guest/wire"
)

// attestations holds the findings about instances of each image.
type attestations struct {
	mu     sync.Mutex              // guards the fields below
	images map[string]*examination // by digest
	busy   map[string]bool         // digests that are being examined
	// creating is held while an instance is created only to be examined.
	creating sync.Mutex
}

// examination is the result of one examination of an instance.
type examination struct {
	findings []finding
	areas    map[brig.Area]brig.Enforcement
}

func (s *attestations) get(digest string) *examination {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[digest]
}

// begin reports whether an image still needs to be examined and is not being
// examined now. If it returns true, the caller examines it and reports the
// result with end.
func (s *attestations) begin(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[digest] || s.images[digest] != nil {
		return false
	}
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[digest] = true
	return true
}

func (s *attestations) end(digest string, found *examination) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, digest)
	if found == nil {
		return
	}
	if s.images == nil {
		s.images = map[string]*examination{}
	}
	s.images[digest] = found
}

// probeTimeout is the maximum duration of one probe from inside.
const probeTimeout = 10 * time.Second

// runProbe runs the agent's probe inside an instance, as the user and as root.
// The findings contain none of the host's own addresses, because tenants read
// them.
func (ms *machines) runProbe(ctx context.Context, in brig.Instance, l brig.Limits, uplink bool, look wire.Look, own []netip.AddrPort) ([]finding, error) {
	order, err := json.Marshal(look)
	if err != nil {
		return nil, err
	}
	var out []finding
	for _, user := range []string{"user", "root"} {
		said := output.NewCapture(64 * brig.KiB)
		res, err := in.Exec(ctx, newExecID(), brig.Command{
			Argv: []string{wire.AgentFile, wire.ProbeWord, string(order)}, User: user, Dir: "/", Timeout: probeTimeout,
		}, brig.IO{Stdout: said, Stderr: output.NewCapture(brig.KiB)})
		if err != nil {
			return nil, err
		}
		var p wire.Posture
		if err := json.Unmarshal(said.Output().Head, &p); err != nil || res.ExitCode != 0 {
			return nil, fmt.Errorf("look around as %s: exit code %d: %w", user, res.ExitCode, err)
		}
		out = append(out, findingsOf(redactHost(p, own), l, uplink)...)
	}
	return out, nil
}

// examine determines how strictly an instance enforces each area. In a vacant
// instance, which no tenant has yet, the probe also tries to connect to this
// host. It needs an address of the host for that, which a tenant's programs
// would see.
func (ms *machines) examine(ctx context.Context, backend *backend, in brig.Instance, spec brig.Spec, vacant bool) (*examination, error) {
	host, err := ms.hostReport(ctx, backend, in)
	if err != nil {
		return nil, err
	}
	var out sink
	var own []netip.AddrPort
	if vacant {
		out, own = openSink(ctx)
	}
	defer out.close()
	findings, err := ms.runProbe(ctx, in, spec.Limits, len(spec.Egress.Rules) > 0, blockedTargets(&spec.Egress, own...), own)
	if err != nil {
		if hasEnded(in) || ctx.Err() != nil {
			return nil, err
		}
		ms.Log.WarnContext(ctx, "failed to verify the enforcement of a sandbox", "err", err)
		return &examination{areas: ms.effectiveEnforcement(backend, host, unprobed())}, nil
	}
	if out.wasReached() { // regardless of the guest's report
		findings = append(findings, finding{brig.AreaEgress, brig.LevelNone, "it connected to this host"})
	}
	return &examination{findings, ms.effectiveEnforcement(backend, host, findings)}, nil
}

// effectiveEnforcement returns the enforcement of each area according to the
// host's report and the findings.
func (ms *machines) effectiveEnforcement(backend *backend, host map[brig.Area]brig.Enforcement, findings []finding) map[brig.Area]brig.Enforcement {
	return ms.providers.withEngineControls(backend.provider.Capabilities().Uplinks, applyFindings(host, findings, ms.Now().UTC()))
}

// hostReport returns the host's report on an instance.
func (ms *machines) hostReport(ctx context.Context, backend *backend, in brig.Instance) (map[brig.Area]brig.Enforcement, error) {
	have, err := in.Enforced(ctx)
	if err != nil {
		return nil, err
	}
	c := ms.providers.capabilities(backend)
	return ms.providers.withEngineControls(c.Uplinks, lowerTo(have, c.Enforces)), nil
}

// attestOnce examines an instance that belongs to no tenant yet, unless its image
// was examined before.
func (ms *machines) attestOnce(ctx context.Context, backend *backend, in brig.Instance, digest string, spec brig.Spec) {
	seen := ms.providers.attestationKey(backend, digest)
	if !ms.attestations.begin(seen) {
		return
	}
	found, err := ms.examine(ctx, backend, in, spec, true)
	if err != nil && ctx.Err() == nil {
		ms.Log.WarnContext(ctx, "failed to verify the enforcement of an image", "image", digest, "err", err)
	}
	if found != nil && found.findings == nil {
		found = nil // the probe failed: the next instance is tried
	}
	ms.attestations.end(seen, found)
}

// checkAttestation rejects a sandbox, before its main program runs, if other
// instances of its image do not meet its requirements. If no instance of the
// image was examined yet, attestImage creates one for that purpose.
func (ms *machines) checkAttestation(ctx context.Context, m *machine) error {
	need := ms.providers.requirementOf(&m.rec.Spec)
	if len(need) == 0 {
		return nil
	}
	found := ms.attestations.get(ms.providers.attestationKey(m.backend, m.rec.Digest))
	if found == nil {
		var err error
		if found, err = ms.attestImage(ctx, m.backend, m.rec.Digest); err != nil {
			return err
		}
	}
	return need.Unmet("require", "a sandbox of this image", found.areas)
}

// attestImage creates an instance of an image in order to examine it.
func (ms *machines) attestImage(ctx context.Context, backend *backend, digest string) (*examination, error) {
	ms.attestations.creating.Lock()
	defer ms.attestations.creating.Unlock()
	if found := ms.attestations.get(ms.providers.attestationKey(backend, digest)); found != nil {
		return found, nil
	}
	release, err := ms.capacity.Acquire(ctx, "", time.Now())
	if err != nil {
		return nil, err
	}
	defer release()
	id, spec := newID(), brig.Spec{Name: newName("probe-"), Image: digest, Limits: ms.LimitRange.Default, Ephemeral: true, Blank: true, TTL: time.Minute}
	in, err := backend.provider.Create(ctx, id, spec, ms.Now().Add(spec.TTL))
	if err != nil {
		return nil, err
	}
	defer ms.destroyInstance(ctx, id, in)
	found, err := ms.examine(ctx, backend, in, spec, true)
	if err == nil && found.findings != nil {
		ms.attestations.end(ms.providers.attestationKey(backend, digest), found)
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
	host, err := ms.hostReport(ctx, m.backend, m.in)
	if err != nil {
		return err
	}
	findings := unprobed()
	if found := ms.attestations.get(ms.providers.attestationKey(m.backend, m.rec.Digest)); found != nil {
		findings = found.findings
	}
	m.rec.Enforcement = ms.effectiveEnforcement(m.backend, host, findings)
	return need.Unmet("require", "this sandbox", m.rec.Enforcement)
}

// fillEnforcement fills in the enforcement that was observed in other instances
// of a sandbox's image, if the sandbox's own instance was not examined.
func (ms *machines) fillEnforcement(s *brig.Sandbox) {
	if s.Enforcement != nil || !s.State.Live() {
		return
	}
	backend, err := ms.providers.backendOf(s)
	if err != nil {
		return
	}
	if found := ms.attestations.get(ms.providers.attestationKey(backend, s.Digest)); found != nil {
		s.Enforcement = maps.Clone(found.areas)
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
			r.Enforcement = found.areas
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

// sink listens on this host for connections that no sandbox must be able to
// make. No goroutine accepts them: the kernel completes the handshake, which is
// enough to detect them.
type sink struct{ ln *net.TCPListener } // nil if no listener could be opened

// openSink opens a sink, and returns its address if it has one.
func openSink(ctx context.Context) (sink, []netip.AddrPort) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(ownAddress(), 0).String())
	if err != nil {
		return sink{}, nil
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return sink{}, nil
	}
	a, err := netip.ParseAddrPort(ln.Addr().String())
	if err != nil {
		return sink{tcp}, nil
	}
	return sink{tcp}, []netip.AddrPort{a}
}

// wasReached reports whether a client has connected.
func (s sink) wasReached() (came bool) {
	if s.ln == nil {
		return false
	}
	raw, err := s.ln.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		conn, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK) // same flags as the listener
		if err == nil {
			came = true
			_ = syscall.Close(conn)
		}
	})
	return came && err == nil
}

func (s sink) close() {
	if s.ln != nil {
		_ = s.ln.Close()
	}
}
