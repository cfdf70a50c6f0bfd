package engine

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
)

// candidate is a provider to try for a request.
type candidate struct {
	backend  *placement.Backend
	maxUsers int // the maximum number of users of the backend
	route    brig.Route
}

// placementRequest is a request that needs a provider.
type placementRequest struct {
	tenant      string
	spec        *brig.Spec
	constraints brig.Placement
	// isRun is true for a one-shot, which providers without sandboxes can also
	// run.
	isRun bool
}

// route returns the providers that can serve a request and enforce its requirements, in the order
// in which they are tried.
func (ps *providers) route(ctx context.Context, r placementRequest) ([]candidate, error) {
	if err := r.constraints.Check("placement"); err != nil {
		return nil, err
	}
	if err := r.spec.Require.Check("require"); err != nil {
		return nil, err
	}
	now := ps.backends.Current()
	if home := now.Backends[ps.builtinID]; len(now.Backends) == 1 && now.Active == ps.builtinID && len(now.Routing)+len(now.Broken)+len(now.Terms) == 0 && r.constraints.IsZero() {
		// A single provider leaves no choice.
		if err := ps.checkEnforced(ctx, home, r.tenant, r.spec); err != nil {
			return nil, err
		}
		return []candidate{{home, 0, brig.Route{Provider: home.ID, Reason: "active"}}}, nil
	}
	policy, own := now.Routing[r.tenant]
	if !own {
		policy = now.Routing[""]
	}
	choices, err := policy.With(r.constraints).Plan(now.Active, rand.Float64(), ps.placementOptions(ctx, now, r)) //nolint:gosec // placement need not be unpredictable
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate, 0, len(choices))
	for _, c := range choices {
		candidates = append(candidates, candidate{now.Backends[c.Provider], now.Terms[c.Provider].Max, brig.Route{Provider: c.Provider, Reason: c.Reason}})
	}
	return candidates, nil
}

// placementOptions describes all providers for a request.
func (ps *providers) placementOptions(ctx context.Context, now *placement.Snapshot, r placementRequest) []brig.Option {
	var required map[brig.Area]brig.Enforcement
	if m := now.Backends[now.Active]; m != nil {
		required = m.Provider.Capabilities().Enforces
	}
	memory := cmp.Or(r.spec.Limits.Memory, ps.LimitRange.Default.Memory)
	var out []brig.Option
	for id, cause := range now.Broken {
		out = append(out, brig.Option{ID: id, Terms: now.Terms[id], Unfit: brig.Errorf(brig.Unavailable, "the provider %s cannot be used: %s", id, brig.AsError(cause).Message).
			WithHint("%s", brig.AsError(cause).Hint).Because(cause)})
	}
	for id, m := range now.Backends {
		o := brig.Option{ID: id, Terms: now.Terms[id], Down: m.Health.IsOpen(ps.Now()), Unfit: ps.checkPlacement(ctx, m, r)}
		o.Price = ps.rateOf(now, id).Cost(1, time.Second, memory)
		o.Full = o.Terms.Max > 0 && m.Users() >= o.Terms.Max
		if ps.isBuiltin(m) && !o.Full {
			o.Full = ps.capacity.HasWaiters() || ps.capacity.CheckRoom() != nil
		}
		has := m.Provider.Capabilities().Enforces
		for _, a := range []brig.Area{brig.AreaIsolation, brig.AreaEgress} {
			o.Named = o.Named || !has[a].Level.Meets(required[a].Level)
		}
		out = append(out, o)
	}
	return out
}

// checkPlacement returns an error if a provider cannot take a request.
func (ps *providers) checkPlacement(ctx context.Context, m *placement.Backend, r placementRequest) error {
	if err := ps.checkEnforced(ctx, m, r.tenant, r.spec); err != nil {
		return err
	}
	if !m.RunsOnly {
		return nil
	}
	refused := func(field, what string) error {
		err := brig.Errorf(brig.FailedPrecondition, "the provider %s only runs programs: %s", m.ID, what)
		err.Field = field
		return err.WithHint("leave it out, or choose another provider")
	}
	switch {
	case !r.isRun:
		return refused("placement", "it has no sandboxes that stay")
	case len(r.spec.Secrets) > 0:
		return refused("secrets", "they get no secrets")
	case r.spec.Workspace.Name != "":
		return refused("workspace", "they get no workspace")
	}
	return nil
}

// retryPause is the mean delay between two attempts. The delay varies randomly between 50 % and 150
// % of it.
const retryPause = 20 * time.Millisecond

// maxRouteLookups is the maximum number of rounds of dispatch, if
// administrators keep changing the candidates.
const maxRouteLookups = 10

// dispatch tries a request with the candidates that route has found for it. If
// an administrator has changed the candidates since then, it calls route again.
func (ps *providers) dispatch(ctx context.Context, v *call, r placementRequest, candidates []candidate, try func(candidate) error) error {
	for n := 1; ; n++ {
		err := ps.tryCandidates(ctx, v, candidates, try)
		if brig.RetryOf(err) != brig.RetryRoute || n == maxRouteLookups {
			return err
		}
		if candidates, err = ps.route(ctx, r); err != nil {
			return err
		}
	}
}

// tryCandidates tries the providers in order. It stops after a success, and after an error that
// every provider would return. The route of each provider lists the earlier failed attempts.
func (ps *providers) tryCandidates(ctx context.Context, v *call, candidates []candidate, try func(candidate) error) error {
	var failed []brig.Attempt
	var full error // preferred over other errors, since the caller can succeed later
	for i, s := range candidates {
		s.route.Attempts = failed
		begin := time.Now()
		lost := try(s)
		if lost == nil {
			return nil
		}
		if brig.RetryOf(lost) == brig.RetryNever || !brig.CanRetryElsewhere(lost) || ctx.Err() != nil {
			return lost
		}
		err := brig.AsError(lost)
		if err.Kind == brig.RateLimited && full == nil {
			full = lost
		}
		if i == len(candidates)-1 {
			if full != nil {
				return withAttempts(full, append(failed, attemptOf(s, err, begin)))
			}
			return withAttempts(lost, failed)
		}
		v.nextAttempt(ctx, err)
		failed = append(failed, attemptOf(s, err, begin))
		next := &candidates[i+1]
		ps.Log.WarnContext(ctx, "a provider failed; the next one is tried", "provider", s.backend.ID, "next", next.backend.ID, "err", err)
		if next.route.Reason == "fallback" {
			next.route.Reason = "fallback: " + s.backend.ID + " failed"
		}
		select {
		case <-time.After(retryPause/2 + rand.N(retryPause)): //nolint:gosec // jitter need not be unpredictable
		case <-ctx.Done():
		}
	}
	return brig.Errorf(brig.NotInitialized, "there is no provider to try").WithHint("configure one: brig provider configure")
}

// attemptOf returns the description of a failed attempt.
func attemptOf(s candidate, err *brig.Error, begin time.Time) brig.Attempt {
	return brig.Attempt{Provider: s.backend.ID, Code: err.Kind.Code(), Message: err.Message, Took: time.Since(begin)}
}

// withAttempts adds the failed attempts to an error, and preserves its causes.
func withAttempts(lost error, failed []brig.Attempt) error {
	if len(failed) == 0 {
		return lost
	}
	out := *brig.AsError(lost)
	own := out.Message
	for _, a := range failed {
		if a.Message == own {
			continue
		}
		out.Message += "; before that " + a.Provider + ": " + a.Message + " (" + a.Code + ")"
	}
	return out.Because(lost)
}

// withoutRetry marks err so that no other provider is tried, for example
// because output may already have left the sandbox.
func withoutRetry(err error) error { return brig.WithRetry(err, brig.RetryNever) }

// noteHealth records whether a call of a provider succeeded.
func (ps *providers) noteHealth(m *placement.Backend, err error) {
	if m.Health.Record(err, ps.Now()) {
		ps.Log.Warn("a provider does not respond; others are tried first", "provider", m.ID, "err", err)
	}
}

// outputFlag reports whether a program has written any output.
type outputFlag struct{ atomic.Bool }

// watch returns sio with writers that set s.
func (s *outputFlag) watch(sio brig.IO) brig.IO {
	for _, w := range []*io.Writer{&sio.Stdout, &sio.Stderr} {
		if *w != nil {
			*w = flagWriter{s, *w}
		}
	}
	return sio
}

type flagWriter struct {
	s *outputFlag
	io.Writer
}

// Write implements io.Writer.
func (w flagWriter) Write(p []byte) (int, error) {
	w.s.Store(true)
	return w.Writer.Write(p)
}

// canRunAgain reports whether a program that may have started can be run again,
// because it has had no effect outside its sandbox.
func canRunAgain(j *job, s *outputFlag, sio brig.IO) bool {
	writesVolume := slices.ContainsFunc(j.spec.Volumes, func(m brig.VolumeMount) bool { return !m.ReadOnly })
	return !s.Load() && sio.Stdin == nil && len(j.spec.Egress.Rules) == 0 && j.spec.Workspace.Mode != brig.WorkspaceDirect && !writesVolume
}
