package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// codeCases are the cases about contexts and code.
type codeCases struct{ Harness }

// code returns Python source that has the effect of lines in the language of
// the fake provider's interpreter: set NAME WORD, get NAME, echo WORD, stderr
// WORD, env NAME, spew N, raise NAME WORD, sleep SECONDS, deaf SECONDS, die.
func (h codeCases) code(lines ...string) string {
	if !h.Real {
		return strings.Join(lines, "\n")
	}
	var out []string
	for _, line := range lines {
		w := append(strings.Fields(line), "", "")
		out = append(out, map[string]string{
			"set":    fmt.Sprintf("%s = %q", w[1], w[2]),
			"get":    fmt.Sprintf("globals().get(%q, '')", w[1]),
			"echo":   fmt.Sprintf("print(%q)", w[1]),
			"stderr": fmt.Sprintf("import sys; print(%q, file=sys.stderr)", w[1]),
			"env":    fmt.Sprintf("import os; print(os.environ.get(%q, ''))", w[1]),
			"spew":   fmt.Sprintf("print('x' * %s, end='')", w[1]),
			"raise":  fmt.Sprintf("raise %s(%q)", w[1], w[2]),
			"sleep":  fmt.Sprintf("import time; time.sleep(%s)", w[1]),
			"deaf":   fmt.Sprintf("import time\nwhile True:\n    try: time.sleep(%s)\n    except BaseException: pass", w[1]),
			"die":    "import os; os._exit(1)",
		}[w[0]])
	}
	return strings.Join(out, "\n")
}

// runCode runs lines to completion in a context, or in the default context.
func (h codeCases) runCode(t *testing.T, box, contextID string, lines ...string) *brig.CodeResult {
	t.Helper()
	res, err := h.Service.RunCode(h.Context(t), box, brig.Code{Context: contextID, Source: h.code(lines...)}, nil)
	if err != nil {
		t.Fatalf("RunCode(%q): %v", lines, err)
	}
	return res
}

// value returns the value of the last expression as text without quotes.
func value(r *brig.CodeResult) string {
	for _, o := range r.Outputs {
		if o.Main {
			return strings.Trim(string(o.Data["text/plain"]), `'"`)
		}
	}
	return "(none)"
}

// wantValue checks the value of a variable in a context.
func (h codeCases) wantValue(t *testing.T, box, contextID, name, want string) {
	t.Helper()
	if res := h.runCode(t, box, contextID, "get "+name); value(res) != want || res.Error != nil {
		t.Errorf("%s in %q is %q (error %+v), want %q", name, contextID, value(res), res.Error, want)
	}
}

func (h codeCases) newContext(t *testing.T, box string, spec brig.ContextSpec) *brig.CodeContext {
	t.Helper()
	c, err := h.Service.CreateContext(h.Context(t), box, spec)
	if err != nil {
		t.Fatalf("CreateContext: %v", err)
	}
	return c
}

// startCode runs lines in the background and returns when they have started. The
// returned function waits for their end.
func (h codeCases) startCode(ctx context.Context, t *testing.T, box string, code brig.Code) func() (*brig.CodeResult, error) {
	t.Helper()
	started, done := make(chan struct{}), make(chan struct{})
	var res *brig.CodeResult
	var err error
	go func() {
		defer close(done)
		res, err = h.Service.RunCode(ctx, box, code, func(e brig.CodeEvent) error {
			if e.Started != nil {
				close(started)
			}
			return nil
		})
	}()
	select {
	case <-started:
	case <-done:
		t.Fatalf("it ended before it started: %+v, %v", res, err)
	case <-time.After(timeout):
		t.Fatalf("it did not start within %v", timeout)
	}
	return func() (*brig.CodeResult, error) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(timeout):
			t.Fatalf("the code has not ended after %v", timeout)
		}
		return res, err
	}
}

func (h codeCases) testContexts(t *testing.T) {
	box := h.sandbox(t, brig.Spec{Env: map[string]string{"A": "sandbox", "B": "sandbox"}, Limits: brig.Limits{Output: limit}}).Spec.Name
	t.Run("life", func(t *testing.T) { h.testContextLife(t, box) })
	t.Run("variables", func(t *testing.T) { h.testVariables(t, box) })
	t.Run("results", func(t *testing.T) { h.testCodeResults(t, box) })
	t.Run("events", func(t *testing.T) { h.testCodeEvents(t, box) })
	t.Run("interrupts", func(t *testing.T) { h.testInterrupts(t, box) })
	t.Run("the interpreter ends", func(t *testing.T) { h.testInterpreterEnds(t, box) })
	t.Run("restart", func(t *testing.T) { h.testRestart(t, box) })
	t.Run("the line", func(t *testing.T) { h.testRunOrder(t, box) })
	t.Run("refusals", func(t *testing.T) { h.testBadCode(t, box) })
	t.Run("no sandbox", h.testCodeInEnded)
	t.Run("the pool", func(t *testing.T) {
		if _, err := h.Service.Pool(h.Context(t)); err != nil {
			t.Errorf("Pool: %v", err)
		}
	})
}

func (h codeCases) testContextLife(t *testing.T, box string) {
	ctx := h.Context(t)
	if list, err := h.Service.Contexts(ctx, box); err != nil || len(list) != 0 {
		t.Errorf("a new sandbox has the contexts %+v, %v", list, err)
	}
	h.runCode(t, box, "", "set x default")
	spec := brig.ContextSpec{Language: brig.Python, Dir: "/tmp", Env: map[string]string{"E": "env"}}
	c := h.newContext(t, box, spec)
	if c.ID == "" || c.Sandbox == "" || c.State != brig.ContextIdle || c.Count != 0 || c.Created.IsZero() || c.Flavor == "" || c.Version == "" ||
		c.Spec.Language != spec.Language || c.Spec.Dir != spec.Dir || c.Spec.Env["E"] != "env" {
		t.Errorf("CreateContext = %+v", c)
	}
	if plain := h.newContext(t, box, brig.ContextSpec{}); plain.Spec.Language != brig.Python || plain.Spec.Dir != "/workspace" {
		t.Errorf("one of which nothing is said is %+v", plain)
	} else if err := h.Service.RemoveContext(ctx, box, plain.ID); err != nil {
		t.Error(err)
	}
	h.runCode(t, box, c.ID, "echo 1")
	list, err := h.Service.Contexts(ctx, box)
	if err != nil || len(list) != 2 || list[1].ID != c.ID || list[1].Count != 1 || list[0].Count != 1 || list[0].Spec.Language != brig.Python {
		t.Fatalf("Contexts = %+v, %v; want the default one and then the new one, of one run each", list, err)
	}
	// The ID of the default context also refers to the sandbox's own context.
	h.wantValue(t, box, list[0].ID, "x", "default")
	res, err := h.Service.RunCode(ctx, box, brig.Code{Language: brig.Python, Source: h.code("get x")}, nil)
	if err != nil || value(res) != "default" || res.Context != list[0].ID || res.Count != 3 {
		t.Errorf("in the default context of the language: %+v, %v", res, err)
	}

	wait := h.startCode(ctx, t, box, brig.Code{Context: c.ID, Source: h.code("sleep 300")})
	if list, err := h.Service.Contexts(ctx, box); err != nil || len(list) != 2 || list[1].State != brig.ContextBusy || list[0].State != brig.ContextIdle {
		t.Errorf("while one runs: %+v, %v", list, err)
	}
	if err := h.Service.RemoveContext(ctx, box, c.ID); err != nil {
		t.Fatal(err)
	}
	_, err = wait()
	wantKind(t, "what ran in a context that was removed", err, brig.FailedPrecondition)
	if list, err := h.Service.Contexts(ctx, box); err != nil || len(list) != 1 {
		t.Errorf("after one was removed: %+v, %v", list, err)
	}
	for _, id := range []string{c.ID, "cxnone", "../x", "default-cobol"} {
		h.wantMissingContext(t, box, id)
	}
	h.wantValue(t, box, "", "x", "default")
}

// wantMissingContext checks that every operation returns NotFound for a context.
func (h codeCases) wantMissingContext(t *testing.T, box, id string) {
	t.Helper()
	ctx := h.Context(t)
	_, err := h.Service.RunCode(ctx, box, brig.Code{Context: id, Source: "1"}, nil)
	wantKind(t, "RunCode in none", err, brig.NotFound)
	_, err = h.Service.RunCode(ctx, box, brig.Code{Context: id, Source: "1"}, func(brig.CodeEvent) error { return nil })
	wantKind(t, "RunCode in none", err, brig.NotFound)
	wantKind(t, "InterruptContext of none", h.Service.InterruptContext(ctx, box, id), brig.NotFound)
	_, err = h.Service.RestartContext(ctx, box, id)
	wantKind(t, "RestartContext of none", err, brig.NotFound)
	wantKind(t, "RemoveContext of none", h.Service.RemoveContext(ctx, box, id), brig.NotFound)
}

func (h codeCases) testVariables(t *testing.T, box string) {
	a, b := h.newContext(t, box, brig.ContextSpec{}), h.newContext(t, box, brig.ContextSpec{Env: map[string]string{"B": "context", "C": "context"}})
	h.runCode(t, box, a.ID, "set x a")
	h.wantValue(t, box, b.ID, "x", "")
	h.runCode(t, box, b.ID, "set x b")
	for i := range 3 { // neither context sees the other's value
		h.wantValue(t, box, a.ID, "x", "a")
		h.wantValue(t, box, b.ID, "x", "b")
		if list, err := h.Service.Contexts(h.Context(t), box); err != nil || list[len(list)-1].Count != i+3 {
			t.Errorf("Contexts = %+v, %v; want %d runs in the last", list, err, i+3)
		}
	}
	t.Run("at once", func(t *testing.T) {
		var wg sync.WaitGroup
		start := time.Now()
		for _, id := range []string{a.ID, b.ID} {
			wg.Go(func() {
				res, err := h.Service.RunCode(h.Context(t), box, brig.Code{Context: id, Source: h.code("echo "+id, "sleep 1", "get x")}, nil)
				if err != nil || string(res.Stdout.Head) != id+"\n" {
					t.Errorf("in %s: %+v, %v", id, res, err)
				}
			})
		}
		if wg.Wait(); !h.Real && time.Since(start) > 1900*time.Millisecond {
			t.Errorf("two contexts of a second took %v", time.Since(start))
		}
	})
	t.Run("environment", func(t *testing.T) {
		for variable, want := range map[string]string{"A": "sandbox", "B": "context", "C": "run", "D": "run"} {
			env := map[string]string{"C": "run", "D": "run"}
			res, err := h.Service.RunCode(h.Context(t), box, brig.Code{Context: b.ID, Source: h.code("env " + variable), Env: env}, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantOutput(t, variable, res.Stdout, want+"\n")
		}
		for variable, want := range map[string]string{"C": "context", "D": ""} { // D was set only for that run
			wantOutput(t, variable, h.runCode(t, box, b.ID, "env "+variable).Stdout, want+"\n")
		}
	})
	for _, c := range []*brig.CodeContext{a, b} {
		if err := h.Service.RemoveContext(h.Context(t), box, c.ID); err != nil {
			t.Error(err)
		}
	}
}

func (h codeCases) testCodeResults(t *testing.T, box string) {
	res := h.runCode(t, box, "", "set v 1", "echo out", "stderr err", "get v")
	wantOutput(t, "stdout", res.Stdout, "out\n")
	wantOutput(t, "stderr", res.Stderr, "err\n")
	if value(res) != "1" || len(res.Outputs) != 1 || res.Error != nil || res.TimedOut || res.Interrupted || res.Lost ||
		res.Context == "" || res.Count == 0 || res.Started.IsZero() || res.Duration <= 0 {
		t.Errorf("RunCode = %+v", res)
	}
	if next := h.runCode(t, box, "", "set v 2"); next.Count != res.Count+1 || len(next.Outputs) != 0 {
		t.Errorf("the next is %+v", next)
	}
	res = h.runCode(t, box, "", "echo before", "raise ValueError bad", "echo after")
	wantOutput(t, "stdout", res.Stdout, "before\n")
	if e := res.Error; e == nil || e.Name != "ValueError" || e.Value != "bad" || !strings.Contains(e.Traceback, "ValueError") || res.Lost || res.Interrupted {
		t.Errorf("after an exception: %+v with the error %+v", res, e)
	}
	h.wantValue(t, box, "", "v", "2")
	o := h.runCode(t, box, "", "spew 100000").Stdout
	if !o.Truncated() || o.Total != 100_000 || string(o.Head)+string(o.Tail) != strings.Repeat("x", limit) {
		t.Errorf("of %d bytes, head %d and tail %d are kept, want %d of 100000", o.Total, len(o.Head), len(o.Tail), limit)
	}
}

// testCodeEvents checks that a caller receives events in order before the run has
// ended, and that the result contains them.
func (h codeCases) testCodeEvents(t *testing.T, box string) {
	run := func(t *testing.T, lines ...string) (string, *brig.CodeResult) {
		t.Helper()
		var events []string
		res, err := h.Service.RunCode(h.Context(t), box, brig.Code{Source: h.code(lines...)}, func(e brig.CodeEvent) error {
			switch last := len(events) - 1; {
			case e.Started != nil:
				events = append(events, "started")
				if e.Started.Context == "" || e.Started.Count == 0 {
					t.Errorf("started event = %+v", e.Started)
				}
			case e.Stdout != nil && last >= 0 && strings.HasPrefix(events[last], "stdout "):
				events[last] += string(e.Stdout)
			case e.Stdout != nil:
				events = append(events, "stdout "+string(e.Stdout))
			case e.Stderr != nil:
				events = append(events, "stderr "+string(e.Stderr))
			case e.Output != nil:
				events = append(events, "output "+strings.Trim(string(e.Output.Data["text/plain"]), `'"`))
			case e.Error != nil:
				events = append(events, "error "+e.Error.Name+" "+e.Error.Value)
			default:
				t.Error("an event of nothing")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(events, "|"), res
	}
	if got, res := run(t, "set v 1", "echo a", "echo b", "get v"); got != "started|stdout a\nb\n|output 1" || string(res.Stdout.Head) != "a\nb\n" || value(res) != "1" {
		t.Errorf("got events %q and result %+v", got, res)
	}
	if got, res := run(t, "echo a", "raise ValueError bad"); got != "started|stdout a\n|error ValueError bad" || res.Error == nil {
		t.Errorf("got events %q and result %+v", got, res)
	}
	if got, _ := run(t, "stderr oh"); got != "started|stderr oh\n" {
		t.Errorf("got events %q", got)
	}
	if got, _ := run(t, "spew 200000"); got != "started|stdout "+strings.Repeat("x", 200_000) {
		t.Errorf("got %d bytes %.30q, want 200000", len(got), got)
	}
}

func (h codeCases) testInterrupts(t *testing.T, box string) {
	ctx := h.Context(t)
	h.runCode(t, box, "", "set x here")
	list, err := h.Service.Contexts(ctx, box)
	if err != nil || len(list) == 0 {
		t.Fatalf("Contexts = %+v, %v", list, err)
	}
	id := list[0].ID
	long := brig.Code{Source: h.code("sleep 300")}
	t.Run("asked for", func(t *testing.T) {
		wait := h.startCode(ctx, t, box, long)
		if err := h.Service.InterruptContext(ctx, box, id); err != nil {
			t.Fatal(err)
		}
		if res, err := wait(); err != nil || res.Error == nil || res.Error.Name != "KeyboardInterrupt" || res.TimedOut || res.Lost {
			t.Errorf("RunCode = %+v, %v", res, err)
		}
		if err := h.Service.InterruptContext(ctx, box, id); err != nil {
			t.Errorf("of nothing: %v", err)
		}
		h.wantValue(t, box, "", "x", "here")
	})
	t.Run("time runs out", func(t *testing.T) {
		code := long
		code.Timeout = 300 * time.Millisecond
		start := time.Now()
		res, err := h.Service.RunCode(ctx, box, code, nil)
		if err != nil || !res.TimedOut || res.Interrupted || res.Lost || res.Error == nil || res.Error.Name != "KeyboardInterrupt" {
			t.Errorf("RunCode = %+v, %v", res, err)
		}
		if took := time.Since(start); took < code.Timeout || took > timeout {
			t.Errorf("it took %v", took)
		}
		h.wantValue(t, box, "", "x", "here")
	})
	t.Run("the caller goes away", func(t *testing.T) {
		callCtx, leave := context.WithCancel(ctx)
		wait := h.startCode(callCtx, t, box, long)
		leave()
		_, err := wait()
		wantKind(t, "RunCode whose caller went away", err, brig.Canceled)
		h.wantValue(t, box, "", "x", "here")
	})
	t.Run("the caller has heard enough", func(t *testing.T) {
		errStop, count := errors.New("enough"), 0
		start := time.Now()
		_, _ = h.Service.RunCode(ctx, box, brig.Code{Source: h.code("echo a", "sleep 300")}, func(e brig.CodeEvent) error {
			if e.Stdout != nil {
				count++
				return errStop
			}
			return nil
		})
		if took := time.Since(start); took > timeout || count != 1 {
			t.Errorf("took %v and received %d events, want 1 event", took, count)
		}
		h.wantValue(t, box, "", "x", "here")
	})
}

func (h codeCases) testInterpreterEnds(t *testing.T, box string) {
	ctx := h.Context(t)
	for what, c := range map[string]struct {
		code     brig.Code
		timedOut bool
	}{
		"by itself":                         {brig.Code{Source: h.code("echo before", "die")}, false},
		"for it does not heed an interrupt": {brig.Code{Source: h.code("echo before", "deaf 300"), Timeout: 300 * time.Millisecond}, true},
	} {
		t.Run(what, func(t *testing.T) {
			cx := h.newContext(t, box, brig.ContextSpec{})
			h.runCode(t, box, cx.ID, "set x gone")
			c.code.Context = cx.ID
			res, err := h.Service.RunCode(ctx, box, c.code, nil)
			if err != nil || !res.Lost || res.TimedOut != c.timedOut || res.Error == nil || res.Error.Name != "InterpreterDied" || string(res.Stdout.Head) != "before\n" {
				t.Fatalf("RunCode = %+v, %v", res, err)
			}
			list, err := h.Service.Contexts(ctx, box)
			i := slices.IndexFunc(list, func(o *brig.CodeContext) bool { return o.ID == cx.ID })
			if err != nil || i < 0 || list[i].State != brig.ContextDead {
				t.Errorf("Contexts = %+v, %v; want it to be dead", list, err)
			}
			if err := h.Service.InterruptContext(ctx, box, cx.ID); err != nil {
				t.Errorf("InterruptContext of a dead one: %v", err)
			}
			h.wantValue(t, box, cx.ID, "x", "")
			if err := h.Service.RemoveContext(ctx, box, cx.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

func (h codeCases) testRestart(t *testing.T, box string) {
	ctx := h.Context(t)
	c := h.newContext(t, box, brig.ContextSpec{Env: map[string]string{"E": "env"}})
	h.runCode(t, box, c.ID, "set x gone")
	running := h.startCode(ctx, t, box, brig.Code{Context: c.ID, Source: h.code("sleep 300")})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := h.Service.RunCode(ctx, box, brig.Code{Context: c.ID, Source: h.code("echo late")}, nil)
			wantKind(t, "what waited", err, brig.FailedPrecondition)
		})
	}
	time.Sleep(300 * time.Millisecond) // until the runs are queued
	again, err := h.Service.RestartContext(ctx, box, c.ID)
	if err != nil || again.ID != c.ID || again.Count != 0 || again.Spec.Env["E"] != "env" || again.State == brig.ContextDead {
		t.Fatalf("RestartContext = %+v, %v", again, err)
	}
	_, err = running()
	wantKind(t, "what ran", err, brig.FailedPrecondition)
	wg.Wait()
	if res := h.runCode(t, box, c.ID, "env E", "get x"); value(res) != "" || res.Count != 1 || string(res.Stdout.Head) != "env\n" {
		t.Errorf("afterwards: %+v", res)
	}
	if _, err := h.Service.RestartContext(ctx, box, c.ID); err != nil {
		t.Errorf("of one that is idle: %v", err)
	}
	if err := h.Service.RemoveContext(ctx, box, c.ID); err != nil {
		t.Error(err)
	}
}

// testRunOrder checks that runs in one context execute in the order of their calls.
func (h codeCases) testRunOrder(t *testing.T, box string) {
	c := h.newContext(t, box, brig.ContextSpec{})
	first := h.startCode(h.Context(t), t, box, brig.Code{Context: c.ID, Source: h.code("sleep 2")})
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			res, err := h.Service.RunCode(h.Context(t), box, brig.Code{Context: c.ID, Source: h.code("echo 1")}, nil)
			if err != nil || res.Count != i+2 || res.Queued <= 0 {
				t.Errorf("the one that came as number %d: %+v, %v", i+2, res, err)
			}
		})
		time.Sleep(200 * time.Millisecond) // until the run is queued
	}
	wg.Wait()
	if res, err := first(); err != nil || res.Count != 1 {
		t.Errorf("the first: %+v, %v", res, err)
	}
	if err := h.Service.RemoveContext(h.Context(t), box, c.ID); err != nil {
		t.Error(err)
	}
}

func (h codeCases) testBadCode(t *testing.T, box string) {
	ctx := h.Context(t)
	list, err := h.Service.Contexts(ctx, box)
	if err != nil || len(list) == 0 {
		t.Fatalf("Contexts = %+v, %v", list, err)
	}
	for what, c := range map[string]struct {
		code  brig.Code
		field string
	}{
		"no code":           {brig.Code{}, "code"},
		"too much code":     {brig.Code{Source: strings.Repeat("#", 16*brig.MiB+1)}, "code"},
		"context, language": {brig.Code{Context: list[0].ID, Language: brig.Python, Source: "1"}, "language"},
		"no language":       {brig.Code{Language: "not a language", Source: "1"}, "language"},
		"negative timeout":  {brig.Code{Source: "1", Timeout: -time.Second}, "timeout_ms"},
		"too long timeout":  {brig.Code{Source: "1", Timeout: 1e6 * time.Hour}, "timeout_ms"},
		"bad variable":      {brig.Code{Source: "1", Env: map[string]string{"A=B": "c"}}, "env"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := h.Service.RunCode(ctx, box, c.code, nil)
			wantField(t, "RunCode", err, c.field)
			_, err = h.Service.RunCode(ctx, box, c.code, func(e brig.CodeEvent) error { t.Errorf("unexpected event %+v", e); return nil })
			wantField(t, "RunCode with events", err, c.field)
		})
	}
	for what, c := range map[string]struct {
		spec  brig.ContextSpec
		field string
	}{
		"no language":  {brig.ContextSpec{Language: "not a language"}, "language"},
		"relative dir": {brig.ContextSpec{Dir: "tmp"}, "cwd"},
		"bad variable": {brig.ContextSpec{Env: map[string]string{"A=B": "c"}}, "env"},
	} {
		t.Run("context with "+what, func(t *testing.T) {
			_, err := h.Service.CreateContext(ctx, box, c.spec)
			wantField(t, "CreateContext", err, c.field)
		})
	}
	if now, err := h.Service.Contexts(ctx, box); err != nil || len(now) != len(list) {
		t.Errorf("after all refusals there are %d contexts, %v; want %d", len(now), err, len(list))
	}
}

func (h codeCases) testCodeInEnded(t *testing.T) {
	ctx := h.Context(t)
	s := h.sandbox(t, brig.Spec{})
	h.runCode(t, s.Spec.Name, "", "echo 1")
	running := h.startCode(ctx, t, s.Spec.Name, brig.Code{Source: h.code("sleep 300")})
	if _, err := h.Service.Kill(ctx, s.Spec.Name); err != nil {
		t.Fatal(err)
	}
	res, err := running()
	if err != nil || !res.Lost || res.SandboxEnded != brig.Killed || res.Error == nil {
		t.Errorf("what ran when it ended: %+v, %v", res, err)
	}
	_, err = h.Service.RunCode(ctx, s.Spec.Name, brig.Code{Source: "1"}, nil)
	wantKind(t, "RunCode", err, brig.FailedPrecondition)
	_, err = h.Service.CreateContext(ctx, s.Spec.Name, brig.ContextSpec{})
	wantKind(t, "CreateContext", err, brig.FailedPrecondition)
	wantKind(t, "InterruptContext", h.Service.InterruptContext(ctx, s.Spec.Name, "default-python"), brig.FailedPrecondition)
	_, err = h.Service.RestartContext(ctx, s.Spec.Name, "default-python")
	wantKind(t, "RestartContext", err, brig.FailedPrecondition)
	wantKind(t, "RemoveContext", h.Service.RemoveContext(ctx, s.Spec.Name, "default-python"), brig.FailedPrecondition)
	if list, err := h.Service.Contexts(ctx, s.Spec.Name); err != nil || len(list) != 0 {
		t.Errorf("Contexts = %+v, %v; its interpreters ended with it", list, err)
	}
}
