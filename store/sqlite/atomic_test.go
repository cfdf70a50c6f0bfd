package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
)

// TestTransactionIsAtomic makes each part of a transaction fail in turn and verifies that the
// other parts have no effect.
func TestTransactionIsAtomic(t *testing.T) {
	for name, trigger := range map[string]string{
		"the record": "before delete on sandboxes",
		"executions": "before delete on executions",
		"labels":     "before delete on labels",
		"outcome":    "before insert on runs",
		"events":     "before insert on events",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "brig.db")
			s, ctx := openStore(t, path), t.Context()
			r := record(1)
			if err := s.Put(ctx, r); err != nil {
				t.Fatal(err)
			}
			if err := s.PutExec(ctx, &brig.Execution{Sandbox: r.ID, Result: brig.Result{ExecID: "x"}}); err != nil {
				t.Fatal(err)
			}
			execSQL(t, path, `create trigger broken `+trigger+` begin select raise(abort, 'broken'); end`)
			o, event := &brig.Outcome{Sandbox: "n1"}, brig.Event{Op: "run"}
			if err := s.EndRun(ctx, r.ID, "t", o, event); brig.KindOf(err) != brig.Internal {
				t.Errorf("EndRun = %v", err)
			}
			if got, err := s.Get(ctx, "t", "n1"); err != nil || got.Rev != r.Rev || len(got.Spec.Labels) != 2 {
				t.Errorf("the record: %+v, %v", got, err)
			}
			if page, _, err := s.List(ctx, "t", brig.ListOptions{Labels: r.Spec.Labels}); err != nil || len(page) != 1 {
				t.Errorf("by its labels: %d, %v", len(page), err)
			}
			if _, err := s.GetExec(ctx, r.ID, "x"); err != nil {
				t.Errorf("its execution: %v", err)
			}
			if _, err := s.GetRun(ctx, "t", "n1"); brig.KindOf(err) != brig.NotFound {
				t.Errorf("the outcome: %v", err)
			}
			if events, err := s.Events(ctx, 9); err != nil || len(events) != 0 {
				t.Errorf("events %+v, %v", events, err)
			}
			execSQL(t, path, `drop trigger broken`)
			if err := s.EndRun(ctx, r.ID, "t", o, event); err != nil {
				t.Errorf("when it works again: %v", err)
			}
		})
	}
}
