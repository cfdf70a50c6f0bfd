package workspace_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/workspace"
)

func readObject(t *testing.T, o workspace.Objects, key string) string {
	t.Helper()
	r, err := o.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	return string(b)
}

// TestObjectsMeetContract checks the contract of Objects on each implementation.
func TestObjectsMeetContract(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx := t.Context()
		if _, err := o.Get(ctx, "t/none/x"); !errors.Is(err, workspace.ErrMissing) {
			t.Errorf("what is not there: %v", err)
		}
		if n, err := o.Size(ctx, "t/none/x"); !errors.Is(err, workspace.ErrMissing) {
			t.Errorf("a missing object has %d bytes, %v", n, err)
		}
		if err := o.Delete(ctx, "t/none/x"); err != nil {
			t.Errorf("delete a missing object: %v", err)
		}
		if got := listKeys(t, o, "t/none/"); len(got) != 0 {
			t.Errorf("nothing is listed as %v", got)
		}
		for _, content := range []string{"one", "", strings.Repeat("two", 100_000)} {
			if err := o.Put(ctx, "t/a/blobs/x", []byte(content)); err != nil || readObject(t, o, "t/a/blobs/x") != content {
				t.Errorf("put of %d bytes: %v", len(content), err)
			}
			if n, err := o.Size(ctx, "t/a/blobs/x"); err != nil || n != int64(len(content)) {
				t.Errorf("an object of %d bytes has %d, %v", len(content), n, err)
			}
		}
		if err := o.Create(ctx, "t/a/names/n", []byte("first")); err != nil {
			t.Fatal(err)
		}
		if err := o.Create(ctx, "t/a/names/n", []byte("second")); !errors.Is(err, workspace.ErrTaken) || readObject(t, o, "t/a/names/n") != "first" {
			t.Errorf("a second one: %v", err)
		}
		if err := o.Put(ctx, "t/ab/names/n", nil); err != nil {
			t.Fatal(err)
		}
		if got := listKeys(t, o, "t/a/"); !slices.Equal(got, []string{"t/a/blobs/x", "t/a/names/n"}) {
			t.Errorf("listed %v", got)
		}
		if got := listKeys(t, o.reopen(), "t/"); len(got) != 3 {
			t.Errorf("opened again it has %v", got)
		}
		if err := o.Delete(ctx, "t/a/names/n"); err != nil {
			t.Fatal(err)
		}
		if n, err := o.Size(ctx, "t/a/names/n"); !errors.Is(err, workspace.ErrMissing) {
			t.Errorf("after its removal it has %d bytes, %v", n, err)
		}
		if err := o.Create(ctx, "t/a/names/n", []byte("third")); err != nil {
			t.Errorf("create what was removed: %v", err)
		}
	})
}

// TestStagedObjectAppearsWhenComplete checks that a large object is not kept in memory, and that
// it does not exist before it is complete.
func TestStagedObjectAppearsWhenComplete(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx := t.Context()
		piece := []byte(rand.Text() + strings.Repeat("x", 1<<20))
		for _, keep := range []bool{false, true} {
			s, err := o.Stage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if _, err := s.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if got := listKeys(t, o, "t/"); len(got) != 0 {
				t.Errorf("before it is kept there is %v", got)
			}
			if keep {
				if err := s.Publish(ctx, "t/a/blobs/large"); err != nil {
					t.Fatal(err)
				}
			}
			s.Abort()
			s.Abort()
		}
		if got := readObject(t, o, "t/a/blobs/large"); got != string(bytes.Repeat(piece, 20)) {
			t.Errorf("it has %d bytes", len(got))
		}
	})
}

// TestObjectsCreateOnce checks that exactly one of many concurrent calls
// creates an object.
func TestObjectsCreateOnce(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		for round := range 10 {
			var work sync.WaitGroup
			var won atomic.Int32
			key := fmt.Sprintf("t/a/versions/w/%08d", round)
			for i := range 16 {
				work.Go(func() {
					switch err := o.Create(t.Context(), key, []byte(fmt.Sprint(i))); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, workspace.ErrTaken):
						t.Errorf("create: %v", err)
					}
				})
			}
			work.Wait()
			if won.Load() != 1 {
				t.Errorf("round %d: %d have created it", round, won.Load())
			}
		}
	})
}

// TestObjectKeysCannotEscape checks that keys cannot escape from the store (FS-07,
// FS-08).
func TestObjectKeysCannotEscape(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx := t.Context()
		for _, key := range []string{
			"", "/", "../x", "t/../x", "t/./x", "/t/x", "t//x", "t/x\x00", "t/X", "t/a b", "t/%2e%2e/x", `t\x`, "t/\xff", "t/.x", "t/x/..",
		} {
			for op, f := range map[string]func() error{
				"put":    func() error { return o.Put(ctx, key, []byte("x")) },
				"create": func() error { return o.Create(ctx, key, []byte("x")) },
				"get": func() error {
					r, err := o.Get(ctx, key)
					if err == nil {
						r.Close()
					}
					return err
				},
				"delete": func() error { return o.Delete(ctx, key) },
			} {
				err := f()
				if err == nil {
					t.Errorf("%s %q", op, key)
				}
				attack.RecordCase("FS-08", fmt.Sprintf("%s, %s %+q", t.Name(), op, key), err == nil)
			}
		}
	})
	// The control: without the check, a key joined to the directory leads out of it.
	outside := t.TempDir()
	for _, key := range []string{"../x", "t/../../y"} {
		if err := os.MkdirAll(filepath.Join(outside, "root", "t"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join(outside, "root")+"/"+key, []byte("x"), 0o600)
		_, err2 := os.Stat(filepath.Join(outside, filepath.Base(key)))
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", key, err, err2)
		}
		attack.RecordMutant("FS-08", key, "the look at keys", err == nil && err2 == nil)
	}
}

// TestSweepExcludesHolders checks that a sweep excludes all other holders.
func TestSweepExcludesHolders(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		one, err := o.Hold(t.Context(), "t/a", false)
		if err != nil {
			t.Fatal(err)
		}
		two, err := o.Hold(t.Context(), "t/a", false)
		if err != nil {
			t.Fatal(err)
		}
		exclusive := make(chan func())
		go func() {
			release, err := o.Hold(t.Context(), "t/a", true)
			if err != nil {
				t.Error(err)
			}
			exclusive <- release
		}()
		one()
		select {
		case <-exclusive:
			t.Fatal("somebody is alone beside another")
		case <-time.After(50 * time.Millisecond):
		}
		other := make(chan error, 1)
		go func() {
			release, err := o.Hold(t.Context(), "t/b", false)
			if err == nil {
				release()
			}
			other <- err
		}()
		select {
		case err := <-other:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("a tenant waits for another's sweep")
		}
		two()
		(<-exclusive)()
	})
}

// TestDirKeepsHoles checks that Dir stores a sparse file as a sparse file.
func TestDirKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	o, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 64<<10)
	for name, parts := range map[string][][]byte{
		"in the middle": {[]byte("begin"), zeros, zeros, []byte("end")},
		"at the end":    {[]byte("begin"), zeros, zeros},
		"all of it":     {zeros, zeros, zeros},
	} {
		key := "t/acme/" + strings.ReplaceAll(name, " ", "-")
		s, err := o.Stage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if n, err := s.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := s.Publish(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := readObject(t, o, key); got != string(bytes.Join(parts, nil)) {
			t.Errorf("%s: %d bytes are another's", name, len(got))
		}
	}
	var took int64
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err == nil {
			took += st.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil || took > 64<<10 {
		t.Errorf("448 KiB of zeros take %d bytes of the disk, %v", took, err)
	}
}
