package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// The properties in a request replace those of the original in its copies, and nowhere else.
func TestForkChangesOnlyCopies(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "a.example"}}}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Env: map[string]string{"A": "1", "B": "1"}, Egress: rules, User: "root"})
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	same, err := h.Fork(ctx, "one", brig.ForkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if s := same[0].Spec; s.Env["B"] != "1" || len(s.Egress.Rules) != 1 || s.User != "root" || s.Dir != "" || s.PauseAtEnd {
		t.Errorf("a copy without changes is %+v", s)
	}
	changed, err := h.Fork(ctx, "one", brig.ForkSpec{
		Env: map[string]string{"B": "2", "C": "2"}, Egress: &brig.Egress{}, User: "user", Dir: "/srv",
		AtEnd: &brig.AtEnd{Pause: true, FilesOnly: true}, Limits: brig.Limits{Memory: 256 * brig.MiB},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := changed[0].Spec
	if s.Env["A"] != "1" || s.Env["B"] != "2" || s.Env["C"] != "2" || len(s.Egress.Rules) != 0 || s.User != "user" || s.Dir != "/srv" ||
		!s.PauseAtEnd || !s.PauseFilesOnly || s.Limits.Memory != 256*brig.MiB || s.Limits.Disk != same[0].Spec.Limits.Disk {
		t.Errorf("a copy with changes is %+v", s)
	}
	if s := h.getRecord(t, "one"); len(s.Spec.Env) != 2 || s.Spec.Env["B"] != "1" || len(s.Spec.Egress.Rules) != 1 || s.Spec.User != "root" {
		t.Errorf("the original is %+v", s.Spec)
	}
}

// A request for copies is checked like a request for a sandbox. A copy of memory keeps its limits.
func TestForkChecksChanges(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	for _, c := range []struct {
		field string
		o     brig.ForkSpec
	}{
		{"env", brig.ForkSpec{Env: map[string]string{"A=B": ""}}},
		{"default_user", brig.ForkSpec{User: "no such user"}},
		{"default_cwd", brig.ForkSpec{Dir: "relative"}},
		{"pause_files_only", brig.ForkSpec{AtEnd: &brig.AtEnd{FilesOnly: true}}},
		{"limits.memory", brig.ForkSpec{Limits: brig.Limits{Memory: 256 * brig.MiB, Disk: brig.MiB}}},
		{"limits.cpus", brig.ForkSpec{Limits: brig.Limits{CPUs: 2}}},
		{"limits.processes", brig.ForkSpec{Limits: brig.Limits{Processes: 9}}},
		{"limits.open_files", brig.ForkSpec{Limits: brig.Limits{OpenFiles: 99}}},
		{"limits.disk", brig.ForkSpec{Limits: brig.Limits{Disk: brig.MiB}}},
		{"limits.output", brig.ForkSpec{Limits: brig.Limits{Output: brig.KiB}}},
		{"egress.rules[0]", brig.ForkSpec{Egress: &brig.Egress{Rules: []brig.EgressRule{{Host: "a", CIDR: "10.0.0.0/8"}}}}},
	} {
		_, err := h.Fork(ctx, "one", c.o)
		if e := brig.AsError(err); err == nil || e.Kind != brig.InvalidArgument || e.Field != c.field {
			t.Errorf("%+v: %v, field %q", c.o, err, e.Field)
		}
	}
	h.wantOnly(t, ctx, "one")
}

// A tenant may keep a paused sandbox for a time after its last copy.
func TestForkPostponesEndOfPausedSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
		paused, err := h.Pause(ctx, "one", brig.PauseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fork := func() time.Duration {
			t.Helper()
			copies, err := h.Fork(ctx, "one", brig.ForkSpec{})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Remove(ctx, copies[0].Spec.Name); err != nil { // its goroutines have the fake clock
				t.Error(err)
			}
			return h.getRecord(t, "one").Expires.Sub(paused.Expires)
		}
		if by := fork(); by != 0 {
			t.Errorf("an early copy postpones the end by %v", by)
		}
		time.Sleep(48 * time.Hour)
		if by := fork(); by < 47*time.Hour {
			t.Errorf("a copy after two days postpones the end by %v", by)
		}
		if err := h.Remove(ctx, "one"); err != nil {
			t.Error(err)
		}
	})
}

// A copy can have secrets of its own and another kind of lease. Its secrets have the hosts of the time at which
// it was made, and the placeholders of the original do not apply to them.
func TestForkAddsSecrets(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	for _, name := range []string{"old", "new"} {
		if _, err := h.PutSecret(ctx, brig.SecretChange{Name: name, Value: []byte("the value"), Hosts: []string{"a.example"}}); err != nil {
			t.Fatal(err)
		}
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Secrets: []brig.SecretUse{{Name: "old"}}})
	for field, uses := range map[string][]brig.SecretUse{
		"secrets[1].name": {{Name: "none"}}, "secrets[1].env": {{Name: "new", Env: "OLD"}},
	} {
		if _, err := h.Fork(ctx, "one", brig.ForkSpec{Secrets: uses}); brig.AsError(err).Field != field {
			t.Errorf("%v, want an error of %s", err, field)
		}
	}
	fixed := true
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Secrets: []brig.SecretUse{{Name: "new"}}, FixedLease: &fixed})
	if err != nil {
		t.Fatal(err)
	}
	if s := copies[0].Spec; len(s.Secrets) != 2 || !s.FixedLease {
		t.Errorf("the copy is %+v", s)
	}
	record := func(name string) *brig.Record {
		t.Helper()
		rec, err := h.store.Get(ctx, "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	rec := record(copies[0].Spec.Name)
	if len(rec.Given) != 2 || rec.Given[1].Name != "new" || len(rec.Given[1].Hosts) != 1 {
		t.Errorf("the copy has the grants %+v", rec.Given)
	}
	if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "new", Value: []byte("the value"), Hosts: []string{"a.example", "b.example"}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range h.Brokered(rec) {
		if len(s.Hosts) != 1 || s.Hosts[0] != "a.example" {
			t.Errorf("the copy sends %s to %q", s.Name, s.Hosts)
		}
	}
	if s := record("one"); len(s.Spec.Secrets) != 1 || len(s.Given) != 1 || s.Spec.FixedLease {
		t.Errorf("the original is %+v", s)
	}
	again, err := h.Fork(ctx, copies[0].Spec.Name, brig.ForkSpec{})
	if err != nil || len(again[0].Spec.Secrets) != 2 {
		t.Errorf("a copy of the copy: %+v, %v", again, err)
	}
	if rec := record(again[0].Spec.Name); len(rec.Given) != 2 || len(rec.Given[1].Hosts) != 1 {
		t.Errorf("a copy of the copy has the grants %+v", rec.Given)
	}
}
