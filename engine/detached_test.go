package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A command that outlived its caller or its server ends with its sandbox. Its record has the
// reason and the output that the server received.
func TestDetachedExecEndsWithSandbox(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for reason, end := range map[brig.ExitReason]func(ctx context.Context, h *fixture) error{
			brig.Killed:  func(ctx context.Context, h *fixture) error { _, err := h.Kill(ctx, "box"); return err },
			brig.Stopped: func(ctx context.Context, h *fixture) error { _, err := h.Stop(ctx, "box", 0); return err },
			brig.OutOfMem: func(ctx context.Context, h *fixture) error {
				_, _ = h.Exec(ctx, "box", brig.Command{Argv: []string{"oom"}}, brig.IO{}) // another test checks its result
				return nil
			},
		} {
			h := newFixture(t, nil)
			ctx := withRole(t, brig.Member)
			h.createWithNoteFile(t, ctx, brig.Spec{Name: "box", TTL: time.Hour})
			callerCtx, disconnect := context.WithCancel(ctx)
			stdin, input := io.Pipe()
			var id string
			go func() {
				_, _ = io.WriteString(input, "before\n")
				disconnect()
				input.Close() // the fake command continues only in its record
			}()
			if _, err := h.Exec(callerCtx, "box", brig.Command{Argv: []string{"cat"}, Survive: true}, brig.IO{Stdin: stdin, Started: func(x string) { id = x }}); err == nil {
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
			for until := time.Now().Add(30 * time.Second); h.getRecord(t, "box").State != brig.Ended && time.Now().Before(until); {
				time.Sleep(time.Millisecond) // the engine records the end of an instance later
			}
			x, err := h.GetExec(ctx, "box", id)
			if err != nil || !x.Done || x.SandboxEnded != reason || x.ExitCode != 137 || x.OOMKilled != (reason == brig.OutOfMem) || string(x.Stdout.Head) != "before\n" {
				t.Errorf("%s, restart %v: %+v, %v", reason, restart, x, err)
			}
		}
	}
}

// An instance that does not respond does not block the reads of its executions. They return the
// recorded state after a short time.
func TestSilentInstanceAnswersWithRecordedExecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, ctx := newParkingFixture(t, &parkingProvider{execs: func(ctx context.Context) ([]*brig.Execution, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return nil, errors.New("no answer")
		}})
		x := &brig.Execution{Sandbox: h.getRecord(t, "box").ID, Result: brig.Result{ExecID: "x", Started: time.Now()}}
		if err := h.store.PutExec(ctx, x); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if got, err := h.GetExec(ctx, "box", "x"); err != nil || got.Done {
			t.Errorf("the execution is %+v, %v", got, err)
		}
		if list, err := h.ListExecs(ctx, "box"); err != nil || len(list) != 1 || list[0].Done {
			t.Errorf("the executions are %+v, %v", list, err)
		}
		if took := time.Since(begin); took > time.Minute { // of the fake clock
			t.Errorf("the answers took %v", took)
		}
	})
}

// The end of a sandbox completes the records of its executions and keeps their output, even if
// ListExecs leaves that output out.
func TestEndKeepsOutputOfUnlistedExecs(t *testing.T) {
	for what, end := range map[string]func(context.Context, *fixture) error{
		"kill": func(ctx context.Context, h *fixture) error { _, err := h.Kill(ctx, "box"); return err },
		"pause": func(ctx context.Context, h *fixture) error {
			_, err := h.Pause(ctx, "box", brig.PauseOptions{FilesOnly: true})
			return err
		},
	} {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "box", TTL: time.Hour})
		now := time.Now()
		for i := range 10 {
			x := &brig.Execution{Sandbox: box.ID, Result: brig.Result{ExecID: fmt.Sprint("x", i), Started: now.Add(-time.Duration(i) * time.Second), Done: i < 9}}
			x.Command.Shell = strings.Repeat("x", 1<<20)
			if !x.Done {
				x.Stdout = brig.Output{Head: []byte("before"), Total: 6}
			}
			if err := h.store.PutExec(ctx, x); err != nil {
				t.Fatal(err)
			}
		}
		list, err := h.ListExecs(ctx, "box")
		if err != nil || len(list) != 10 || list[9].Done || len(list[9].Stdout.Head) != 0 {
			t.Fatalf("control: the list has not all: %d, %v", len(list), err)
		}
		if err := end(ctx, h); err != nil {
			t.Fatal(err)
		}
		if list, err := h.ListExecs(ctx, "box"); err != nil || !list[9].Done {
			t.Errorf("%s: after the end: %v", what, err)
		}
		if x, err := h.GetExec(ctx, "box", "x9"); err != nil || !x.Done || string(x.Stdout.Head) != "before" {
			t.Errorf("%s: its output is %q, %v", what, x.Stdout.Head, err)
		}
	}
}

// A pause without memory records the results of commands that have ended, even if their output is
// still incomplete. If the pause fails, the executions with incomplete output continue.
func TestPauseFilesOnlyTakesResults(t *testing.T) {
	for _, fails := range []bool{false, true} {
		p := &parkingProvider{execs: func(context.Context) ([]*brig.Execution, error) {
			return []*brig.Execution{
				{Result: brig.Result{ExecID: "done", Done: true, ExitCode: 3, Stdout: brig.Output{Head: []byte("all")}}},
				{Draining: true, Result: brig.Result{ExecID: "draining", ExitCode: 4, Stdout: brig.Output{Head: []byte("a part")}}},
				{Result: brig.Result{ExecID: "runs"}},
			}, nil
		}}
		h, ctx := newParkingFixture(t, p)
		box := h.getRecord(t, "box")
		if fails {
			p.OnSave = func(brig.SaveID) error { return brig.Errorf(brig.FailedPrecondition, "the disk is full") }
		}
		for _, id := range []string{"done", "draining", "runs"} {
			x := &brig.Execution{Sandbox: box.ID, Result: brig.Result{ExecID: id, Started: time.Now()}}
			if err := h.store.PutExec(ctx, x); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.Pause(ctx, "box", brig.PauseOptions{FilesOnly: true}); (err != nil) != fails {
			t.Fatalf("the pause: %v", err)
		}
		for id, want := range map[string]brig.Result{
			"done":     {Done: true, ExitCode: 3, Stdout: brig.Output{Head: []byte("all")}},
			"draining": {Done: !fails, ExitCode: 4, Stdout: brig.Output{Head: []byte("a part")}},
			"runs":     {Done: !fails, ExitCode: 137},
		} {
			x, err := h.GetExec(ctx, "box", id)
			if err != nil || x.Done != want.Done || x.Done && (x.ExitCode != want.ExitCode || string(x.Stdout.Head) != string(want.Stdout.Head)) {
				t.Errorf("pause fails: %v, %s: %+v, %v", fails, id, x, err)
			}
		}
	}
}
