package engine_test

import (
	"testing"

	"github.com/brig-run/brig"
)

// The quota of paused sandboxes is checked before a save is written. It counts paused sandboxes
// and paused copies, including those of an earlier server. A sandbox that cannot be paused
// continues to run.
func TestPausedQuotaIsCheckedBeforeSave(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	set := func(svc brig.Service, n int) {
		t.Helper()
		if _, err := svc.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Paused: n}}); err != nil {
			t.Fatal(err)
		}
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "two"})
	set(h, 1)
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, svc brig.Service, do func() error) {
		t.Helper()
		if e := brig.AsError(do()); e == nil || e.Kind != brig.RateLimited || e.Field != "quota.paused" {
			t.Errorf("%s: %v", what, e)
		}
		if s, err := svc.Get(ctx, "two"); err != nil || s.State != brig.Running {
			t.Errorf("%s: then the sandbox is %+v, %v", what, s, err)
		}
		wantNote(t, ctx, svc, "two")
		if n := h.provider.Saves(); n != 1 {
			t.Errorf("%s: there are %d saves", what, n)
		}
	}
	pause := func() error { _, err := h.Pause(ctx, "two", brig.PauseOptions{}); return err }
	snapshot := func() error { _, err := h.Fork(ctx, "two", brig.ForkSpec{Paused: true, Name: "copy"}); return err }
	refused("a second pause", h, pause)
	refused("a paused copy", h, snapshot)
	set(h, 2)
	if err := snapshot(); err != nil {
		t.Errorf("control: a paused copy within the quota: %v", err)
	}
	if err := h.Remove(ctx, "copy"); err != nil {
		t.Fatal(err)
	}
	set(h, 1)
	next := h.nextServer(t, nil)
	refused("a pause at the next server", next, func() error { _, err := next.Pause(ctx, "two", brig.PauseOptions{}); return err })
	wantNote(t, ctx, next, "one") // resumes it
	if _, err := next.Pause(ctx, "two", brig.PauseOptions{}); err != nil {
		t.Errorf("control: a pause after the resume of the other: %v", err)
	}
	wantNote(t, ctx, next, "two")
	set(next, 0) // the default
	for _, name := range []string{"one", "two"} {
		if _, err := next.Pause(ctx, name, brig.PauseOptions{}); err != nil {
			t.Errorf("control: %s by default: %v", name, err)
		}
	}
}
