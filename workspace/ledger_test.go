package workspace_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// commitWithin is commit with a quota.
func commitWithin(ctx context.Context, s *workspace.Store, quota int64, use brig.WorkspaceUse, tr tree) (*brig.WorkspaceCommit, error) {
	c, err := s.Begin(ctx, "acme", "sb1", use, quota)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, n := range tr.nodes() {
		if err := c.Add(ctx, n, strings.NewReader(tr[n.Path])); err != nil {
			return nil, err
		}
	}
	return c.Commit(ctx, "ann")
}

// storedBytes returns the total size of a tenant's stored contents and manifests.
func storedBytes(t *testing.T, o workspace.Objects) (sum int64) {
	t.Helper()
	for _, key := range listKeys(t, o, "t/acme/blobs/") {
		r, err := o.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// wantStored checks that both this store and a new store report the actual
// usage.
func wantStored(t *testing.T, s *workspace.Store, a arena) int64 {
	t.Helper()
	if _, err := s.Sweep(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	want := storedBytes(t, a) + int64(len(listKeys(t, a, "t/acme/versions/")))*4096
	for _, store := range []*workspace.Store{s, workspace.New(a.reopen(), nil)} {
		if got, err := store.Stored(t.Context(), "acme"); err != nil || got != want {
			t.Errorf("%d bytes are counted, %v, where there are %d", got, err, want)
		}
	}
	return want
}

// TestCommitMustFitQuota checks that the additional bytes of a version must fit the quota.
// Contents already stored by the tenant are free, and removed contents release
// their bytes.
func TestCommitMustFitQuota(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("l", 2<<20)
		one := tree{"small": strings.Repeat("s", 1000), "large": large, "again": large}
		const quota = 3 << 20
		if _, err := commitWithin(ctx, s, quota, resolveUse(t, s, "acme", "data", 0), one); err != nil {
			t.Fatal(err)
		}
		first := wantStored(t, s, a)
		if first < 2<<20+5000 || first > 2<<20+8000 {
			t.Errorf("%d bytes are taken", first)
		}
		for what, tr := range map[string]tree{
			"large":        {"other": strings.Repeat("o", 2<<20)},
			"beyond all":   {"other": strings.Repeat("o", 4<<20)},
			"many":         {"a": strings.Repeat("a", 400<<10), "b": strings.Repeat("b", 400<<10), "c": strings.Repeat("c", 400<<10)},
			"one too many": {"a": strings.Repeat("a", quota-int(first))},
		} {
			_, err := commitWithin(ctx, s, quota, resolveUse(t, s, "acme", "data", 0), tr)
			if e := brig.AsError(err); e == nil || e.Kind != brig.RateLimited || e.Field != "quota.workspaces" || e.RetryAfter == 0 || !strings.Contains(e.Hint, "remove workspaces") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := wantStored(t, s, a); got != first {
			t.Errorf("what was refused takes %d bytes", got-first)
		}
		if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, one) {
			t.Errorf("after that the workspace has %.200v, %v", got, err)
		}
		// A version with the same content under another name adds only the size
		// of a manifest.
		if _, err := s.Create(ctx, "acme", "copy"); err != nil {
			t.Fatal(err)
		}
		if _, err := commitWithin(ctx, s, quota, resolveUse(t, s, "acme", "copy", 0), tree{"other-name": large}); err != nil {
			t.Error(err)
		}
		if v, err := s.Restore(ctx, "acme", "ann", "data", 1, 0); err != nil || v.Number != 1 { // already the newest
			t.Errorf("%+v, %v", v, err)
		}
		if got := wantStored(t, s, a); got <= first || got > first+5500 {
			t.Errorf("the same content takes %d bytes more", got-first)
		}
		if err := s.Remove(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Stored(ctx, "acme"); err != nil || got > 2<<20+6000 {
			t.Errorf("after a removal %d bytes are counted, %v", got, err)
		}
		wantStored(t, s, a)
		if err := s.Remove(ctx, "acme", "copy"); err != nil {
			t.Fatal(err)
		}
		if got := wantStored(t, s, a); got != 0 {
			t.Errorf("%d bytes are left of nothing", got)
		}
	})
}

// TestConcurrentCommitsUseQuotaExactly runs many concurrent commits, only some of which fit into the
// quota. The successful commits use the quota exactly, and all their versions
// can be read.
func TestConcurrentCommitsUseQuotaExactly(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		const each, fit, many = 100_000, 5, 30
		tr := func(i int) tree { return tree{"f": fmt.Sprintf("%05d", i) + strings.Repeat("x", each-5)} }
		uses := make([]brig.WorkspaceUse, many)
		for i := range many {
			name := fmt.Sprintf("w%d", i)
			if _, err := s.Create(ctx, "acme", name); err != nil {
				t.Fatal(err)
			}
			uses[i] = resolveUse(t, s, "acme", name, 0)
		}
		if _, err := commitWithin(ctx, s, 0, uses[0], tr(0)); err != nil {
			t.Fatal(err)
		}
		one, err := s.Stored(ctx, "acme") // all manifests have the same size
		if err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		var won atomic.Int64
		for i := 1; i < many; i++ {
			done.Go(func() {
				_, err := commitWithin(ctx, s, one*fit, uses[i], tr(i))
				switch brig.KindOf(err) {
				case "":
					won.Add(1)
				case brig.RateLimited:
				default:
					t.Error(err)
				}
			})
			if i%10 == 0 { // a concurrent reload loses no state
				done.Go(func() {
					if _, err := s.Sweep(ctx, "acme"); err != nil {
						t.Error(err)
					}
				})
			}
		}
		done.Wait()
		if got := wantStored(t, s, a); got != one*(won.Load()+1) || got > one*fit {
			t.Errorf("%d bytes are taken by %d commits, of %d", got, won.Load(), one*fit)
		}
		// Commits that were refused because of concurrent attempts may be
		// retried.
		for i := 1; i < many && won.Load() < fit-1; i++ {
			c, err := commitWithin(ctx, s, one*fit, uses[i], tr(i))
			if err == nil && c.Changed > 0 {
				won.Add(1)
			}
		}
		if won.Load() != fit-1 {
			t.Errorf("%d commits had room, want %d", won.Load()+1, fit)
		}
		if got := wantStored(t, s, a); got != one*fit {
			t.Errorf("%d bytes are taken, want %d", got, one*fit)
		}
		_, err = commitWithin(ctx, s, one*fit+1, resolveUse(t, s, "acme", "w0", 0), tree{"f": "y"})
		if brig.KindOf(err) != brig.RateLimited {
			t.Errorf("one more: %v", err)
		}
	})
}

// TestCapturedFilesBelongToVersion checks that files captured outside /workspace are stored with
// their version, listed, readable, bounded and counted.
func TestCapturedFilesBelongToVersion(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		use := resolveUse(t, s, "acme", "data", 0)
		use.Capture, use.Prefixes = []string{"/home/user", "/etc/foo"}, []string{"out"}
		capture := func(tr tree, quota int64, more ...brig.Node) (*brig.WorkspaceCommit, error) {
			c, err := s.Begin(ctx, "acme", "sb1", use, quota)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Add(ctx, brig.Node{Path: "out", Type: brig.Directory, Mode: 0o755}, nil); err != nil {
				t.Fatal(err)
			}
			for _, n := range append(tr.nodes(), more...) {
				if err := c.AddOutside(ctx, n, strings.NewReader(tr[n.Path])); err != nil {
					return nil, err
				}
			}
			return c.Commit(ctx, "ann")
		}
		out, err := capture(tree{"home/user/": "", "home/user/.profile": "p", "home/user/empty/": "", "etc/foo": "foo", "home/user/l": "-> /etc/shadow"}, 0,
			brig.Node{Path: "home/user/pipe", Skipped: "it is a pipe"}, brig.Node{Path: "home/user/big", Type: brig.RegularFile, Size: brig.MaxWorkspaceCapturedSize})
		if err != nil || out.Version.Captured != 3 || out.Version.CapturedSize != 4 || out.Version.Files != 0 ||
			fmt.Sprint(out.Captured) != "[{/etc/foo file 420 3 } {/home/user/.profile file 420 1 } {/home/user/l symlink 511 0 /etc/shadow}]" {
			t.Fatalf("%+v, %+v, %v", out, out.Version, err)
		}
		if out.Passed != 2 || out.Skipped[0].Path != "/home/user/pipe" || out.Skipped[1].Path != "/home/user/big" || !strings.Contains(out.Skipped[1].Reason, "256MiB") {
			t.Errorf("skipped %+v", out.Skipped)
		}
		for place, want := range map[string]int{"": 3, "/": 3, "/home/user": 2, "/home/use": 0, "/etc/foo": 1, "/workspace": 0} {
			if list, err := s.Files(ctx, "acme", "data", 0, place); err != nil || len(list) != want {
				t.Errorf("at %q there is %+v, %v", place, list, err)
			}
		}
		if _, r, err := s.Read(ctx, "acme", "data", 1, "/etc/foo"); err != nil {
			t.Error(err)
		} else if b, err := io.ReadAll(r); err != nil || string(b) != "foo" || r.Close() != nil {
			t.Errorf("it reads %q, %v", b, err)
		}
		_, _, err = s.Read(ctx, "acme", "data", 1, "/home/user/l")
		if brig.AsError(err).Field != "path" {
			t.Errorf("a link reads as %v", err)
		}
		_, _, err = s.Read(ctx, "acme", "data", 1, "/etc/passwd")
		if brig.KindOf(err) != brig.NotFound {
			t.Errorf("what is not there reads as %v", err)
		}
		// No sandbox starts with the captured files. An identical capture creates
		// no version, and a different one does.
		if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, tree{"out/": ""}) {
			t.Errorf("a sandbox begins with %v, %v", got, err)
		}
		use = resolveUse(t, s, "acme", "data", 0)
		use.Capture = []string{"/etc/foo"}
		if out, err = capture(tree{"etc/foo": "foo"}, 0); err != nil || out.Version.Number != 2 {
			t.Errorf("%+v, %v", out, err)
		}
		use.Version = 2
		if out, err = capture(tree{"etc/foo": "foo"}, 0); err != nil || out.Version.Number != 2 || len(out.Captured) != 1 {
			t.Errorf("the same again: %+v, %v", out, err)
		}
		if v, err := s.Restore(ctx, "acme", "ann", "data", 1, 0); err != nil || v.Captured != 0 {
			t.Errorf("restored: %+v, %v", v, err)
		}
		use.Version = 3
		stored := wantStored(t, s, a)
		_, err = capture(tree{"etc/foo": strings.Repeat("x", 5000)}, stored+4000)
		if brig.AsError(err).Field != "quota.workspaces" {
			t.Errorf("over the quota: %v", err)
		}
		// A capture with more files than the limit lists the rest as skipped.
		many := tree{}
		for i := range brig.MaxWorkspaceCaptured + 5 {
			many[fmt.Sprintf("home/user/%04d", i)] = ""
		}
		if out, err = capture(many, 0); err != nil || len(out.Captured) != brig.MaxWorkspaceCaptured || out.Passed != 5 {
			t.Errorf("many: %d, %d, %v", len(out.Captured), out.Passed, err)
		}
	})
}

func TestCheckCaptureRejectsInvalidPaths(t *testing.T) {
	if got, err := workspace.CheckCapture([]string{"/home/user/", "/etc/foo", "/tmp"}); err != nil || fmt.Sprint(got) != "[/home/user /etc/foo /tmp]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "home", "/", "//", "/workspace", "/workspace/x", "/proc", "/proc/1", "/sys", "/dev/shm", "/home/../etc", "/etc/\x00", "/\xff"} {
		if got, err := workspace.CheckCapture([]string{"/etc", bad}); brig.AsError(err) == nil || brig.AsError(err).Field != "workspace.capture[1]" {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}
