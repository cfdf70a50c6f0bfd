package e2e

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/race"
)

// sandboxRunner creates sandboxes and runs scripts in them.
type sandboxRunner struct {
	t   *testing.T
	svc brig.Service
	ctx context.Context
}

func (b sandboxRunner) create(spec brig.Spec) *brig.Sandbox {
	b.t.Helper()
	box, err := b.svc.Create(b.ctx, spec)
	if err != nil {
		b.t.Fatalf("create %s: %v", spec.Name, err)
	}
	b.t.Cleanup(func() { _, _ = b.svc.Kill(context.WithoutCancel(b.ctx), string(box.ID)) })
	return box
}

// sh runs a script, which must succeed, and returns its output.
func (b sandboxRunner) sh(box, script string) string {
	b.t.Helper()
	res, err := b.svc.Exec(b.ctx, box, brig.Command{Shell: script, Timeout: 5 * time.Minute}, brig.IO{})
	if err != nil || res.ExitCode != 0 {
		b.t.Fatalf("in %s: %v, %d: %s%s", box, err, res.ExitCode, res.Stdout.Head, res.Stderr.Head)
	}
	return string(res.Stdout.Head)
}

// treeOf returns the files below a directory, with their sizes.
func treeOf(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Lstat(name)
		if err == nil {
			out[name] = st.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// promptTimeout is the maximum wait for an event that is immediate on an idle host. It is long
// because tests run concurrently, but shorter than the run time of sleeping programs that must end
// early.
var promptTimeout = race.ScaleTimeout(15 * time.Second)

// eventually waits until ok returns true, and fails the test after a default time.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventuallyWithin(t, 2*promptTimeout, what, ok)
}

// eventuallyWithin is like eventually, but with the given time limit.
func eventuallyWithin(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not yet", what)
		}
	}
}
