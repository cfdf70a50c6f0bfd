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
	"github.com/brig-run/brig/guest/wire"
)

// sights are what was found out about machines of each image.
type sights struct {
	mu     sync.Mutex       // guards the fields below
	images map[string]*seen // by digest
	busy   map[string]bool  // digests that somebody looks at
	// one is held while a machine is made for nothing but to be looked at.
	one sync.Mutex
}

// seen is what was found out about a machine.
type seen struct {
	remarks []remark
	areas   map[brig.Area]brig.Enforcement
}

func (s *sights) get(digest string) *seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.images[digest]
}

// begin reports whether nobody has looked at an image or does just now; the
// caller does then, and says with end what was seen.
func (s *sights) begin(digest string) bool {
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

func (s *sights) end(digest string, found *seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, digest)
	if found == nil {
		return
	}
	if s.images == nil {
		s.images = map[string]*seen{}
	}
	s.images[digest] = found
}

// probeTime bounds one look from inside.
const probeTime = 10 * time.Second

// probe looks around inside a machine, as the user and as root.
func (e *Engine) probe(ctx context.Context, in brig.Instance, l brig.Limits, uplink bool, look wire.Look) ([]remark, error) {
	order, err := json.Marshal(look)
	if err != nil {
		return nil, err
	}
	var out []remark
	for _, user := range []string{"user", "root"} {
		said := newCapture(64 * brig.KiB)
		res, err := in.Exec(ctx, newExecID(), brig.Command{
			Argv: []string{wire.AgentFile, wire.ProbeWord, string(order)}, User: user, Dir: "/", Timeout: probeTime,
		}, brig.IO{Stdout: said, Stderr: newCapture(brig.KiB)})
		if err != nil {
			return nil, err
		}
		var p wire.Posture
		if err := json.Unmarshal(said.output().Head, &p); err != nil || res.ExitCode != 0 {
			return nil, fmt.Errorf("look around as %s: exit code %d: %w", user, res.ExitCode, err)
		}
		out = append(out, judge(p, l, uplink)...)
	}
	return out, nil
}

// examine finds out how far a machine enforces each area.
func (e *Engine) examine(ctx context.Context, at *member, in brig.Instance, spec brig.Spec) (*seen, error) {
	host, err := e.hostView(ctx, at, in)
	if err != nil {
		return nil, err
	}
	out, own := listen(ctx)
	defer out.close()
	remarks, err := e.probe(ctx, in, spec.Limits, len(spec.Egress.Rules) > 0, forbidden(&spec.Egress, own...))
	if err != nil {
		if gone(in) || ctx.Err() != nil {
			return nil, err
		}
		e.Log.WarnContext(ctx, "look into a sandbox", "err", err)
		return &seen{areas: e.weigh(at, host, blind())}, nil
	}
	if out.reached() { // whatever the guest says of it
		remarks = append(remarks, remark{brig.AreaEgress, brig.LevelNone, "it connected to this host"})
	}
	return &seen{remarks, e.weigh(at, host, remarks)}, nil
}

// weigh is how far areas are enforced by what the host says, and by what was
// seen from inside.
func (e *Engine) weigh(at *member, host map[brig.Area]brig.Enforcement, remarks []remark) map[brig.Area]brig.Enforcement {
	return e.withOwn(at.provider.Capabilities().Uplinks, heed(host, remarks, e.Now().UTC()))
}

// hostView is what the host says of a machine.
func (e *Engine) hostView(ctx context.Context, at *member, in brig.Instance) (map[brig.Area]brig.Enforcement, error) {
	have, err := in.Enforced(ctx)
	if err != nil {
		return nil, err
	}
	c := e.capabilities(at)
	return e.withOwn(c.Uplinks, atMost(have, c.Enforces)), nil
}

// seeOnce examines a machine that is nobody's yet, if none of its image was.
func (e *Engine) seeOnce(ctx context.Context, at *member, in brig.Instance, digest string, spec brig.Spec) {
	seen := e.sight(at, digest)
	if !e.sights.begin(seen) {
		return
	}
	found, err := e.examine(ctx, at, in, spec)
	if err != nil && ctx.Err() == nil {
		e.Log.WarnContext(ctx, "find out what is enforced", "image", digest, "err", err)
	}
	if found != nil && found.remarks == nil {
		found = nil // nobody could look: the next one may
	}
	e.sights.end(seen, found)
}

// foresee refuses what is required and not so, as far as other machines of the
// image show it: before a main program runs. If none was looked at yet, one is
// made for that.
func (e *Engine) foresee(ctx context.Context, m *machine) error {
	need := e.required(&m.rec.Spec)
	if len(need) == 0 {
		return nil
	}
	found := e.sights.get(e.sight(m.at, m.rec.Digest))
	if found == nil {
		var err error
		if found, err = e.seeFirst(ctx, m.at, m.rec.Digest); err != nil {
			return err
		}
	}
	return need.Unmet("require", "a sandbox of this image", found.areas)
}

// seeFirst makes a machine of an image to examine it.
func (e *Engine) seeFirst(ctx context.Context, at *member, digest string) (*seen, error) {
	e.sights.one.Lock()
	defer e.sights.one.Unlock()
	if found := e.sights.get(e.sight(at, digest)); found != nil {
		return found, nil
	}
	leave, err := e.capacity.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	id, spec := newID(), brig.Spec{Name: newName("probe-"), Image: digest, Limits: e.Bounds.Default, Ephemeral: true, Blank: true, TTL: time.Minute}
	in, err := at.provider.Create(ctx, id, spec, e.Now().Add(spec.TTL))
	if err != nil {
		return nil, err
	}
	defer e.destroy(ctx, id, in)
	found, err := e.examine(ctx, at, in, spec)
	if err == nil && found.remarks != nil {
		e.sights.end(e.sight(at, digest), found)
	}
	return found, err
}

// confirm has the host look at the very machine of a sandbox of which something
// is required, and refuses what is not so. The record of any other has nothing
// of it, and costs nothing: see tellEnforcement.
func (e *Engine) confirm(ctx context.Context, m *machine) error {
	need := e.required(&m.rec.Spec)
	if len(need) == 0 {
		return nil
	}
	host, err := e.hostView(ctx, m.at, m.in)
	if err != nil {
		return err
	}
	remarks := blind()
	if found := e.sights.get(e.sight(m.at, m.rec.Digest)); found != nil {
		remarks = found.remarks
	}
	m.rec.Enforcement = e.weigh(m.at, host, remarks)
	return need.Unmet("require", "this sandbox", m.rec.Enforcement)
}

// tellEnforcement fills in what other machines of a sandbox's image were seen
// to enforce, where nobody has looked at its own.
func (e *Engine) tellEnforcement(s *brig.Sandbox) {
	if s.Enforcement != nil || !s.State.Live() {
		return
	}
	at, err := e.memberOf(s)
	if err != nil {
		return
	}
	if found := e.sights.get(e.sight(at, s.Digest)); found != nil {
		s.Enforcement = maps.Clone(found.areas)
	}
}

// Attest implements brig.Service.
func (e *Engine) Attest(ctx context.Context, name string) (out *brig.Sandbox, err error) {
	err = e.inside(ctx, brig.OpAttest, name, func(v *visit, in brig.Instance) error {
		at, err := e.memberOf(&v.rec.Sandbox)
		if err != nil {
			return err
		}
		found, err := e.examine(ctx, at, in, v.rec.Spec)
		if err != nil {
			return err
		}
		rec, err := e.update(ctx, v.rec.Tenant, v.rec.ID, func(r *brig.Record) error {
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

// sink listens on this host for what should not come out of a sandbox. Nobody
// accepts: the kernel does, and that is enough to know.
type sink struct{ ln *net.TCPListener } // nil where nothing can be listened on

// listen opens a sink, and returns its address if it has one.
func listen(ctx context.Context) (sink, []netip.AddrPort) {
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

// reached reports whether anybody has connected.
func (s sink) reached() (came bool) {
	if s.ln == nil {
		return false
	}
	raw, err := s.ln.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		conn, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK) // as the listener is
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
