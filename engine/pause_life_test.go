package engine_test

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// A resume does not extend a sandbox's lifetime beyond the maximum, and is rejected when the
// maximum is reached. The duration of pauses does not count. A copy has a new lifetime.
func TestResumeRespectsMaxLife(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	life := brig.DefaultLimitRange().MaxLife
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, FixedLease: true, PauseAtEnd: true})
	pause := func(ran, paused time.Duration) {
		t.Helper()
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		rec, err := h.store.Get(t.Context(), "acme", "one")
		if err != nil {
			t.Fatal(err)
		}
		rec.Pause.At = time.Now().UTC().Add(-paused)
		rec.Created = rec.Pause.At.Add(-ran)
		rec.PausedFor, rec.Pause.Left = 0, 0
		if err := h.store.Put(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ ran, paused, limit time.Duration }{
		{life - 10*time.Minute, 0, 10 * time.Minute},
		{life - 10*time.Minute, 40 * 24 * time.Hour, 10 * time.Minute},
		{24 * time.Hour, 40 * 24 * time.Hour, time.Hour}, // control: the lease
	} {
		pause(c.ran, c.paused)
		s, err := h.Resume(ctx, "one")
		if err != nil {
			t.Fatal(err)
		}
		if remaining := time.Until(s.Expires); remaining > c.limit || remaining < c.limit-5*time.Minute {
			t.Errorf("after it ran for %v and was paused for %v, its lease is %v, want %v", c.ran, c.paused, remaining, c.limit)
		}
	}
	pause(life, time.Hour)
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a resume at the end of its life: %v", err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Paused {
		t.Errorf("then it is %s", s.State)
	}
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{})
	if err != nil {
		t.Fatalf("a copy of it: %v", err)
	}
	wantNote(t, ctx, h, copies[0].Spec.Name)
}
