package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestVersionsCanBeCommittedAndRestored tests the life cycle of a workspace on each implementation of
// Objects.
func TestVersionsCanBeCommittedAndRestored(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		w, err := s.Create(ctx, "acme", "data")
		if err != nil || w.Store != o.Kind() || w.Head != nil {
			t.Fatalf("%+v, %v", w, err)
		}
		if _, err := s.Create(ctx, "acme", "data"); brig.KindOf(err) != brig.AlreadyExists {
			t.Errorf("a taken name: %v", err)
		}
		for _, name := range []string{"", "A", "../x", "a/b", "a\x00"} {
			if _, err := s.Create(ctx, "acme", name); brig.KindOf(err) != brig.InvalidArgument {
				t.Errorf("the name %q: %v", name, err)
			}
			if _, _, err := s.Find(ctx, "acme", name, 0); brig.KindOf(err) != brig.NotFound {
				t.Errorf("the name %q: %v", name, err)
			}
		}
		one := tree{"a": "1", "d/": "", "d/b": strings.Repeat("2", 3<<20), "link": "-> /etc/passwd", "bad\xff\x01name": "3", "empty": ""}
		use := resolveUse(t, s, "acme", "data", 0)
		c, err := commit(ctx, s, "acme", "sb1", use, one, brig.Node{Path: "pipe", Skipped: "it is a pipe"})
		if err != nil || c.Version.Number != 1 || c.Version.Files != 4 || c.Changed != 6 || c.Passed != 1 || c.Skipped[0].Path != "pipe" {
			t.Fatalf("%+v, %v", c, err)
		}
		if c.Changes[1].Path != `bad\xff\x01name` {
			t.Errorf("a name that is no text is told as %q", c.Changes[1].Path)
		}
		reopened := workspace.New(o.reopen(), nil)
		if got, err := unpack(ctx, reopened, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, one) {
			t.Errorf("version 1 is %.200v, %v", got, err)
		}
		two := tree{"a": "changed", "d/": "", "d/b": one["d/b"], "link": "-> a", "bad\xff\x01name": "3", "empty": ""}
		if c, err = commit(ctx, s, "acme", "sb2", resolveUse(t, s, "acme", "data", 0), two); err != nil || c.Changed != 2 {
			t.Fatalf("%+v, %v", c, err)
		}
		if c, err = commit(ctx, s, "acme", "sb2", resolveUse(t, s, "acme", "data", 0), two); err != nil || c.Version.Number != 2 || c.Changed != 0 {
			t.Errorf("a commit of nothing: %+v, %v", c, err)
		}
		v, err := s.Restore(ctx, "acme", "bob", "data", 1, 0)
		if err != nil || v.Number != 3 || v.Restored != 1 || v.Actor != "bob" || v.Base != 2 {
			t.Errorf("%+v, %v", v, err)
		}
		for n, want := range map[int]tree{0: one, 1: one, 2: two, 3: one} {
			if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", n)); err != nil || !isEqualTree(got, want) {
				t.Errorf("version %d is %.200v, %v", n, got, err)
			}
		}
		if d, err := s.Diff(ctx, "acme", "data", 1, 3); err != nil || len(d) != 0 {
			t.Errorf("%v, %v", d, err)
		}
		if d, err := s.Diff(ctx, "acme", "data", 1, 2); err != nil || fmt.Sprint(d) != "[{a changed file 7} {link changed symlink 0}]" {
			t.Errorf("%v, %v", d, err)
		}
		for _, n := range []int{4, 99} {
			if _, err := s.Restore(ctx, "acme", "bob", "data", n, 0); brig.KindOf(err) != brig.NotFound {
				t.Errorf("version %d: %v", n, err)
			}
		}
		// Contents are stored once per tenant; another tenant has its own copy.
		if _, err := s.Create(ctx, "rival", "data"); err != nil {
			t.Fatal(err)
		}
		before := len(listKeys(t, o, "t/acme/blobs/"))
		if _, err = commit(ctx, s, "rival", "sb3", resolveUse(t, s, "rival", "data", 0), one); err != nil {
			t.Fatal(err)
		}
		if len(listKeys(t, o, "t/acme/blobs/")) != before || len(listKeys(t, o, "t/rival/blobs/")) < 4 {
			t.Error("contents are shared between tenants")
		}
		if _, err := unpack(ctx, s, "rival", resolveUse(t, s, "acme", "data", 0)); brig.KindOf(err) != brig.NotFound {
			t.Errorf("a tenant reads another's: %v", err)
		}
		if list, err := s.List(ctx, "nobody"); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		// The removal of a workspace also removes the contents that only it used.
		old := resolveUse(t, s, "acme", "data", 0)
		if err := s.Remove(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb4", old, one); brig.KindOf(err) != brig.NotFound {
			t.Errorf("a commit to what is gone: %v", err)
		}
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb4", old, one); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("a commit to another of its name: %v", err)
		}
		if n, err := s.Sweep(ctx, "acme"); err != nil || n == 0 || len(listKeys(t, o, "t/acme/")) != 1 {
			t.Errorf("swept %d, %v: %v", n, err, listKeys(t, o, "t/acme/"))
		}
		if got, err := unpack(ctx, s, "rival", resolveUse(t, s, "rival", "data", 0)); err != nil || !isEqualTree(got, one) {
			t.Errorf("another tenant's is %.200v, %v", got, err)
		}
		if n, err := s.Sweep(ctx, "rival"); err != nil || n != 0 {
			t.Errorf("swept %d of what is needed, %v", n, err)
		}
	})
}

// TestConcurrentChangesToDifferentPathsMerge commits the changes of two sandboxes that started from the
// same version. The store merges the changes, unless they affect the same path.
func TestConcurrentChangesToDifferentPathsMerge(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		base := tree{"a": "1", "b": "1", "d/": "", "d/x": "1"}
		if _, err := commit(ctx, s, "acme", "sb0", resolveUse(t, s, "acme", "data", 0), base); err != nil {
			t.Fatal(err)
		}
		use := resolveUse(t, s, "acme", "data", 0)
		if _, err := commit(ctx, s, "acme", "sb1", use, tree{"a": "mine", "b": "1", "d/": "", "d/x": "1"}); err != nil {
			t.Fatal(err)
		}
		// The second sandbox has changed another path.
		theirs := tree{"a": "1", "b": "theirs", "d/": "", "d/x": "1"}
		c, err := commit(ctx, s, "acme", "sb2", use, theirs)
		if err != nil || c.Version.Number != 3 || c.Changed != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		// The second sandbox's next commit is compared with its own files and
		// not with the merge.
		next := use
		next.Version = 3
		theirs["b"], theirs["n"] = "again", "new"
		if c, err = commit(ctx, s, "acme", "sb2", next, theirs); err != nil || c.Version.Number != 4 || c.Changed != 2 {
			t.Fatalf("%+v, %v", c, err)
		}
		want := tree{"a": "mine", "b": "again", "d/": "", "d/x": "1", "n": "new"}
		if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, want) {
			t.Errorf("merged is %v, %v", got, err)
		}
		if n, err := s.Sweep(ctx, "acme"); err != nil || n != 0 {
			t.Errorf("swept %d of what is needed, %v", n, err)
		}
		for what, tr := range map[string]tree{
			"the same path":           {"a": "other", "b": "1", "d/": "", "d/x": "1"},
			"removed what changed":    {"b": "1", "d/": "", "d/x": "1"},
			"another directory there": {"a": "1", "b": "1", "d/": "", "d/x": "1", "n/": "", "n/y": "1"},
		} {
			if _, err := commit(ctx, s, "acme", "sb3", use, tr); brig.KindOf(err) != brig.FailedPrecondition {
				t.Errorf("%s: %v", what, err)
			}
		}
		// One sandbox removes a directory into which the other writes.
		last := resolveUse(t, s, "acme", "data", 0)
		removed := tree{"a": "mine", "b": "again", "n": "new"}
		if _, err := commit(ctx, s, "acme", "sb4", last, removed); err != nil {
			t.Fatal(err)
		}
		want["d/y"] = "1"
		if _, err := commit(ctx, s, "acme", "sb5", last, want); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("written into what is gone: %v", err)
		}
		// Concurrent commits that each add a different file all succeed.
		last = resolveUse(t, s, "acme", "data", 0)
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				tr := tree{"a": "mine", "b": "again", "n": "new", fmt.Sprint("w", i): "1"}
				if _, err := commit(ctx, s, "acme", brig.ID(fmt.Sprint("sb-w", i)), last, tr); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || len(got) != 11 {
			t.Errorf("after eight at once there is %v, %v", got, err)
		}
	})
}

// dyingObjects simulates a server that dies: after a given number of writes, all
// further writes fail.
type dyingObjects struct {
	workspace.Objects
	mu        sync.Mutex
	remaining int
}

var errDead = errors.New("the server is dead")

func (d *dyingObjects) countWrite() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.remaining--; d.remaining < 0 {
		return errDead
	}
	return nil
}

func (d *dyingObjects) Put(ctx context.Context, key string, data []byte) error {
	if err := d.countWrite(); err != nil {
		return err
	}
	return d.Objects.Put(ctx, key, data)
}

func (d *dyingObjects) Create(ctx context.Context, key string, data []byte) error {
	if err := d.countWrite(); err != nil {
		return err
	}
	return d.Objects.Create(ctx, key, data)
}

// TestCrashAtEveryWriteKeepsOneVersion checks that a crash after any write of a commit leaves
// either the old or the new version, and only garbage that a sweep removes.
func TestCrashAtEveryWriteKeepsOneVersion(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		before := tree{"a": "old", "b": "old"}
		if _, err := commit(ctx, s, "acme", "sb0", resolveUse(t, s, "acme", "data", 0), before); err != nil {
			t.Fatal(err)
		}
		old, done := 0, false
		for n := 0; !done; n++ {
			after := tree{"a": fmt.Sprint("new", n), "c/": "", "c/d": fmt.Sprint("newer", n), "c/e": fmt.Sprint("newest", n)}
			_, err := commit(ctx, workspace.New(&dyingObjects{Objects: o, remaining: n}, nil), "acme", "sb1", resolveUse(t, s, "acme", "data", 0), after)
			done = err == nil
			got, lost := unpack(ctx, workspace.New(o.reopen(), nil), "acme", resolveUse(t, s, "acme", "data", 0))
			switch {
			case lost != nil:
				t.Fatalf("after %d writes: %v", n, lost)
			case done && !isEqualTree(got, after), !done && !isEqualTree(got, before):
				t.Errorf("after %d writes, %v: there is %v", n, err, got)
			case !done:
				old++
			}
			if _, err := s.Sweep(ctx, "acme"); err != nil {
				t.Error(err)
			}
			if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || done && !isEqualTree(got, after) || !done && !isEqualTree(got, before) {
				t.Errorf("swept after %d writes there is %v, %v", n, got, err)
			}
		}
		if old != 5 { // three contents, a manifest, a record
			t.Errorf("a commit has %d writes", old)
		}
	})
}

// TestCommitFindsVersionMissingFromRecord simulates a server that dies right after a
// commit, before it stores the new version in the sandbox's record. The record
// then contains the old version, but the sandbox's next commit is still
// compared with its last commit.
func TestCommitFindsVersionMissingFromRecord(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb0", resolveUse(t, s, "acme", "data", 0), tree{"a": "1", "b": "1"}); err != nil {
			t.Fatal(err)
		}
		old := resolveUse(t, s, "acme", "data", 0)
		if _, err := commit(ctx, s, "acme", "sb1", old, tree{"a": "2", "b": "1"}); err != nil {
			t.Fatal(err)
		}
		// Other sandboxes commit more versions than the store examines in one
		// step.
		for i := range 20 {
			if _, err := commit(ctx, s, "acme", brig.ID(fmt.Sprint("sb-other", i)), old, tree{"a": "1", "b": "1", fmt.Sprint("o", i): "1"}); err != nil {
				t.Fatal(err)
			}
		}
		content := func(path string) string {
			t.Helper()
			got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0))
			if err != nil || len(got) != 22 {
				t.Fatalf("there is %v, %v", got, err)
			}
			return got[path]
		}
		for _, a := range []string{"1", "3"} { // the content of the old version, and another change
			c, err := commit(ctx, s, "acme", "sb1", old, tree{"a": a, "b": "1"})
			if err != nil || c.Changed != 1 {
				t.Fatalf("%q: %+v, %v", a, c, err)
			}
			if got := content("a"); got != a {
				t.Errorf("a is %q, want %q", got, a)
			}
		}
		// Another sandbox that started from the old version still conflicts.
		if _, err := commit(ctx, s, "acme", "sb2", old, tree{"a": "other", "b": "1"}); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("another sandbox's commit of the same path: %v", err)
		}
	})
}

// TestSkippedPathsAreCheap checks that a skipped path does not cause a scan of the
// whole version, because a sandbox can have any number of skipped paths.
func TestSkippedPathsAreCheap(t *testing.T) {
	ctx := t.Context()
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	had := tree{"a-b": "", "a/": "", "a/b/": "", "a/b/c": "", "a/d": ""}
	for n := range 20_000 {
		had[fmt.Sprint("f", n)] = ""
	}
	if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), had); err != nil {
		t.Fatal(err)
	}
	var skipped []brig.Node
	for n := range 120_000 {
		skipped = append(skipped, brig.Node{Path: fmt.Sprint("pipe", n), Skipped: "it is a pipe"})
	}
	begun := time.Now()
	remaining := tree{"a/": ""}
	c, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), remaining, append(skipped, brig.Node{Path: "a/b", Skipped: "it cannot be read"})...)
	if took := time.Since(begun); err != nil || c.Passed != 120_001 || took > 20*time.Second {
		t.Errorf("%v; %d are passed over, in %v", err, c.Passed, took)
	}
	want := tree{"a/": "", "a/b/": "", "a/b/c": ""}
	if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, want) {
		t.Errorf("there is %.200v, %v", got, err)
	}
}

// TestWorkspaceCountIsLimited checks that the number of workspaces is limited
// for each tenant separately.
func TestWorkspaceCountIsLimited(t *testing.T) {
	workspace.SetMaxWorkspaces(t, 2)
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		for _, name := range []string{"a", "b"} {
			for _, tenant := range []string{"acme", "rival"} {
				if _, err := s.Create(ctx, tenant, name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := s.Create(ctx, "acme", "c"); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("one too many: %v", err)
		}
	})
}
