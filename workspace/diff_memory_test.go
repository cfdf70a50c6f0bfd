package workspace_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// delayedObjects wraps Objects and delays Size, so that other operations can
// overtake.
type delayedObjects struct {
	workspace.Objects
	size func()
}

func (o delayedObjects) Size(ctx context.Context, key string) (int64, error) {
	o.size()
	return o.Objects.Size(ctx, key)
}

// TestConcurrentDiffsDoNotDeadlock checks for deadlocks: concurrent diffs that together exceed
// the memory limit must run one after the other.
func TestConcurrentDiffsDoNotDeadlock(t *testing.T) {
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	workspace.SetMaxMemoryWait(t, 200*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := workspace.New(delayedObjects{o, func() { time.Sleep(20 * time.Millisecond) }}, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		tr := tree{fmt.Sprint("of ", i): "x"}
		for n := range 500 {
			tr[fmt.Sprintf("d%d/", n)] = ""
		}
		if _, err := commit(ctx, s, "acme", brig.ID(fmt.Sprint("sb", i)), resolveUse(t, s, "acme", "data", 0), tr); err != nil {
			t.Fatal(err)
		}
	}
	s.SetMemory(1<<30, 1<<30)
	if _, err := s.Diff(ctx, "acme", "data", 1, 2); err != nil {
		t.Fatal(err)
	}
	_, both := s.Memory()
	s.SetMemory(both, 4*both)
	errs := make([]error, 4)
	var work sync.WaitGroup
	for i := range errs {
		work.Go(func() { _, errs[i] = s.Diff(ctx, "acme", "data", 1, 2) })
	}
	work.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("difference %d: %v", i, err)
		}
	}
	if _, err := s.Diff(ctx, "acme", "data", 1, 3); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a version that is not there: %v", err)
	}
	if held, _ := s.Memory(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}
