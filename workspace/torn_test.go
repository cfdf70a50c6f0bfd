package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig/workspace"
)

// TestTornContentIsReplaced simulates a power failure during a commit, after
// which the name of a content is durable but its bytes are not. A later commit
// of the same content must store the bytes again.
func TestTornContentIsReplaced(t *testing.T) {
	dir := t.TempDir()
	o, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	use := resolveUse(t, s, "acme", "data", 0)
	want := tree{"large": strings.Repeat("l", 3<<20), "small": "small"}
	c, err := s.Begin(ctx, "acme", "sb1", use, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range want.nodes() {
		if err := c.Add(ctx, n, strings.NewReader(want[n.Path])); err != nil {
			t.Fatal(err)
		}
	}
	c.Close() // the power fails before the commit
	torn := listKeys(t, o, "t/acme/blobs/")
	if len(torn) != 2 {
		t.Fatalf("%d contents are written, want 2", len(torn))
	}
	for _, key := range torn {
		if err := os.Truncate(filepath.Join(dir, "objects", filepath.FromSlash(key)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := commit(ctx, s, "acme", "sb2", use, want); err != nil {
		t.Fatal(err)
	}
	if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 0)); err != nil || !isEqualTree(got, want) {
		t.Errorf("version 1 is %.100v, %v", got, err)
	}
}

// TestConcurrentPublishesAreDurable lets several commits publish the same new content
// concurrently. A version may reference the first object immediately, so each later
// object must be durable before it replaces the first.
func TestConcurrentPublishesAreDurable(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var synced atomic.Int64
	workspace.SetSyncFile(t, func(f *os.File) error { synced.Add(1); return nil })
	const writers = 4
	for round := range 100 {
		key := fmt.Sprint("t/a/blobs/", round)
		synced.Store(0)
		begin := make(chan struct{})
		var work sync.WaitGroup
		for range writers {
			s, err := o.Stage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("content")); err != nil {
				t.Fatal(err)
			}
			work.Go(func() {
				defer s.Abort()
				<-begin
				if err := s.Publish(t.Context(), key); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		work.Wait()
		if n := synced.Load(); n != writers-1 || readObject(t, o, key) != "content" {
			t.Fatalf("round %d: %d of %d were synced, and there is %q", round, n, writers, readObject(t, o, key))
		}
	}
	if n, err := o.RemoveAbandoned(t.Context(), ""); n != 0 || err != nil {
		t.Errorf("%d staged files are left, %v", n, err)
	}
}

// TestPutKeepsEqualObject checks that Put does not replace an equal object. A
// power failure could tear the new object, while versions already reference
// the old one.
func TestPutKeepsEqualObject(t *testing.T) {
	dir := t.TempDir()
	o, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "objects", "t", "a")
	var before os.FileInfo
	for _, content := range []string{"one", "one", "two", "longer"} {
		if err := o.Put(t.Context(), "t/a", []byte(content)); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(file)
		if err != nil || readObject(t, o, "t/a") != content {
			t.Fatalf("%q: %v", content, err)
		}
		if before != nil && os.SameFile(before, now) != (content == "one") {
			t.Errorf("%q: the same file: %t", content, os.SameFile(before, now))
		}
		before = now
	}
}
