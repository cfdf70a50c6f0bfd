package engine_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A command that has outlived its caller or its server ends with its sandbox as an attached
// one: the record has the reason, and the output that the server has seen.
func TestDetachedExecEndsWithSandbox(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for reason, end := range map[brig.ExitReason]func(ctx context.Context, h *fixture) error{
			brig.Killed:  func(ctx context.Context, h *fixture) error { _, err := h.Kill(ctx, "box"); return err },
			brig.Stopped: func(ctx context.Context, h *fixture) error { _, err := h.Stop(ctx, "box", 0); return err },
			brig.OutOfMem: func(ctx context.Context, h *fixture) error {
				_, _ = h.Exec(ctx, "box", brig.Command{Argv: []string{"oom"}}, brig.IO{}) // its result is another test's
				return nil
			},
		} {
			h := newFixture(t, nil)
			ctx := withRole(t, brig.Member)
			h.box(t, ctx, brig.Spec{Name: "box", TTL: time.Hour})
			gone, leave := context.WithCancel(ctx)
			stdin, input := io.Pipe()
			var id string
			go func() {
				_, _ = io.WriteString(input, "before\n")
				leave()
				input.Close() // the fake command goes on only in its record
			}()
			if _, err := h.Exec(gone, "box", brig.Command{Argv: []string{"cat"}, Survive: true}, brig.IO{Stdin: stdin, Started: func(x string) { id = x }}); err == nil {
				t.Fatal("the caller has left and is answered")
			}
			if x, err := h.GetExec(ctx, "box", id); err != nil || x.Done || x.SandboxEnded != "" {
				t.Errorf("before the end: %+v, %v", x, err)
			}
			if restart {
				h.Close()
				h.Engine = engine.New(t.Context(), h.Options)
				if err := h.Recover(withRole(t, brig.Operator)); err != nil {
					t.Fatal(err)
				}
			}
			if err := end(ctx, h); err != nil {
				t.Fatal(err)
			}
			for until := time.Now().Add(30 * time.Second); h.record(t, "box").State != brig.Ended && time.Now().Before(until); {
				time.Sleep(time.Millisecond) // the engine records the end of an instance later
			}
			x, err := h.GetExec(ctx, "box", id)
			if err != nil || !x.Done || x.SandboxEnded != reason || x.ExitCode != 137 || x.OOMKilled != (reason == brig.OutOfMem) || string(x.Stdout.Head) != "before\n" {
				t.Errorf("%s, restart %v: %+v, %v", reason, restart, x, err)
			}
		}
	}
}
