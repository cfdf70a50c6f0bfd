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

// TestTornContentIsReplaced simulates a power failure during a commit: the name
// of a content is durable, and the content is not. A later commit of the same
// content must store it again.
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
	use := at(t, s, "acme", "data", 0)
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
	torn := keys(t, o, "t/acme/blobs/")
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
	if got, err := unpack(ctx, s, "acme", at(t, s, "acme", "data", 0)); err != nil || !equalTrees(got, want) {
		t.Errorf("version 1 is %.100v, %v", got, err)
	}
}

// TestConcurrentPublishes has commits publish the same new content at once. A version
// may name the first one as soon as it has its name, so each later one must be
// durable before it takes that name.
func TestConcurrentPublishes(t *testing.T) {
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
		if n := synced.Load(); n != writers-1 || get(t, o, key) != "content" {
			t.Fatalf("round %d: %d of %d were synced, and there is %q", round, n, writers, get(t, o, key))
		}
	}
	if n, err := o.RemoveAbandoned(t.Context(), ""); n != 0 || err != nil {
		t.Errorf("%d staged files are left, %v", n, err)
	}
}

// TestPutKeepsEqualObject checks that a content that is there is not replaced,
// since a power failure could tear the new one, and versions name the old one.
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
		if err != nil || get(t, o, "t/a") != content {
			t.Fatalf("%q: %v", content, err)
		}
		if before != nil && os.SameFile(before, now) != (content == "one") {
			t.Errorf("%q: the same file: %t", content, os.SameFile(before, now))
		}
		before = now
	}
}
