package engine_test

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// A sandbox with PauseAtEnd is paused at the end of its lease, and the audit log
// records the pause. The sandbox can be resumed and its lease extended.
func TestPauseAtEndPausesAtLeaseEnd(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Second, FixedLease: true, PauseAtEnd: true})
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "two", TTL: time.Hour, FixedLease: true, PauseAtEnd: true})
	until := func(state brig.State) *brig.Sandbox {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if s := h.getRecord(t, "one"); s.State == state {
				return s
			} else if time.Now().After(end) {
				t.Fatalf("it is %s, want %s", s.State, state)
			}
		}
	}
	if s := until(brig.Paused); s.Pause == nil || s.Pause.Left != 0 {
		t.Errorf("it is paused as %+v", s.Pause)
	}
	events, err := h.store.Events(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	pauses := 0
	for _, e := range events {
		if e.Op == brig.OpPause.Name && e.Sandbox == box.ID && e.Detail[brig.DetailWhy] == "lease" {
			pauses++
		}
	}
	if pauses != 1 {
		t.Errorf("%d pauses are on record, want 1", pauses)
	}
	if _, err := h.Resume(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Extend(ctx, "one", time.Hour); err != nil {
		t.Fatal(err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Running || time.Until(s.Expires) < 50*time.Minute {
		t.Errorf("after it was resumed and extended it is %s, until %v", s.State, s.Expires)
	}
	if s := h.getRecord(t, "two"); s.State != brig.Running {
		t.Errorf("control: a sandbox whose lease has not ended is %s", s.State)
	}
}

// Create rejects PauseAtEnd for a sandbox that can never be paused.
func TestCreateRejectsImpossiblePauseAtEnd(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	_, err := h.Create(ctx, brig.Spec{Name: "one", PauseAtEnd: true, Command: &brig.Command{Argv: []string{"true"}}})
	if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "pause_at_end" {
		t.Errorf("with a main program: %v", err)
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "one", PauseAtEnd: true}); err != nil {
		t.Errorf("control: %v", err)
	}
}
