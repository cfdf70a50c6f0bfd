package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// withContext calls f with a fixture that has a sandbox "box", and with a function
// that runs code in the sandbox's default context.
func withContext(t *testing.T, f func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult)) {
	t.Helper()
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
		if _, err := h.Create(withRole(t, brig.Member), brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		f(t, h, p, func(c brig.Code) *brig.CodeResult {
			t.Helper()
			res, err := h.RunCode(withRole(t, brig.Member), "box", c, nil)
			if err != nil {
				t.Fatalf("RunCode(%q) = %v", c.Source, err)
			}
			return res
		})
	})
}

// mainValue returns the value of the last expression as text.
func mainValue(r *brig.CodeResult) string {
	for _, o := range r.Outputs {
		if o.Main {
			return strings.Trim(string(o.Data["text/plain"]), `"`)
		}
	}
	return ""
}

// If code ends at the moment of its timeout, no late interrupt affects its
// interpreter or the next run.
func TestInterruptAtTimeoutAffectsOnlyItsRun(t *testing.T) {
	withContext(t, func(t *testing.T, _ *fixture, _ *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		for i := range 200 {
			run(brig.Code{Source: "sleep 1", Timeout: time.Second})
			if i%2 == 0 {
				advance(3 * time.Second)
			}
			if res := run(brig.Code{Source: "get x"}); mainValue(res) != "here" || res.Lost || res.Error != nil {
				t.Fatalf("after %d: %+v with the error %+v", i, res, res.Error)
			}
		}
	})
}

// A run returns the value of its last expression regardless of how many values it
// displays, and the listener of the run receives every value.
func TestResultFollowsManyDisplays(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, _ *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		many := brig.Code{Source: "set x here\n" + strings.Repeat("show 1\n", brig.MaxOutputs+10) + "get x"}
		received := 0
		res, err := h.RunCode(withRole(t, brig.Member), "box", many, func(ev brig.CodeEvent) error {
			if ev.Output != nil {
				received++
			}
			return nil
		})
		if err != nil || received != brig.MaxOutputs+11 {
			t.Fatalf("got %d outputs, want %d; %v", received, brig.MaxOutputs+11, err)
		}
		if note := string(res.Stderr.Head); !strings.HasPrefix(note, "brig: 11 values are left out of the result") {
			t.Errorf("standard error does not name the number of missing values: %q", note)
		}
		if len(res.Outputs) != brig.MaxOutputs || mainValue(res) != "here" {
			t.Errorf("%d outputs, the result is %q", len(res.Outputs), mainValue(res))
		}
		if res = run(brig.Code{Source: fmt.Sprintf("show %d\nshow 1\nget x", brig.MaxOutputSize)}); len(res.Outputs) != 2 || mainValue(res) != "here" {
			t.Errorf("after one that is too large: %d outputs, the result is %q", len(res.Outputs), mainValue(res))
		}
	})
}

// Code that ignores an interrupt loses its interpreter, and the next run gets a
// new one.
func TestInterpreterIsReplacedWhenCodeIgnoresInterrupt(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		start := time.Now()
		res := run(brig.Code{Source: "echo before\ndeaf 3600", Timeout: time.Second})
		if took := time.Since(start); took < time.Second || took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if !res.Lost || !res.TimedOut || res.Error == nil || res.Error.Name != "InterpreterDied" || !strings.Contains(res.Error.Value, "variables are gone") || string(res.Stdout.Head) != "before\n" {
			t.Errorf("%+v with the error %+v", res, res.Error)
		}
		list, err := h.Contexts(withRole(t, brig.Viewer), "box")
		if err != nil || len(list) != 1 || list[0].State != brig.ContextDead {
			t.Errorf("Contexts = %+v, %v", list, err)
		}
		if res := run(brig.Code{Source: "get x"}); mainValue(res) != "" || res.Count != 1 || res.Lost {
			t.Errorf("afterwards: %+v with the error %+v", res, res.Error)
		}
		if err := h.Remove(withRole(t, brig.Member), "box"); err != nil {
			t.Fatal(err)
		}
		h.Close()
		p.assertClean(t)
	})
}

// A line on the driver's channel that is not a valid message of the current cell
// ends the interpreter with a ProtocolViolation error. The next run gets a new
// interpreter.
func TestForgedMessageEndsInterpreter(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, _ *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		for _, line := range []string{`{"type":"end"}`, `{"type":"result","nonce":"x","data":{"text/plain":"forged"}}`, "no message"} {
			run(brig.Code{Source: "set x here"})
			res := run(brig.Code{Source: "echo before\nforge " + line + "\nget x"})
			if !res.Lost || res.TimedOut || res.Error == nil || res.Error.Name != "ProtocolViolation" ||
				!strings.Contains(res.Error.Value, "variables are gone") || len(res.Outputs) > 0 || string(res.Stdout.Head) != "before\n" {
				t.Errorf("%s: %+v with the error %+v", line, res, res.Error)
			}
			if res := run(brig.Code{Source: "get x"}); mainValue(res) != "" || res.Count != 1 || res.Lost || res.Error != nil {
				t.Errorf("after %s: %+v with the error %+v", line, res, res.Error)
			}
			o, err := h.Run(withRole(t, brig.Member), brig.Program{Language: brig.Python, Code: "forge " + line + "\nreturn 1"}, brig.IO{})
			if err != nil || o.Error == nil || o.Error.Name != "ProtocolViolation" || o.Error.Code != "SB015" || o.ExitCode != 137 || o.Value != nil {
				t.Errorf("%s in a one-shot: %+v, %v", line, o, err)
			}
		}
	})
}

// countSignals returns the number of signals that were sent to processes.
func (p *hookedProvider) countSignals() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.procs {
		n += proc.sent
	}
	return n
}

// A cell that repeatedly reports its start causes at most one signal, and its timeout still
// applies. Each signal would need a connection to the sandbox.
func TestRepeatedStartsSendOneSignal(t *testing.T) {
	withContext(t, func(t *testing.T, _ *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		start := time.Now()
		res := run(brig.Code{Source: "deaf 2\nflood 10000 {\"type\":\"started\",\"nonce\":\"NONCE\",\"count\":1}\ndeaf 3600", Timeout: time.Second})
		if n := p.countSignals(); n > 1 {
			t.Errorf("%d signals", n)
		}
		if took := time.Since(start); took > 10*time.Second || !res.TimedOut || !res.Lost || res.Error == nil || res.Error.Name != "ProtocolViolation" {
			t.Errorf("after %v: %+v with the error %+v", took, res, res.Error)
		}
		if res := run(brig.Code{Source: "set x here\nget x"}); mainValue(res) != "here" || res.Lost {
			t.Errorf("afterwards: %+v", res)
		}
	})
}

// Runs in one context execute sequentially, in order of arrival, and the number
// of waiting runs is limited.
func TestContextRunsAreSerializedAndLimited(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, _ *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x 1"})
		var wg sync.WaitGroup
		var mu sync.Mutex // guards the fields below
		var order []int
		rejected := 0
		for i := range 70 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(withRole(t, brig.Member))
				defer cancel()
				if i == 3 { // disconnects while it waits
					time.AfterFunc(500*time.Millisecond, cancel)
				}
				res, err := h.RunCode(ctx, "box", brig.Code{Source: "sleep 1"}, nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case i == 3:
					if brig.KindOf(err) != brig.Canceled {
						t.Errorf("who went away was told %v", err)
					}
				case brig.KindOf(err) == brig.RateLimited:
					if rejected++; i < 65 {
						t.Errorf("run %d was refused", i)
					}
				case err != nil:
					t.Errorf("run %d: %v", i, err)
				default:
					order = append(order, i)
					if want := time.Duration(len(order)-1) * time.Second; res.Queued != want {
						t.Errorf("run %d waited for %v, want %v", i, res.Queued, want)
					}
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		want := []int{}
		for i := range 65 {
			if i != 3 {
				want = append(want, i)
			}
		}
		if fmt.Sprint(order) != fmt.Sprint(want) || rejected != 5 {
			t.Errorf("%d were refused, and the others came in the order %v", rejected, order)
		}
	})
}

// The number of contexts in a sandbox is limited. The removal of a context permits
// the creation of another one.
func TestContextCountIsLimited(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, _ *hookedProvider, _ func(brig.Code) *brig.CodeResult) {
		ctx := withRole(t, brig.Member)
		var last *brig.CodeContext
		for range 32 {
			c, err := h.CreateContext(ctx, "box", brig.ContextSpec{})
			if err != nil {
				t.Fatal(err)
			}
			last = c
		}
		if _, err := h.CreateContext(ctx, "box", brig.ContextSpec{}); brig.KindOf(err) != brig.RateLimited {
			t.Errorf("one too many: %v", err)
		}
		if err := h.RemoveContext(ctx, "box", last.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := h.CreateContext(ctx, "box", brig.ContextSpec{}); err != nil {
			t.Errorf("after one was removed: %v", err)
		}
	})
}

// A context that fails to start is not listed.
func TestContextIsUnlistedWhenStartFails(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		p.setHooks(hooks{start: func(*hookedInstance) error {
			return brig.InvalidField("command", "no program").WithHint("another")
		}})
		_, err := h.CreateContext(withRole(t, brig.Member), "box", brig.ContextSpec{})
		if e := brig.AsError(err); e == nil || e.Field != "language" {
			t.Errorf("in an image without Python: %v", err)
		}
		p.setHooks(hooks{start: func(*hookedInstance) error { return errors.New("no") }})
		if _, err = h.CreateContext(withRole(t, brig.Member), "box", brig.ContextSpec{}); brig.KindOf(err) != brig.Internal {
			t.Errorf("CreateContext = %v", err)
		}
		if list, err := h.Contexts(withRole(t, brig.Member), "box"); err != nil || len(list) != 0 {
			t.Errorf("Contexts = %+v, %v", list, err)
		}
		p.setHooks(hooks{})
		run(brig.Code{Source: "echo hi"})
	})
}

// A new engine recovers the contexts with their variables. It interrupts running
// code, because no caller waits for the result any more, and ends an interpreter
// that ignores the interrupt.
func TestContextsSurviveServerRestart(t *testing.T) {
	withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
		ctx := withRole(t, brig.Member)
		run(brig.Code{Source: "set x kept"})
		busy, err := h.CreateContext(ctx, "box", brig.ContextSpec{Env: map[string]string{"E": "env"}})
		if err != nil {
			t.Fatal(err)
		}
		deaf, err := h.CreateContext(ctx, "box", brig.ContextSpec{Language: brig.Bash})
		if err != nil {
			t.Fatal(err)
		}
		callerCtx, disconnect := context.WithCancel(ctx)
		defer disconnect()
		for id, code := range map[string]string{busy.ID: "set x busy\nsleep 100", deaf.ID: "set x deaf\ndeaf 5000"} {
			go func() {
				_, _ = h.RunCode(callerCtx, "box", brig.Code{Context: id, Source: code, Timeout: time.Hour}, nil)
			}()
		}
		advance(time.Second)

		defer p.disconnect()()
		next := engine.New(t.Context(), engine.Options{Store: h.store, Provider: p.Provider, Images: images{}, LimitRange: brig.DefaultLimitRange()})
		defer next.Close()
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := next.Contexts(ctx, "box")
		if err != nil || len(list) != 3 {
			t.Fatalf("Contexts = %+v, %v", list, err)
		}
		advance(10 * time.Second)
		for id, want := range map[string]string{"default-python": "kept", busy.ID: "busy", deaf.ID: ""} {
			res, err := next.RunCode(ctx, "box", brig.Code{Context: id, Source: "get x\nenv E"}, nil)
			if err != nil || mainValue(res) != want {
				t.Errorf("in %s: %+v, %v; want x = %q", id, res, err, want)
			}
		}
	})
}

// A context can be restarted, removed and used as soon as a new server has
// recovered it, even while the server still checks whether the interpreter
// responds.
func TestRecoveredContextsAreUsableAtOnce(t *testing.T) {
	ctx := withRole(t, brig.Member)
	for i := range 60 {
		h := newFixture(t, nil)
		if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.RunCode(ctx, "box", brig.Code{Source: "set x here"}, nil); err != nil {
			t.Fatal(err)
		}
		next := engine.New(t.Context(), h.Options)
		if err := next.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		const id = "default-python"
		want := ""
		switch i % 3 {
		case 0:
			if _, err := next.RestartContext(ctx, "box", id); err != nil {
				t.Fatalf("restart: %v", err)
			}
		case 1:
			if err := next.RemoveContext(ctx, "box", id); err != nil {
				t.Fatalf("remove: %v", err)
			}
		default:
			want = "here"
		}
		r, err := next.RunCode(ctx, "box", brig.Code{Source: "get x"}, nil)
		if err != nil || mainValue(r) != want {
			t.Fatalf("round %d: x is %q, want %q; %v", i, mainValue(r), want, err)
		}
		next.Close()
	}
}

// If a sandbox is killed while an interpreter starts in it, all callers with a
// pending operation get an error that reports the end of the sandbox. Their
// connections break before the engine has recorded the end of the instance. In the
// control, the operation fails but the instance continues to run.
func TestKillEndsPendingContextCalls(t *testing.T) {
	for _, end := range []string{"kill", "remove", "crash", ""} {
		t.Run("end by "+end, func(t *testing.T) {
			withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, _ func(brig.Code) *brig.CodeResult) {
				ctx := withRole(t, brig.Member)
				broken, killed := errors.New("the connection broke"), make(chan struct{})
				hold := func(in *hookedInstance) error {
					<-killed
					return broken
				}
				p.setHooks(hooks{start: hold, exec: func(brig.Command) error { return hold(nil) }})
				got := map[string]error{}
				var mu sync.Mutex // guards got
				var calls sync.WaitGroup
				for name, call := range map[string]func() error{
					"RunCode": func() error {
						_, err := h.RunCode(ctx, "box", brig.Code{Source: "echo hi"}, nil)
						return err
					},
					"CreateContext": func() error {
						_, err := h.CreateContext(ctx, "box", brig.ContextSpec{})
						return err
					},
					"Exec": func() error {
						_, err := h.Exec(ctx, "box", brig.Command{Argv: []string{"sleep", "1"}}, brig.IO{})
						return err
					},
					"Start": func() error {
						_, err := h.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "1"}}})
						return err
					},
				} {
					calls.Go(func() {
						err := call()
						mu.Lock()
						defer mu.Unlock()
						got[name] = err
					})
				}
				synctest.Wait()
				var ended sync.WaitGroup
				ended.Go(func() {
					switch end {
					case "kill":
						if _, err := h.Kill(ctx, "box"); err != nil {
							t.Error(err)
						}
					case "remove":
						if err := h.Remove(ctx, "box"); err != nil {
							t.Error(err)
						}
					case "crash":
						time.Sleep(50 * time.Millisecond)
						for _, in := range p.instances() {
							_ = in.Instance.Stop(ctx, 0, brig.Crashed)
						}
					}
				})
				if end != "crash" {
					ended.Wait()
				}
				close(killed)
				calls.Wait()
				ended.Wait()
				for name, err := range got {
					switch kind := brig.KindOf(err); {
					case end == "" && kind != brig.Internal:
						t.Errorf("the control: %s says %v", name, err)
					case end == "remove" && kind != brig.NotFound, end != "" && end != "remove" && kind != brig.FailedPrecondition:
						t.Errorf("%s says %s: %v", name, kind, err)
					}
				}
			})
		})
	}
}
