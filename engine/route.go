package engine

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// stop is a provider on the way of a request.
type stop struct {
	at    *member
	most  int // users that it may have
	route brig.Route
}

// errand is a request that looks for a provider.
type errand struct {
	tenant string
	spec   *brig.Spec
	place  brig.Placement
	// program says that it is a one-shot, which providers without machines can
	// have, too.
	program bool
}

// route says at which providers a request may be made, in the order in which
// they are tried. None of them lacks what the request needs to be enforced.
func (e *Engine) route(ctx context.Context, r errand) ([]stop, error) {
	if err := r.place.Check("placement"); err != nil {
		return nil, err
	}
	if err := r.spec.Require.Check("require"); err != nil {
		return nil, err
	}
	now := e.fleet.now.Load()
	if home := now.members[e.homeID]; len(now.members) == 1 && now.active == e.homeID && len(now.routing)+len(now.broken)+len(now.terms) == 0 && r.place.IsZero() {
		// There is nothing to choose, and nothing that it would cost to.
		if err := e.checkEnforced(ctx, home, r.tenant, r.spec); err != nil {
			return nil, err
		}
		return []stop{{home, 0, brig.Route{Provider: home.id, Reason: "active"}}}, nil
	}
	policy, own := now.routing[r.tenant]
	if !own {
		policy = now.routing[""]
	}
	choices, err := policy.With(r.place).Plan(now.active, rand.Float64(), e.options(ctx, now, r)) //nolint:gosec // it is no secret
	if err != nil {
		return nil, err
	}
	stops := make([]stop, 0, len(choices))
	for _, c := range choices {
		stops = append(stops, stop{now.members[c.Provider], now.terms[c.Provider].Max, brig.Route{Provider: c.Provider, Reason: c.Reason}})
	}
	return stops, nil
}

// options are all providers, as a request sees them.
func (e *Engine) options(ctx context.Context, now *lineup, r errand) []brig.Option {
	var least map[brig.Area]brig.Enforcement
	if m := now.members[now.active]; m != nil {
		least = m.provider.Capabilities().Enforces
	}
	var out []brig.Option
	for id, why := range now.broken {
		out = append(out, brig.Option{ID: id, Terms: now.terms[id], Unfit: brig.Errorf(brig.Unavailable, "the provider %s cannot be used: %s", id, brig.AsError(why).Message).
			WithHint("%s", brig.AsError(why).Hint).Because(why)})
	}
	for id, m := range now.members {
		o := brig.Option{ID: id, Terms: now.terms[id], Down: m.health.down(e.Now()), Unfit: e.fits(ctx, m, r)}
		o.Full = o.Terms.Max > 0 && m.busy() >= o.Terms.Max
		if e.isHome(m) && !o.Full {
			o.Full = e.capacity.busy() || e.capacity.room() != nil
		}
		has := m.provider.Capabilities().Enforces
		for _, a := range []brig.Area{brig.AreaIsolation, brig.AreaEgress} {
			o.Named = o.Named || !has[a].Level.Meets(least[a].Level)
		}
		out = append(out, o)
	}
	return out
}

// fits says why a provider cannot have a request, nil if it can.
func (e *Engine) fits(ctx context.Context, m *member, r errand) error {
	if err := e.checkEnforced(ctx, m, r.tenant, r.spec); err != nil {
		return err
	}
	if !m.runsOnly {
		return nil
	}
	refused := func(field, what string) error {
		err := brig.Errorf(brig.FailedPrecondition, "the provider %s only runs programs: %s", m.id, what)
		err.Field = field
		return err.WithHint("leave it out, or choose another provider")
	}
	switch {
	case !r.program:
		return refused("placement", "it has no sandboxes that stay")
	case len(r.spec.Secrets) > 0:
		return refused("secrets", "they get no secrets")
	case r.spec.Workspace.Name != "":
		return refused("workspace", "they get no workspace")
	}
	return nil
}

// The pause between two attempts: half of it and up to as much again.
const pause = 20 * time.Millisecond

// rounds is how often a way is looked for again when an administrator changed
// everything that was on it.
const rounds = 10

// travel has a request done at one of the stops that route has found for it, or
// finds others if an administrator has changed them meanwhile.
func (e *Engine) travel(ctx context.Context, v *visit, r errand, stops []stop, try func(stop) error) error {
	for n := 1; ; n++ {
		err := e.onward(ctx, v, stops, try)
		if !errors.Is(err, errChanged) || n == rounds {
			return err
		}
		if stops, err = e.route(ctx, r); err != nil {
			return err
		}
	}
}

// onward tries one provider after the other until one does it, or fails in a
// way in which every other would, too. What was tried in vain is in the route
// of the next.
func (e *Engine) onward(ctx context.Context, v *visit, stops []stop, try func(stop) error) error {
	var failed []brig.Attempt
	for i, s := range stops {
		s.route.Attempts = failed
		begin := time.Now()
		lost := try(s)
		if lost == nil {
			return nil
		}
		if errors.Is(lost, errOver) || !brig.Elsewhere(lost) || ctx.Err() != nil {
			return lost
		}
		if i == len(stops)-1 {
			return tried(lost, failed)
		}
		err := brig.AsError(lost)
		if !v.aside && !v.pending && v.id != "" {
			// What has begun ends, on record: the next attempt is another.
			_ = v.note(ctx, v.event(brig.Finish, err)) // it is in the log if it is lost
			v.pending, v.told = true, false
		}
		v.beside, v.id = nil, ""
		failed = append(failed, brig.Attempt{Provider: s.at.id, Code: err.Kind.Code(), Message: err.Message, Took: time.Since(begin)})
		next := &stops[i+1]
		e.Log.WarnContext(ctx, "a provider failed; the next one is tried", "provider", s.at.id, "next", next.at.id, "err", err)
		if next.route.Reason == "fallback" {
			next.route.Reason = "fallback: " + s.at.id + " failed"
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // it is no secret
		case <-ctx.Done():
		}
	}
	return brig.Errorf(brig.NotInitialized, "there is no provider to try").WithHint("configure one: brig provider configure")
}

// tried says in an error what else was tried, and keeps its causes.
func tried(lost error, failed []brig.Attempt) error {
	if len(failed) == 0 {
		return lost
	}
	out := *brig.AsError(lost)
	for _, a := range failed {
		out.Message += "; before that " + a.Provider + ": " + a.Message + " (" + a.Code + ")"
	}
	return out.Because(lost)
}

// errOver is a cause of an error after which nothing else is tried: something
// may have left the sandbox already.
var errOver = errors.New("it cannot be done again")

// over has err be the last word.
func over(err error) error { return errors.Join(err, errOver) }

// noteHealth remembers how a provider did.
func (e *Engine) noteHealth(m *member, err error) {
	if m.health.note(err, e.Now()) {
		e.Log.Warn("a provider does not answer; others are tried before it", "provider", m.id, "err", err)
	}
}

// spoken reports whether anything of a program's output has come out.
type spoken struct{ atomic.Bool }

// hear returns sio, of which s knows.
func (s *spoken) hear(sio brig.IO) brig.IO {
	for _, w := range []*io.Writer{&sio.Stdout, &sio.Stderr} {
		if *w != nil {
			*w = heardWriter{s, *w}
		}
	}
	return sio
}

type heardWriter struct {
	s *spoken
	io.Writer
}

// Write implements io.Writer.
func (w heardWriter) Write(p []byte) (int, error) {
	w.s.Store(true)
	return w.Writer.Write(p)
}

// again reports whether a program of which something may have run can be run
// from the beginning: nothing has left its sandbox.
func again(j *job, s *spoken, sio brig.IO) bool {
	return !s.Load() && sio.Stdin == nil && len(j.spec.Egress.Rules) == 0 && j.spec.Workspace.Mode != brig.WorkspaceDirect
}
