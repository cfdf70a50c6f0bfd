package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// failKills makes the first n kills of processes fail.
func failKills(p *hookedProvider, n int32) {
	var tried atomic.Int32
	p.setHooks(hooks{kill: func() error {
		if tried.Add(1) <= n {
			return errors.New("the agent did not answer in time")
		}
		return nil
	}})
}

// A cell ends soon after its timeout even if the first attempt to kill its
// interpreter fails. If no attempt succeeds, the engine ends the sandbox.
func TestCellTimesOutAfterFailedKills(t *testing.T) {
	for fails, within := range map[int32]time.Duration{1: 8 * time.Second, 1 << 30: 50 * time.Second} {
		withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
			run(brig.Code{Source: "set x here"})
			failKills(p, fails)
			begin := time.Now()
			res, err := h.RunCode(withRole(t, brig.Member), "box", brig.Code{Source: "deaf 3600", Timeout: time.Second}, nil)
			if took := time.Since(begin); took > within {
				t.Errorf("after %d failed kills it ended after %v: %+v, %v", fails, took, res, err)
			}
			s, getErr := h.Get(withRole(t, brig.Viewer), "box")
			switch {
			case getErr != nil:
				t.Fatal(getErr)
			case fails == 1 && (err != nil || !res.TimedOut || !res.Lost || s.State != brig.Running):
				t.Errorf("after one failed kill: %+v, %v, and the sandbox is %s", res, err, s.State)
			case fails > 1 && (err == nil || s.State != brig.Ended || s.Exit.Reason != brig.AgentLost):
				t.Errorf("after failed kills: %+v, %v, and the sandbox is %s", res, err, s.State)
			}
		})
	}
}

// If a run ends while the engine repeats a failed kill, neither the next run nor the sandbox is
// ended. A kill that succeeds at the moment when the run ends counts for that run.
func TestKillOfEndedRunSparesNextRun(t *testing.T) {
	for name, c := range map[string]struct {
		fails int32
		slow  time.Duration // of each attempt
		lost  bool
	}{
		"fails":         {fails: 4},
		"fails forever": {fails: 1 << 30},
		"late":          {slow: 3 * time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
				run(brig.Code{Source: "set x here"})
				var tried atomic.Int32
				p.setHooks(hooks{kill: func() error {
					time.Sleep(c.slow)
					if tried.Add(1) <= c.fails {
						return errors.New("the agent did not answer in time")
					}
					return nil
				}})
				res := run(brig.Code{Source: "deaf 7", Timeout: time.Second})
				if !res.TimedOut || res.Lost != c.lost {
					t.Errorf("%+v", res)
				}
				want := "here"
				if c.lost {
					want = ""
				}
				if res := run(brig.Code{Source: "deaf 60", Timeout: 2 * time.Minute}); res.Lost {
					t.Errorf("the next run was ended: %+v", res.Error)
				}
				if res := run(brig.Code{Source: "get x"}); mainValue(res) != want || res.Lost {
					t.Errorf("the next run has %q: %+v", mainValue(res), res.Error)
				}
				if s, err := h.Get(withRole(t, brig.Viewer), "box"); err != nil || s.State != brig.Running {
					t.Errorf("the sandbox is %s, %v", s.State, err)
				}
			})
		})
	}
}

// A process ends soon after its timeout even if the first attempt to kill it fails.
// If no attempt succeeds, the engine ends the sandbox.
func TestProcessTimesOutAfterFailedKills(t *testing.T) {
	for fails, within := range map[int32]time.Duration{1: 3 * time.Second, 1 << 30: 40 * time.Second} {
		withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
			ctx := withRole(t, brig.Member)
			if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			failKills(p, fails)
			begin := time.Now()
			info, err := h.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "3000"}, Timeout: time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			_, end, err := attachUntilEnd(t, h.Processes("box"), info.PID)
			if took := time.Since(begin); took > within {
				t.Errorf("after %d failed kills it ended after %v", fails, took)
			}
			if fails == 1 && (err != nil || !end.TimedOut || end.ExitCode != 124) || fails > 1 && brig.KindOf(err) != brig.FailedPrecondition {
				t.Errorf("after %d failed kills: %+v, %v", fails, end, err)
			}
		})
	}
}

// An interpreter that a restart of its context could not kill is killed later.
func TestRestartAfterFailedKill(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		failKills(p, 1)
		if _, err := h.RestartContext(withRole(t, brig.Member), "box", "default-python"); err == nil {
			t.Error("the restart succeeds, and the kill does not")
		}
		advance(5 * time.Second)
		p.mu.Lock()
		old := p.procs[0].Process
		p.mu.Unlock()
		select {
		case <-waitAsync(t, old):
		case <-time.After(time.Second):
			t.Error("the interpreter still runs")
		}
	})
}

// A run ends soon after its timeout even if the first attempt to stop its instance
// fails.
func TestRunTimesOutAfterFailedStop(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
		var tried atomic.Int32
		p.setHooks(hooks{stop: func() error {
			if tried.Add(1) == 1 {
				return errors.New("the shim did not answer in time")
			}
			return nil
		}})
		begin := time.Now()
		o, err := h.Run(withRole(t, brig.Member), brig.Program{Language: brig.Python, Code: "deaf 60", Timeout: time.Second}, brig.IO{})
		if took := time.Since(begin); err != nil || !o.TimedOut || took > 3*time.Second {
			t.Errorf("after %v: %+v, %v", took, o, err)
		}
	})
}

// outage is a provider that may be unreachable.
type outage struct {
	*hookedProvider
	down atomic.Bool
}

var errOutage = errors.New("the host does not answer")

func (p *outage) Check(context.Context) error {
	if p.down.Load() {
		return errOutage
	}
	return nil
}

// If the provider is unreachable when a program is to be killed, the engine kills the program
// later instead of ending the sandbox.
func TestKillIsRetriedAfterOutage(t *testing.T) {
	remote := &outage{}
	withFakeClock(t, engine.Options{Provider: remote}, func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		fail := func() error {
			time.Sleep(10 * time.Second)
			return remote.Check(ctx)
		}
		var stops atomic.Int32
		p.setHooks(hooks{kill: fail, stop: func() error { stops.Add(1); return fail() }})
		remote.down.Store(true)
		time.AfterFunc(3*time.Minute, func() { remote.down.Store(false) })
		begin := time.Now()
		res, err := h.RunCode(ctx, "box", brig.Code{Source: "deaf 3000", Timeout: time.Second}, nil)
		if took := time.Since(begin); err != nil || !res.TimedOut || !res.Lost || took > 4*time.Minute {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		if s, err := h.Get(ctx, "box"); err != nil || s.State != brig.Running || stops.Load() > 0 {
			t.Errorf("the sandbox is %s after %d stops, %v", s.State, stops.Load(), err)
		}
	})
}

// A failed forced end of a sandbox is repeated at increasing intervals.
func TestForcedEndIsRepeated(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		var stops atomic.Int32
		begin := time.Now()
		p.setHooks(hooks{kill: func() error { return errOutage }, stop: func() error {
			stops.Add(1)
			if time.Since(begin) < 10*time.Minute {
				return errOutage
			}
			return nil
		}})
		_, err := h.RunCode(withRole(t, brig.Member), "box", brig.Code{Source: "deaf 3000", Timeout: time.Second}, nil)
		if took := time.Since(begin); err == nil || took > 12*time.Minute || stops.Load() > 40 {
			t.Errorf("after %v and %d stops: %v", took, stops.Load(), err)
		}
		if s, err := h.Get(withRole(t, brig.Viewer), "box"); err != nil || s.State != brig.Ended || s.Exit.Reason != brig.AgentLost {
			t.Errorf("the sandbox is %+v, %v", s, err)
		}
	})
}

// waitAsync returns a channel that is closed when a process has ended.
func waitAsync(t *testing.T, p brig.Process) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		if _, err := p.Wait(t.Context()); err == nil {
			close(over)
		}
	}()
	return over
}
