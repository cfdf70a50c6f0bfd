package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// blockedWriter is a writer that blocks until the channel is closed.
type blockedWriter chan struct{}

func (s blockedWriter) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

// streamKinds are the calls that stream output to a caller. The function run starts
// stream i, whose program writes n bytes, and returns when the caller has received
// the output or an error.
var streamKinds = []struct {
	name string
	op   brig.Op // the operation whose outcome is recorded
	run  func(ctx context.Context, h *fixture, i, n int, read blockedWriter) error
	over func(ctx context.Context, h *fixture, i int) bool
}{
	{"a one-shot", brig.OpRun, func(ctx context.Context, h *fixture, i, n int, read blockedWriter) error {
		_, err := h.Run(ctx, brig.Program{SandboxName: fmt.Sprint("run-", i), Language: brig.Python, Code: fmt.Sprint("spew ", n)}, brig.IO{Stdout: read})
		return err
	}, func(ctx context.Context, h *fixture, i int) bool {
		o, err := h.GetRun(ctx, fmt.Sprint("run-", i))
		return err == nil && o.Done
	}},
	{"code in a context", brig.OpRunCode, func(ctx context.Context, h *fixture, i, n int, read blockedWriter) error {
		_, err := h.RunCode(ctx, fmt.Sprint("box-", i), brig.Code{Source: fmt.Sprint("spew ", n)}, func(ev brig.CodeEvent) error {
			_, err := read.Write(ev.Stdout)
			return err
		})
		return err
	}, func(ctx context.Context, h *fixture, i int) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := h.RunCode(ctx, fmt.Sprint("box-", i), brig.Code{Source: "set x 1"}, nil)
		return err == nil // the context is free for the next run
	}},
	{"a process with somebody attached", brig.OpStart, func(ctx context.Context, h *fixture, i, n int, read blockedWriter) error {
		ps := h.Processes(fmt.Sprint("box-", i))
		p, err := ps.Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"spew", fmt.Sprint(n)}}})
		if err != nil {
			return err
		}
		return ps.Attach(ctx, p.PID, 0, func(ev brig.ProcessEvent) error {
			_, err := read.Write(ev.Output)
			return err
		})
	}, func(ctx context.Context, h *fixture, i int) bool {
		list, err := h.Processes(fmt.Sprint("box-", i)).List(ctx)
		return err == nil && len(list) == 1 && list[0].Result != nil
	}},
}

// The engine records the end of a program even if its caller does not read the
// output. The buffered output of each stream and of all streams is bounded. The
// control has no relay.
func TestUnreadStreamsAreBounded(t *testing.T) {
	const streams, output, budget = 12, 500_000, 1 << 20
	for _, kind := range streamKinds {
		for _, c := range []struct {
			name      string
			unrelayed bool
			ended     int // number of streams whose end is recorded while no caller reads
		}{{"", false, streams}, {", the control", true, 0}} {
			t.Run(kind.name+c.name, func(t *testing.T) {
				withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
					h.RelayBudget(budget, 2*budget)
					if c.unrelayed {
						h.DisableRelays()
					}
					ctx := withRole(t, brig.Member)
					for i := range streams {
						if kind.op == brig.OpRun {
							break
						}
						if _, err := h.Create(ctx, brig.Spec{Name: fmt.Sprint("box-", i), TTL: time.Hour}); err != nil {
							t.Fatal(err)
						}
					}
					read := make(blockedWriter)
					var callers sync.WaitGroup
					errs := make([]error, streams)
					for i := range streams {
						callers.Go(func() { errs[i] = kind.run(ctx, h, i, output, read) })
					}
					advance(time.Minute)
					if held := h.Relayed(); held > budget+streams*(64<<10) {
						t.Errorf("%d bytes are kept for callers who do not read", held)
					}
					ended := 0
					for i := range streams {
						if kind.over(ctx, h, i) {
							ended++
						}
					}
					if ended != c.ended {
						t.Errorf("%d of %d are known to have ended, want %d", ended, streams, c.ended)
					}
					if n := countOutcomes(t, h, kind.op); !c.unrelayed && n < streams {
						t.Errorf("%d of %d outcomes are in the audit log", n, streams)
					}
					close(read)
					callers.Wait()
					for i, err := range errs {
						// The output may exceed the budget. A caller that receives
						// this error can read the recorded outcome.
						if err != nil && brig.KindOf(err) != brig.RateLimited {
							t.Errorf("stream %d: %v", i, err)
						}
					}
					for i := range streams {
						if kind.op != brig.OpRun {
							if err := h.Remove(ctx, fmt.Sprint("box-", i)); err != nil {
								t.Error(err)
							}
						}
					}
					advance(time.Second)
					if held := h.Relayed(); held != 0 {
						t.Errorf("%d bytes are kept in the end", held)
					}
				})
			})
		}
	}
}

// countOutcomes counts the recorded outcomes of an operation.
func countOutcomes(t *testing.T, h *fixture, op brig.Op) (n int) {
	t.Helper()
	events, err := h.store.Events(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Op == op.Name && e.Phase == brig.Finish {
			n++
		}
	}
	return n
}

// A slow caller receives all output that fits in the budget, even long after the
// end of the program.
func TestSlowReadersReceiveAllOutput(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		got := 0
		res, err := h.RunCode(ctx, "box", brig.Code{Source: "spew 500000"}, func(ev brig.CodeEvent) error {
			time.Sleep(10 * time.Second)
			got += len(ev.Stdout)
			return nil
		})
		if err != nil || got != 500_000 || res.Stdout.Total != 500_000 {
			t.Errorf("%d bytes came: %+v, %v", got, res, err)
		}
		if res.Duration > 40*time.Second {
			t.Errorf("it took %v: its reader's time is not its own", res.Duration)
		}
	})
}
