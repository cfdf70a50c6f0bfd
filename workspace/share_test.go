package workspace_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestTenantsLeaveSharedBytes lets two tenants use as much of a shared budget
// as they can. The commits of a third tenant must not wait for them.
func TestTenantsLeaveSharedBytes(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const part = 2 << 20
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := workspace.New(o, nil)
	workspace.SetMaxMemoryWait(t, 20*time.Millisecond)
	begin := func(tenant string, quota int64) *workspace.Capture {
		t.Helper()
		if _, err := s.Create(ctx, tenant, "data"); err != nil {
			t.Fatal(err)
		}
		c, err := s.Begin(ctx, tenant, "sb1", resolveUse(t, s, tenant, "data", 0), quota)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	file := func(declared int64) brig.Node {
		return brig.Node{Path: "f", Type: brig.RegularFile, Mode: 0o644, Size: declared}
	}
	// stage begins to stage a file and stops in the middle of it.
	stage := func(c *workspace.Capture, declared int64, content string) {
		t.Helper()
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			err := c.Add(ctx, file(declared), io.MultiReader(strings.NewReader(content), r))
			r.CloseWithError(err)
			done <- err
		}()
		t.Cleanup(func() { w.Close(); <-done })
		if _, err := w.Write([]byte("y")); err != nil {
			t.Error(err)
		}
	}
	add := func(c *workspace.Capture) error {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return c.Add(short, file(part), strings.NewReader(strings.Repeat("x", part)))
	}
	full := strings.Repeat("z", 5*part/2)

	s.SetStaged(4*part, 8*part)
	for _, tenant := range []string{"sparse-1", "sparse-2"} {
		stage(begin(tenant, 0), 1<<40, strings.Repeat("\x00", part))
	}
	if err := add(begin("beside-sparse", 0)); err != nil {
		t.Errorf("two tenants declare large files and send zeros: %v", err)
	}
	// A tenant reserves at most as many bytes as it may store.
	small := begin("small", 0)
	small.SetQuota(2 * part)
	stage(small, 1<<40, strings.Repeat("x", part))
	other, err := s.Begin(ctx, "small", "sb2", resolveUse(t, s, "small", "data", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if err := add(other); err != nil {
		t.Errorf("the declared size exceeds the quota: %v", err)
	}

	s.SetStaged(4*part, 8*part)
	for _, tenant := range []string{"full-1", "full-2"} {
		stage(begin(tenant, 0), 4*part, full)
	}
	if err := add(begin("beside-full", 0)); err != nil {
		t.Errorf("two tenants stage all they can: %v", err)
	}
}

// TestNamesLeaveSharedMemory lets two tenants use as much memory for manifests
// as they can. The commit of a third tenant must not wait for them.
func TestNamesLeaveSharedMemory(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	workspace.SetMaxMemoryWait(t, 20*time.Millisecond)
	ctx, s := t.Context(), workspace.New(o, nil)
	s.SetMemory(4<<20, 8<<20)
	for _, tenant := range []string{"acme", "rival"} { // a first commit is admitted even if it exceeds a limit
		end, err := s.TakeMemory(ctx, tenant, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	for _, tenant := range []string{"acme", "rival", "other"} {
		if _, err := s.Create(ctx, tenant, "data"); err != nil {
			t.Fatal(err)
		}
		c, err := s.Begin(ctx, tenant, "sb1", resolveUse(t, s, tenant, "data", 0), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if tenant == "other" {
			break
		}
		for _, n := range longNames(100_000) {
			if err = c.Add(ctx, n, strings.NewReader("x"[:n.Size])); err != nil {
				break
			}
		}
		if brig.KindOf(err) != brig.Unavailable {
			t.Fatalf("more names than there is memory: %v", err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := commitNodes(short, s, "other", resolveUse(t, s, "other", "data", 0), longNames(100)); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// TestLargeWaiterIsNotStarved checks that a stream of small callers cannot starve
// a caller that waits for a large amount of memory.
func TestLargeWaiterIsNotStarved(t *testing.T) {
	s := workspace.New(nil, nil)
	workspace.SetMaxOvertake(t, 20*time.Millisecond)
	s.SetMemory(1000, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	small, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	begun := make(chan struct{}, 5)
	for i := range cap(begun) {
		work.Go(func() { // at any time, some of these callers hold memory
			for n := 0; small.Err() == nil; n++ {
				if end, err := s.TakeMemory(small, []string{"acme", "rival"}[i%2], 100); err == nil {
					if n == 0 {
						begun <- struct{}{}
					}
					time.Sleep(10 * time.Millisecond)
					end()
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	end, err := s.TakeMemory(ctx, "large", 990)
	if err != nil {
		t.Error("the large one does not get its turn: ", err)
	} else {
		end()
	}
	stop()
	work.Wait()
	if held, _ := s.Memory(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}
