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

// inContext is a house with a sandbox "box", and a function that runs code in
// its default context.
func inContext(t *testing.T, f func(t *testing.T, h *house, p *tricky, run func(brig.Code) *brig.CodeResult)) {
	t.Helper()
	bubble(t, engine.Options{}, func(t *testing.T, h *house, p *tricky) {
		if _, err := h.Create(as(t, brig.Member), brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		f(t, h, p, func(c brig.Code) *brig.CodeResult {
			t.Helper()
			res, err := h.RunCode(as(t, brig.Member), "box", c, nil)
			if err != nil {
				t.Fatalf("RunCode(%q) = %v", c.Source, err)
			}
			return res
		})
	})
}

// main is the value of the last expression as text.
func mainValue(r *brig.CodeResult) string {
	for _, o := range r.Outputs {
		if o.Main {
			return strings.Trim(string(o.Data["text/plain"]), `"`)
		}
	}
	return ""
}

// Code that ends in the moment in which its time does has ended, one way or
// the other: nothing comes later, to it or to what follows.
func TestTheMomentOfTheTimeout(t *testing.T) {
	inContext(t, func(t *testing.T, _ *house, _ *tricky, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		for i := range 200 {
			run(brig.Code{Source: "sleep 1", Timeout: time.Second})
			if i%2 == 0 {
				pass(3 * time.Second)
			}
			if res := run(brig.Code{Source: "get x"}); mainValue(res) != "here" || res.Lost || res.Error != nil {
				t.Fatalf("after %d: %+v with the error %+v", i, res, res.Error)
			}
		}
	})
}

// However much code displays, the value that it ends with comes out, and who
// follows it is told of everything.
func TestTheResultAfterManyDisplays(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, _ *tricky, run func(brig.Code) *brig.CodeResult) {
		many := brig.Code{Source: "set x here\n" + strings.Repeat("show 1\n", brig.MaxOutputs+10) + "get x"}
		told := 0
		if _, err := h.RunCode(as(t, brig.Member), "box", many, func(ev brig.CodeEvent) error {
			if ev.Output != nil {
				told++
			}
			return nil
		}); err != nil || told != brig.MaxOutputs+11 {
			t.Errorf("told of %d outputs, %v", told, err)
		}
		res := run(many)
		if len(res.Outputs) != brig.MaxOutputs || mainValue(res) != "here" {
			t.Errorf("%d outputs, the result is %q", len(res.Outputs), mainValue(res))
		}
		if res = run(brig.Code{Source: fmt.Sprintf("show %d\nshow 1\nget x", brig.MaxOutputSize)}); len(res.Outputs) != 2 || mainValue(res) != "here" {
			t.Errorf("after one that is too large: %d outputs, the result is %q", len(res.Outputs), mainValue(res))
		}
	})
}

// What does not heed an interrupt loses its interpreter, and the next run has
// another.
func TestDeafCode(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, p *tricky, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x here"})
		start := time.Now()
		res := run(brig.Code{Source: "echo before\ndeaf 3600", Timeout: time.Second})
		if took := time.Since(start); took < time.Second || took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if !res.Lost || !res.TimedOut || res.Error == nil || res.Error.Name != "InterpreterDied" || !strings.Contains(res.Error.Value, "variables are gone") || string(res.Stdout.Head) != "before\n" {
			t.Errorf("%+v with the error %+v", res, res.Error)
		}
		list, err := h.Contexts(as(t, brig.Viewer), "box")
		if err != nil || len(list) != 1 || list[0].State != brig.ContextDead {
			t.Errorf("Contexts = %+v, %v", list, err)
		}
		if res := run(brig.Code{Source: "get x"}); mainValue(res) != "" || res.Count != 1 || res.Lost {
			t.Errorf("afterwards: %+v with the error %+v", res, res.Error)
		}
		if err := h.Remove(as(t, brig.Member), "box"); err != nil {
			t.Fatal(err)
		}
		h.Close()
		p.nothingLeft(t)
	})
}

// Runs in one context come one after the other, in the order in which they
// came, and no more of them wait than may.
func TestTheLine(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, _ *tricky, run func(brig.Code) *brig.CodeResult) {
		run(brig.Code{Source: "set x 1"})
		var wg sync.WaitGroup
		var mu sync.Mutex // guards the fields below
		var order []int
		refused := 0
		for i := range 70 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(as(t, brig.Member))
				defer cancel()
				if i == 3 { // goes away while it waits
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
					if refused++; i < 65 {
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
		if fmt.Sprint(order) != fmt.Sprint(want) || refused != 5 {
			t.Errorf("%d were refused, and the others came in the order %v", refused, order)
		}
	})
}

// A context takes as many contexts as it may, and a context that is removed
// makes room.
func TestContextsAreBounded(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, _ *tricky, _ func(brig.Code) *brig.CodeResult) {
		ctx := as(t, brig.Member)
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

// A context that cannot start is not there.
func TestContextThatDoesNotStart(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, p *tricky, run func(brig.Code) *brig.CodeResult) {
		p.play(tricks{start: func(*trickyInstance) error {
			return brig.InvalidField("command", "no program").WithHint("another")
		}})
		_, err := h.CreateContext(as(t, brig.Member), "box", brig.ContextSpec{})
		if e := brig.AsError(err); e == nil || e.Field != "language" {
			t.Errorf("in an image without Python: %v", err)
		}
		p.play(tricks{start: func(*trickyInstance) error { return errors.New("no") }})
		if _, err = h.CreateContext(as(t, brig.Member), "box", brig.ContextSpec{}); brig.KindOf(err) != brig.Internal {
			t.Errorf("CreateContext = %v", err)
		}
		if list, err := h.Contexts(as(t, brig.Member), "box"); err != nil || len(list) != 0 {
			t.Errorf("Contexts = %+v, %v", list, err)
		}
		p.play(tricks{})
		run(brig.Code{Source: "echo hi"})
	})
}

// A new engine finds the contexts with their variables. What ran in one is
// interrupted, for nobody waits for it; what does not heed that is ended.
func TestContextsOutliveTheServer(t *testing.T) {
	inContext(t, func(t *testing.T, h *house, p *tricky, run func(brig.Code) *brig.CodeResult) {
		ctx := as(t, brig.Member)
		run(brig.Code{Source: "set x kept"})
		busy, err := h.CreateContext(ctx, "box", brig.ContextSpec{Env: map[string]string{"E": "env"}})
		if err != nil {
			t.Fatal(err)
		}
		deaf, err := h.CreateContext(ctx, "box", brig.ContextSpec{Language: brig.Bash})
		if err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(ctx)
		defer leave()
		for id, code := range map[string]string{busy.ID: "set x busy\nsleep 100", deaf.ID: "set x deaf\ndeaf 5000"} {
			go func() { _, _ = h.RunCode(gone, "box", brig.Code{Context: id, Source: code, Timeout: time.Hour}, nil) }()
		}
		pass(time.Second)

		defer p.sever()()
		next := engine.New(t.Context(), engine.Options{Store: h.store, Provider: p.Provider, Images: images{}, Bounds: brig.DefaultBounds()})
		defer next.Close()
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := next.Contexts(ctx, "box")
		if err != nil || len(list) != 3 {
			t.Fatalf("Contexts = %+v, %v", list, err)
		}
		pass(10 * time.Second)
		for id, want := range map[string]string{"default-python": "kept", busy.ID: "busy", deaf.ID: ""} {
			res, err := next.RunCode(ctx, "box", brig.Code{Context: id, Source: "get x\nenv E"}, nil)
			if err != nil || mainValue(res) != want {
				t.Errorf("in %s: %+v, %v; want x = %q", id, res, err, want)
			}
		}
	})
}

// A context can be restarted, removed and used from the first moment of a
// server that has found it, while that server still finds out whether its
// interpreter answers.
func TestFoundContextsAreAtOnceThere(t *testing.T) {
	ctx := as(t, brig.Member)
	for i := range 60 {
		h := newHouse(t, nil)
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
