package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// awaitState waits until a sandbox is in the given state, without using the
// sandbox.
func (h *fixture) awaitState(t *testing.T, name string, state brig.State) *brig.Sandbox {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if s := h.getRecord(t, name); s.State == state {
			return s
		} else if time.Now().After(end) {
			t.Fatalf("it is %s, want %s", s.State, state)
		}
	}
}

// idlePauses returns the number of successful idle pauses of a sandbox, and the
// reasons of the failed ones, according to the audit log.
func (h *fixture) idlePauses(t *testing.T, id brig.ID) (paused int, refused []string) {
	t.Helper()
	events, err := h.store.Events(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		switch reason := e.Detail[brig.DetailWhy]; {
		case e.Op != brig.OpPause.Name || e.Sandbox != id || !strings.HasPrefix(reason, "idle"):
		case e.Kind == "":
			paused++
		default:
			refused = append(refused, reason)
		}
	}
	return paused, refused
}

// A sandbox with PauseAfter is paused whenever it was not used for this time. The
// next use resumes it with a full lease.
func TestIdleSandboxIsPausedAfterDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, PauseAfter: time.Second, FreezeAfter: 100 * time.Millisecond})
		h.createWithNoteFile(t, ctx, brig.Spec{Name: "control", TTL: time.Hour})
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if s := h.getRecord(t, "one"); s.State != brig.Running {
				t.Fatalf("it is %s although it is used", s.State)
			}
			wantNote(t, ctx, h, "one")
		}
		for n := 1; n <= 2; n++ {
			h.awaitState(t, "one", brig.Paused)
			if got, refused := h.idlePauses(t, box.ID); got != n || len(refused) > 0 {
				t.Errorf("%d pauses and the failures %q are on record, want %d pauses", got, refused, n)
			}
			wantNote(t, ctx, h, "one")
			if s := h.getRecord(t, "one"); s.State != brig.Running || time.Until(s.Expires) < 59*time.Minute {
				t.Errorf("after its use it is %s until %v", s.State, s.Expires)
			}
		}
		if s := h.getRecord(t, "control"); s.State != brig.Running {
			t.Errorf("control: a sandbox without PauseAfter is %s", s.State)
		}
		if err := h.Remove(ctx, "one"); err != nil { // its goroutines have the fake clock
			t.Error(err)
		}
		if err := h.Remove(ctx, "control"); err != nil { // its goroutines have the fake clock
			t.Error(err)
		}
	})
}

// If the pause of an idle sandbox fails, the sandbox continues to run, and the
// pause is retried after the same time. Repeated failures are recorded once.
func TestFailedIdlePauseIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		tries := make(chan time.Time, 10)
		h.provider.OnSave = func(brig.SaveID) error {
			if tries <- time.Now(); len(tries) < 3 {
				return brig.Errorf(brig.FailedPrecondition, "the disk is full")
			}
			return nil
		}
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, PauseAfter: time.Second})
		last, n := time.Now(), 0
		for len(tries) == 0 {
			time.Sleep(time.Millisecond)
		}
		if s := h.getRecord(t, "one"); s.State != brig.Running {
			t.Errorf("after a failed pause it is %s", s.State)
		}
		h.awaitState(t, "one", brig.Paused)
		for range len(tries) {
			triedAt := <-tries
			if n++; triedAt.Sub(last) < 900*time.Millisecond {
				t.Errorf("try %d came %v after the one before", n, triedAt.Sub(last))
			}
			last = triedAt
		}
		if got, refused := h.idlePauses(t, box.ID); n != 3 || got != 1 || len(refused) != 1 || !strings.Contains(refused[0], "the disk is full") {
			t.Errorf("after %d tries, %d pauses and the failures %q are on record", n, got, refused)
		}
		wantNote(t, ctx, h, "one")
		if err := h.Remove(ctx, "one"); err != nil { // its goroutines have the fake clock
			t.Error(err)
		}
	})
}

// A sandbox that is idle across a restart is paused by the next server.
func TestPauseAfterSurvivesRestart(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, PauseAfter: time.Second})
	next := h.nextServer(t, nil)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s, err := next.Get(ctx, "one")
		if err != nil || time.Now().After(end) {
			t.Fatalf("it is %+v, %v", s, err)
		}
		if s.State == brig.Paused {
			break
		}
	}
	wantNote(t, ctx, next, "one")
}

// Create rejects a PauseAfter that could have no effect.
func TestCreateRejectsIneffectivePauseAfter(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	if _, err := h.CreateWorkspace(ctx, "files"); err != nil {
		t.Fatal(err)
	}
	program := &brig.Command{Argv: []string{"true"}}
	for what, spec := range map[string]brig.Spec{
		"a main program":          {PauseAfter: time.Minute, Command: program},
		"a workspace":             {PauseAfter: time.Minute, Workspace: brig.WorkspaceUse{Name: "files", Mode: brig.WorkspaceDirect}},
		"the default lease":       {PauseAfter: brig.DefaultLimitRange().DefaultTTL},
		"a shorter lease":         {PauseAfter: time.Minute, TTL: 30 * time.Second},
		"less than the minimum":   {PauseAfter: brig.MinPauseAfter - 1},
		"a time before the start": {PauseAfter: -time.Minute},
	} {
		if _, err := h.Create(ctx, spec); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != "pause_after_ms" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "one", PauseAfter: time.Minute}); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{TTL: time.Minute}); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != "pause_after_ms" {
		t.Errorf("a copy with a shorter lease: %v", err)
	}
}
