package engine_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// createWithNoteFile creates a sandbox with the file that wantNote expects.
func (h *fixture) createWithNoteFile(t *testing.T, ctx context.Context, spec brig.Spec) *brig.Sandbox {
	t.Helper()
	s, err := h.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Files(spec.Name).Write(ctx, brig.Path{Name: "/workspace/note"}, brig.FileWrite{}, strings.NewReader("noted")); err != nil {
		t.Fatal(err)
	}
	return s
}

// getRecord returns the sandbox's current record.
func (h *fixture) getRecord(t *testing.T, name string) *brig.Sandbox {
	t.Helper()
	s, err := h.Get(withRole(t, brig.Member), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantNote fails the test unless the sandbox has the file that box wrote. Reading
// the file resumes a paused sandbox.
func wantNote(t *testing.T, ctx context.Context, svc brig.Service, name string) {
	t.Helper()
	var b bytes.Buffer
	_, r, err := svc.Files(name).Read(ctx, brig.Path{Name: "/workspace/note"}, 0, -1)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	defer r.Close()
	if _, err := b.ReadFrom(r); err != nil || b.String() != "noted" {
		t.Errorf("its file contains %q, %v", b.String(), err)
	}
}

// A paused sandbox has no instance, and the size of its save counts against its
// tenant's storage. Concurrent calls resume it once, with the remainder of its
// lease.
func TestUseResumesPausedSandbox(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, FixedLease: true})
	paused, err := h.Pause(ctx, "one", brig.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if paused.State != brig.Paused || paused.Pause == nil || paused.Pause.Bytes <= 0 || paused.Pause.Left < 59*time.Minute {
		t.Errorf("after the pause it is %s: %+v", paused.State, paused.Pause)
	}
	if live := h.Live(); len(live) != 0 {
		t.Errorf("the engine has the instances %v", live)
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Errorf("a second pause: %v", err)
	}
	if _, err := h.Extend(ctx, "one", time.Hour); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("extend: %v", err)
	}
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() { wantNote(t, ctx, h, "one") })
	}
	work.Wait()
	s := h.getRecord(t, "one")
	if remaining := time.Until(s.Expires); s.State != brig.Running || s.Pause != nil || remaining > time.Hour || remaining < 58*time.Minute || s.ID != box.ID {
		t.Errorf("after its use it is %+v", s)
	}
	resumes := 0
	events, err := h.store.Events(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Op == brig.OpResume.Name {
			resumes++
			if e.Actor != "ann" || e.Sandbox != box.ID || e.Detail[brig.DetailWhy] != "use" {
				t.Errorf("the resume is recorded as %+v", e)
			}
		}
	}
	if resumes != 1 {
		t.Errorf("%d resumes are on record, want 1", resumes)
	}
	if _, err := h.provider.GetSave(ctx, brig.SaveID(box.ID)); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the save of a running sandbox: %v", err)
	}
	if _, err := h.Resume(ctx, "one"); err != nil {
		t.Errorf("resume of a running sandbox: %v", err)
	}
}

// If a sandbox cannot be paused, its pause fails with an error that contains the
// reason, and the sandbox keeps running.
func TestImpossiblePauseKeepsSandboxRunning(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	used := h.createWithNoteFile(t, ctx, brig.Spec{Name: "used"})
	begun := make(chan struct{})
	ended := make(chan error, 1)
	calls, cancel := context.WithCancel(ctx)
	go func() {
		_, err := h.Exec(calls, "used", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{})
		ended <- err
	}()
	go func() {
		for h.Users(used.ID) == 0 {
			time.Sleep(time.Millisecond)
		}
		close(begun)
	}()
	<-begun
	if _, err := h.Create(ctx, brig.Spec{Name: "main", Command: &brig.Command{Argv: []string{"sleep", "60"}}}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "kept"})
	if _, err := h.CreateContext(ctx, "kept", brig.ContextSpec{}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "stopped"})
	if _, err := h.Stop(ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	for name, reason := range map[string]string{"used": "in use", "main": "main program", "kept": "a running program", "stopped": "is stopped"} {
		_, err := h.Pause(ctx, name, brig.PauseOptions{})
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", name, err)
		}
		if s := h.getRecord(t, name); name != "stopped" && s.State != brig.Running {
			t.Errorf("%s is %s", name, s.State)
		}
	}
	cancel()
	<-ended
	wantNote(t, ctx, h, "used")
	if _, err := h.Pause(ctx, "used", brig.PauseOptions{}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A sandbox keeps running after a failed save.
func TestFailedSaveKeepsSandboxRunning(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	broken := errors.New("broken")
	h.provider.OnSave = func(brig.SaveID) error { return broken }
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); !errors.Is(err, broken) && brig.KindOf(err) != brig.Internal {
		t.Errorf("pause: %v", err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Running || s.Pause != nil {
		t.Errorf("it is %s: %+v", s.State, s.Pause)
	}
	wantNote(t, ctx, h, "one")
	h.provider.OnSave = nil
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Errorf("the next pause: %v", err)
	}
	wantNote(t, ctx, h, "one")
}

// A call that waits for a save resumes the sandbox afterwards, unless its context
// forbids a resume.
func TestCallDuringSaveResumesSandbox(t *testing.T) {
	for _, mayResume := range []bool{false, true} {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
		called := make(chan error, 1)
		h.provider.OnSave = func(brig.SaveID) error {
			go func() {
				ctx := ctx
				if !mayResume {
					ctx = brig.WithoutResume(ctx)
				}
				_, r, err := h.Files("one").Read(ctx, brig.Path{Name: "/workspace/note"}, 0, -1)
				if err == nil {
					r.Close()
				}
				called <- err
			}()
			for h.Waiting(box.ID) == 0 {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		err, want := <-called, brig.Paused
		if mayResume {
			want = brig.Running
		}
		if s := h.getRecord(t, "one"); s.State != want || (err == nil) != mayResume {
			t.Errorf("a call that may resume (%v): %v; then the sandbox is %s", mayResume, err, s.State)
		}
		if !mayResume && brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("a call that may not resume: %v", err)
		}
	}
}

// The next server finds paused sandboxes. If the earlier server died before
// recording a pause or a resume, the next server determines the actual state of the
// sandbox.
func TestPauseSurvivesRestart(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "paused"})
	unrecorded := h.createWithNoteFile(t, ctx, brig.Spec{Name: "saved"})
	resumed := h.createWithNoteFile(t, ctx, brig.Spec{Name: "resumed"})
	for _, name := range []string{"paused", "resumed"} {
		if _, err := h.Pause(ctx, name, brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The server dies after saving one sandbox and after restoring another.
	in, err := h.provider.Recover(ctx, unrecorded.ID, brig.Handle{})
	if err == nil {
		_, err = h.provider.Save(ctx, in, brig.SaveID(unrecorded.ID), brig.SaveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.provider.Restore(ctx, brig.SaveID(resumed.ID), resumed.ID, resumed.Spec, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	next := h.nextServer(t, nil)
	for name, want := range map[string]brig.State{"paused": brig.Paused, "saved": brig.Paused, "resumed": brig.Running} {
		s, err := next.Get(ctx, name)
		if err != nil || s.State != want || (s.Pause != nil) != (want == brig.Paused) {
			t.Errorf("%s is %+v, %v", name, s, err)
		}
	}
	for _, name := range []string{"paused", "saved", "resumed"} {
		wantNote(t, ctx, next, name)
		if err := next.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if machines := h.provider.Machines(); len(machines) != 0 {
		t.Errorf("the machines %v are left", machines)
	}
}

// A paused sandbox counts against the storage quota, not against the sandbox
// quota. If the sandbox quota is used up, a resume fails and the sandbox stays
// paused.
func TestPausedSandboxCountsAgainstStorage(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Sandboxes: 1}}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "two"})
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("resume beyond the quota: %v", err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Paused {
		t.Errorf("it is %s", s.State)
	}
	if err := h.Remove(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	wantNote(t, ctx, h, "one")
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Storage: brig.DefaultLimitRange().Default.Disk}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "three"}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("a sandbox beside a paused one that takes storage: %v", err)
	}
	wantNote(t, ctx, h, "one") // the sandbox's own save does not count against the quota
}

// The engine ends sandboxes that have been paused for longer than the maximum,
// including paused copies. A tenant's ceiling can shorten this maximum, but not
// extend it.
func TestLongPausedSandboxesAreEnded(t *testing.T) {
	now := time.Now()
	h := newFixture(t, func(o *engine.Options) {
		o.Now, o.LimitRange = func() time.Time { return now }, brig.DefaultLimitRange()
		o.LimitRange.MaxPause = 2 * time.Hour
	})
	ctx := withRole(t, brig.Operator)
	for _, c := range []struct{ ceiling, paused time.Duration }{{0, 2 * time.Hour}, {time.Hour, time.Hour}, {3 * time.Hour, 2 * time.Hour}} {
		if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Ceilings: brig.Ceilings{MaxPause: c.ceiling}}); err != nil {
			t.Fatal(err)
		}
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
		copies, err := h.Fork(ctx, "one", brig.ForkSpec{Paused: true, Name: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		want := func(state brig.State) {
			t.Helper()
			if err := h.PruneExpired(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"one", "copy"} {
				if s, err := h.Get(ctx, name); err != nil || s.State != state {
					t.Errorf("ceiling %s: %s is %+v, %v, want %s", c.ceiling, name, s, err, state)
				}
			}
		}
		now = now.Add(c.paused - time.Second)
		want(brig.Paused)
		now = now.Add(2 * time.Second)
		want(brig.Ended)
		for _, id := range []brig.SaveID{brig.SaveID(box.ID), brig.SaveID(copies[0].ID)} {
			if _, err := h.provider.GetSave(ctx, id); brig.KindOf(err) != brig.NotFound {
				t.Errorf("the save of an ended sandbox: %v", err)
			}
		}
		for _, name := range []string{"one", "copy"} {
			if err := h.Remove(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	}
}
