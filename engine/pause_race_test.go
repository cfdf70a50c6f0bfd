package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// A resume of a running sandbox neither ends the calls that use it nor waits for
// them.
func TestResumeOfRunningSandboxKeepsCalls(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	use, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 2)
	p, err := h.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "60"}}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- h.Processes("one").Attach(use, p.PID, 0, func(brig.ProcessEvent) error { return nil })
	}()
	go func() {
		_, err := h.Exec(use, "one", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{})
		ended <- err
	}()
	for h.Users(box.ID) < 2 {
		time.Sleep(time.Millisecond)
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Second) // less than a resume waits for calls
	defer cancel()
	for range 3 {
		if s, err := h.Resume(soon, "one"); err != nil || s.State != brig.Running {
			t.Fatalf("resume: %+v, %v", s, err)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("a call ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	wantNote(t, ctx, h, "one")
	end()
	for range 2 {
		<-ended
	}
}

// If a save completes after the call of Pause has failed, the sandbox becomes
// paused.
func TestSaveOutlivesItsPause(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	h.provider.OnSave = func(brig.SaveID) error {
		return brig.Errorf(brig.FailedPrecondition, "the connection is lost")
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err == nil {
		t.Fatal("the pause succeeded")
	}
	h.provider.OnSave = nil
	in, err := h.provider.Recover(ctx, box.ID, brig.Handle{})
	if err == nil {
		_, err = h.provider.Save(ctx, in, brig.SaveID(box.ID), brig.SaveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); h.getRecord(t, "one").State != brig.Paused; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is %s, want paused", h.getRecord(t, "one").State)
		}
	}
	wantNote(t, ctx, h, "one")
	if live := h.Live(); len(live) != 1 {
		t.Errorf("the engine has the instances %v", live)
	}
}

// If a server dies while a sandbox is being stopped and its save has completed, the
// next server records the sandbox as ended.
func TestStopDuringSaveIsRecordedAfterRestart(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	h.Close()
	rec, err := h.store.Get(ctx, box.Tenant, string(box.ID))
	if err != nil {
		t.Fatal(err)
	}
	rec.State = brig.Stopping
	if err := h.store.Put(ctx, rec); err != nil {
		t.Fatal(err)
	}
	in, err := h.provider.Recover(ctx, box.ID, brig.Handle{})
	if err == nil {
		_, err = h.provider.Save(ctx, in, brig.SaveID(box.ID), brig.SaveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	next := h.nextServer(t, nil)
	if s, err := next.Get(ctx, "one"); err != nil || s.State != brig.Ended || s.Exit == nil || s.Exit.Reason != brig.Stopped {
		t.Errorf("it is %+v, %v", s, err)
	}
	if n := h.provider.Saves(); n != 0 {
		t.Errorf("%d saves are left", n)
	}
}

// A sandbox that is paused before its automatic end stays paused. The Stop call of a caller ends
// it.
func TestAutomaticEndSkipsPausedSandbox(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	before, err := h.store.Get(ctx, box.Tenant, string(box.ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []brig.ExitReason{brig.OverTime, brig.LeaseExpired, brig.Exited} {
		if s, err := h.StopFor(ctx, before, reason); err != nil || s.State != brig.Paused || h.provider.Saves() != 1 {
			t.Errorf("%s: it is %+v, %v", reason, s, err)
		}
	}
	wantNote(t, ctx, h, "one")
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if s, err := h.Stop(ctx, "one", 0); err != nil || s.State != brig.Ended || h.provider.Saves() != 0 {
		t.Errorf("a stop: it is %+v, %v", s, err)
	}
}

// The lease of a sandbox does not end during its save. If the save fails, the previous lease
// applies again.
func TestLeaseDoesNotEndDuringSave(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Second, FixedLease: true})
	in, err := h.provider.Recover(ctx, box.ID, brig.Handle{})
	if err != nil {
		t.Fatal(err)
	}
	h.provider.OnSave = func(brig.SaveID) error {
		time.Sleep(time.Until(box.Expires) + 100*time.Millisecond)
		if in.Exit() != nil {
			return errors.New("its lease has ended during the save")
		}
		return brig.Errorf(brig.FailedPrecondition, "refused")
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("pause: %v", err)
	}
	for end := time.Now().Add(time.Minute); h.getRecord(t, "one").State != brig.Ended; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is %s, want ended", h.getRecord(t, "one").State)
		}
	}
}

// A resume fails if it would exceed the provider's maximum number of sandboxes.
func TestResumeRespectsProviderMax(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	if _, err := h.ConfigureProvider(withRole(t, brig.Operator), brig.ProviderConfig{ID: "fake", Terms: &brig.Terms{Max: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "two"})
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("resume beside another: %v", err)
	}
	if err := h.Remove(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	wantNote(t, ctx, h, "one")
	if _, err := h.Create(ctx, brig.Spec{Name: "three"}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("create beside the resumed one: %v", err)
	}
}

// A lease that is extended during a failing pause keeps its new end.
func TestFailedPauseKeepsExtendedLease(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Second, FixedLease: true})
	extended := make(chan error, 1)
	h.provider.OnSave = func(brig.SaveID) error {
		go func() {
			_, err := h.Extend(ctx, "one", time.Hour)
			extended <- err
		}()
		for h.Waiting(box.ID) == 0 {
			time.Sleep(time.Millisecond)
		}
		return brig.Errorf(brig.FailedPrecondition, "refused")
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("pause: %v", err)
	}
	if err := <-extended; err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(box.Expires) + 100*time.Millisecond)
	wantNote(t, ctx, h, "one")
	if s := h.getRecord(t, "one"); s.State != brig.Running || time.Until(s.Expires) < 50*time.Minute {
		t.Errorf("it is %s, until %v", s.State, s.Expires)
	}
}
