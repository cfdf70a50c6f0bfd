package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// attachUntilEnd attaches to a process from the start of its output. It returns
// the output and the result.
func attachUntilEnd(t *testing.T, ps brig.Processes, pid int) (out string, end *brig.Result, err error) {
	err = ps.Attach(withRole(t, brig.Viewer), pid, 0, func(ev brig.ProcessEvent) error {
		out, end = out+string(ev.Output), ev.End
		return nil
	})
	return out, end, err
}

func TestEndedProcessesAreListedForAWhile(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		ps := h.Processes("box")
		start := func(words ...string) *brig.ProcessInfo {
			p, err := ps.Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: words, Timeout: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if out, end, err := attachUntilEnd(t, ps, start("echo", "hi").PID); err != nil || out != "hi\n" || end.ExitCode != 0 || !end.Done {
			t.Errorf("echo: %q, %+v, %v", out, end, err)
		}
		if _, end, err := attachUntilEnd(t, ps, start("exit", "7").PID); err != nil || end.ExitCode != 7 {
			t.Errorf("exit: %+v, %v", end, err)
		}
		begin := time.Now()
		if _, end, err := attachUntilEnd(t, ps, start("sleep", "1000").PID); err != nil || !end.TimedOut || end.ExitCode != 124 || time.Since(begin) != time.Minute {
			t.Errorf("sleep: %+v after %v, %v", end, time.Since(begin), err)
		}
		p := start("cat")
		if err := ps.Signal(ctx, p.PID, "SIGTERM"); err != nil {
			t.Error(err)
		}
		if _, end, err := attachUntilEnd(t, ps, p.PID); err != nil || end.Signal != "SIGTERM" || end.TimedOut {
			t.Errorf("cat: %+v, %v", end, err)
		}
		if list, err := ps.List(ctx); err != nil || len(list) != 4 || list[3].PID != p.PID || list[3].Result == nil {
			t.Errorf("List = %+v, %v", list, err)
		}
		advance(10 * time.Minute)
		if list, err := ps.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("List after a while = %+v, %v", list, err)
		}
		if _, _, err := attachUntilEnd(t, ps, p.PID); brig.KindOf(err) != brig.NotFound {
			t.Errorf("Attach to one that is forgotten: %v", err)
		}
		// An attached client receives an error when the sandbox ends.
		p = start("sleep", "50")
		attached := make(chan error, 1)
		go func() {
			_, _, err := attachUntilEnd(t, ps, p.PID)
			attached <- err
		}()
		synctest.Wait()
		if err := h.Remove(ctx, "box"); err != nil {
			t.Fatal(err)
		}
		if err := <-attached; brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("Attach when the sandbox ended: %v", err)
		}
	})
}

func TestAttachKeepsLease(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
			ctx := withRole(t, brig.Member)
			if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Minute, FixedLease: fixed}); err != nil {
				t.Fatal(err)
			}
			p, err := h.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "600"}}})
			if err != nil {
				t.Fatal(err)
			}
			_, end, err := attachUntilEnd(t, h.Processes("box"), p.PID)
			if fixed && brig.KindOf(err) != brig.FailedPrecondition || !fixed && (err != nil || !end.Done) {
				t.Errorf("with a lease that is fixed (%v): %+v, %v", fixed, end, err)
			}
		})
	}
}

func TestProcessSpecsAreValidated(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
			t.Fatal(err)
		}
		ps := h.Processes("box")
		for field, spec := range map[string]brig.ProcessSpec{
			"command":    {},
			"terminal":   {Command: brig.Command{Argv: []string{"cat"}}, Terminal: &brig.Terminal{Columns: 80}},
			"tag":        {Command: brig.Command{Argv: []string{"cat"}}, Tag: "a\x00"},
			"timeout_ms": {Command: brig.Command{Argv: []string{"cat"}, Timeout: -1}},
			"user":       {Command: brig.Command{Argv: []string{"cat"}, User: "eve"}},
			"cwd":        {Command: brig.Command{Argv: []string{"cat"}, Dir: "relative"}},
		} {
			if _, err := ps.Start(ctx, spec); brig.AsError(err) == nil || brig.AsError(err).Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		p, err := ps.Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"cat"}}, NoInput: true})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"input":  ps.WriteInput(ctx, p.PID, []byte("x")),
			"resize": ps.Resize(ctx, p.PID, brig.Terminal{Columns: 1, Rows: 1}),
		} {
			if k := brig.KindOf(err); k != brig.FailedPrecondition && k != brig.NotFound {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
