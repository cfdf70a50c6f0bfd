package engine_test

import (
	"fmt"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// If a tenant creates more executions, runs and ended sandboxes than the limits
// allow, only the newest are kept. The control is a server with larger limits.
func TestRetentionKeepsNewest(t *testing.T) {
	for name, c := range map[string]struct {
		keep                         brig.Keep
		quota                        brig.Quota
		executions, runs, stillThere int
	}{
		"bounded": {keep: brig.Keep{Executions: 3, Runs: 2, Ended: 4}, executions: 3, runs: 2, stillThere: 4},
		"control": {keep: brig.Keep{Executions: 100, Runs: 100, Ended: 100}, executions: 9, runs: 9, stillThere: 9},
		"quota":   {keep: brig.Keep{Executions: 100, Runs: 100, Ended: 100}, quota: brig.Quota{Outputs: 1}, stillThere: 9},
		"storage": {keep: brig.Keep{Executions: 100, Runs: 100, Ended: 100, Bytes: brig.GiB}, quota: brig.Quota{Storage: 2 * brig.MiB}, executions: 9, runs: 9, stillThere: 9},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, func(o *engine.Options) { o.Retention = c.keep })
			setQuota(t, h.store, c.quota, brig.Ceilings{})
			ctx := withRole(t, brig.Member)
			spec := brig.Spec{Name: "one", Limits: brig.Limits{Disk: brig.MiB}}
			if _, err := h.Create(ctx, spec); err != nil {
				t.Fatal(err)
			}
			for range 9 {
				if _, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"echo", "hi"}}, brig.IO{}); err != nil {
					t.Fatal(err)
				}
			}
			list, err := h.ListExecs(ctx, "one")
			if err != nil || len(list) != c.executions {
				t.Errorf("%d executions are kept, want %d; %v", len(list), c.executions, err)
			}
			var names []string
			for range 9 {
				o, err := h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}, Limits: brig.Limits{Disk: brig.MiB}}, brig.IO{})
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, o.Sandbox)
			}
			eventually(t, func() bool { // outcomes are trimmed in the background
				runs := 0
				for _, n := range names {
					if _, err := h.GetRun(ctx, n); err == nil {
						runs++
					}
				}
				if runs < c.runs {
					t.Fatalf("%d outcomes are kept, want %d", runs, c.runs)
				}
				return runs == c.runs
			})
			if err := h.Remove(ctx, "one"); err != nil {
				t.Fatal(err)
			}
			for i := range 9 {
				spec.Name = fmt.Sprint("s", i)
				if _, err := h.Create(ctx, spec); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Stop(ctx, spec.Name, 0); err != nil {
					t.Fatal(err)
				}
			}
			// More than the limit may exist until the next trim.
			if err := h.TrimAll(ctx); err != nil {
				t.Fatal(err)
			}
			page, err := h.List(ctx, brig.ListOptions{})
			if err != nil || len(page.Sandboxes) != c.stillThere {
				t.Errorf("%d sandboxes that ended are kept, want %d; %v", len(page.Sandboxes), c.stillThere, err)
			}
			if len(page.Sandboxes) > 0 && page.Sandboxes[0].Spec.Name != "s8" {
				t.Errorf("the newest is %q", page.Sandboxes[0].Spec.Name)
			}
		})
	}
}

// The number of a tenant's secrets is limited. At the limit, existing secrets can
// still be changed.
func TestSecretCountIsLimited(t *testing.T) {
	engine.MaxSecrets(t, 3)
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Admin)
	put := func(name string) error {
		_, err := h.PutSecret(ctx, brig.SecretChange{Name: name, Value: []byte("a-value-of-it"), Hosts: []string{"example.com"}})
		return err
	}
	for _, name := range []string{"a", "b", "c", "a"} {
		if err := put(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("d"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("one too many: %v", err)
	}
}
