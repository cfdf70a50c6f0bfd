package workspace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brig-run/brig/workspace"
)

// TestHoldIsInterruptible checks that a caller stops waiting for a sweep, and a
// sweep for callers, when its context ends.
func TestHoldIsInterruptible(t *testing.T) {
	dir := t.TempDir()
	here, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	process, err := workspace.OpenDir(dir) // shares only lock files with the first Dir
	if err != nil {
		t.Fatal(err)
	}
	for _, exclusive := range []bool{false, true} {
		release, err := here.Hold(t.Context(), "t/a", !exclusive)
		if err != nil {
			t.Fatal(err)
		}
		for what, o := range map[string]workspace.Objects{"this process": here, "another process": process} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			released := make(chan error, 1)
			go func() {
				release, err := o.Hold(ctx, "t/a", exclusive)
				if err == nil {
					release()
				}
				released <- err
			}()
			select {
			case err := <-released:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, alone %t: %v", what, exclusive, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, alone %t: it waits after its context has ended", what, exclusive)
			}
			cancel()
		}
		release()
		if release, err = process.Hold(t.Context(), "t/a", true); err != nil {
			t.Fatalf("alone %t: what gave up keeps a lock: %v", exclusive, err)
		}
		release()
	}
}

// TestSweepDelaysOthersBriefly checks that a sweep that waits for a long
// commit delays other callers of the tenant only briefly.
func TestSweepDelaysOthersBriefly(t *testing.T) {
	workspace.SetSweepPrecedence(t, 20*time.Millisecond)
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long, err := o.Hold(t.Context(), "t/a", false)
	if err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	go func() {
		release, err := o.Hold(t.Context(), "t/a", true)
		if err == nil {
			release()
		}
		swept <- err
	}()
	for o.CountWaiting("t/a") == 0 {
		time.Sleep(time.Millisecond)
	}
	entered := make(chan error, 1)
	go func() {
		release, err := o.Hold(t.Context(), "t/a", false)
		if err == nil {
			release()
		}
		entered <- err
	}()
	select {
	case err := <-entered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a caller waits for the end of a commit that it has nothing to do with")
	}
	long()
	if err := <-swept; err != nil {
		t.Error(err)
	}
}
