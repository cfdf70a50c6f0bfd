package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// awaitPacked waits until the save of a paused sandbox is packed, and returns the disk usage of
// all its files.
func awaitPacked(t *testing.T, dir string, id brig.ID) (size int64) {
	t.Helper()
	save := filepath.Join(dir, "saves", string(id))
	for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(10 * time.Millisecond) {
		var names []string
		entries, err := os.ReadDir(save)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if slices.Equal(names, []string{"manifest.json", "packed.seal"}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the save was not packed, it has the files %v", names)
		}
	}
	for _, top := range []string{save, filepath.Join(dir, "sandboxes", string(id))} {
		err := filepath.WalkDir(top, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := d.Info()
			if err == nil {
				size += (st.Size() + 4095) &^ 4095
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return size
}

// TestPackedSandboxCanBeResumed verifies that the save of a paused Python sandbox is eventually compressed
// and encrypted, and that its size is bounded. The next server can resume the sandbox with its
// variables, and copy it. A sandbox whose packed file was replaced with that of another sandbox
// stays paused, and can be resumed when its own file is restored.
//
//suite:part crash
func TestPackedSandboxCanBeResumed(t *testing.T) {
	needRoot(t)
	c := startCrashingServer(t, "pool: {size: -1}\npause: {pack_after: 1s}\n")
	ctx := t.Context()
	svc, box, cx := c.withVariable(t, ctx, false)
	runCell(t, ctx, svc, "one", cx.ID, "mark = 'a mark in ' + 'the memory'")
	other, err := svc.Create(ctx, brig.Spec{Name: "two", TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := svc.Create(ctx, brig.Spec{Name: "bare", TTL: 10 * time.Minute, Env: map[string]string{"BRIG_NO_IPYTHON": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.RunCode(ctx, "bare", brig.Code{Source: "y = 1"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "bare"} {
		if _, err := svc.Pause(ctx, name, brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pages := filepath.Join(c.dir, "saves", string(box.ID), "pages.img")
	if b, err := os.ReadFile(pages); err != nil || !bytes.Contains(b, []byte("a mark in the memory")) {
		t.Errorf("control: before it is packed, the memory is not on disk, %v", err)
	}
	for _, kind := range []struct {
		what    string
		id      brig.ID
		maxSize int64
	}{{"no interpreter", other.ID, 1 << 20}, {"Python", bare.ID, 4 << 20}, {"IPython", box.ID, 14 << 20}} {
		size := awaitPacked(t, c.dir, kind.id)
		t.Logf("with %s it takes %d KiB of disk", kind.what, size>>10)
		if size > kind.maxSize {
			t.Errorf("with %s it takes %d bytes of disk, want at most %d", kind.what, size, kind.maxSize)
		}
	}
	file := func(id brig.ID) string { return filepath.Join(c.dir, "saves", string(id), "packed.seal") }
	own, err := os.ReadFile(file(box.ID))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(own, []byte("a mark in the memory")) {
		t.Error("the packed file has the memory in plain")
	}
	c.srv.kill()
	c.launch()
	c.srv.await()
	svc = c.srv.client()

	otherSave, err := os.ReadFile(file(other.ID))
	if err == nil {
		err = os.WriteFile(file(box.ID), otherSave, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Resume(ctx, "one"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("the resume with the save of another sandbox: %v", err)
	}
	if now, err := svc.Get(ctx, "one"); err != nil || now.State != brig.Paused {
		t.Fatalf("it is %+v, %v", now, err)
	}
	if err := os.WriteFile(file(box.ID), own, 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := svc.Get(ctx, "one"); err != nil || now.Pause == nil || now.Pause.Bytes > 14<<20 {
		t.Errorf("it is %+v, %v", now, err)
	}
	copies, err := svc.Fork(ctx, "one", brig.ForkSpec{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range copies {
		if err := svc.Remove(ctx, s.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	awaitPacked(t, c.dir, box.ID)
	began := time.Now()
	if _, err := svc.Resume(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	t.Logf("the resume of a packed sandbox took %s", time.Since(began))
	if got := runCell(t, ctx, svc, "one", cx.ID, "print(x + 1)"); got != "42" {
		t.Errorf("its context printed %q", got)
	}
	if second, err := svc.Pause(ctx, "one", brig.PauseOptions{}); err != nil || second.Pause.Bytes < 1<<20 {
		t.Errorf("a second pause: %+v, %v", second, err)
	}
	began = time.Now()
	if got := runCell(t, ctx, svc, "one", cx.ID, "print(x + 1)"); got != "42" {
		t.Errorf("its context printed %q", got)
	}
	t.Logf("a cell in a paused sandbox that is not packed took %s", time.Since(began))
	for _, name := range []string{"one", "two", "bare"} {
		if err := svc.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
}
