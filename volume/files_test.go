package volume_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/volume"
)

const testSize = 64 * brig.MiB

// newVolume returns the files of a new volume, and a path by which a test can reach them as a sandbox would.
func newVolume(t *testing.T) (*volume.Files, string) {
	t.Helper()
	s, err := volume.Open(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(s.Close)
	if err := errors.Join(s.Prepare(t.Context(), "vol1", testSize), s.Commit("vol1")); err != nil {
		t.Fatal(err)
	}
	f, release, err := s.Files("vol1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return f, volume.RootPath(f)
}

func number(n uint32) *uint32 { return &n }

func write(t *testing.T, f *volume.Files, p, text string) {
	t.Helper()
	if _, err := f.Write(t.Context(), p, brig.VolumeWrite{Force: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func read(f *volume.Files, p string) (string, error) {
	_, r, err := f.Read(nil, p) //nolint:staticcheck // no context is used
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func wantKind(t *testing.T, what string, err error, want brig.Kind) {
	t.Helper()
	if got := brig.KindOf(err); err == nil || got != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestWriteAndRead(t *testing.T) {
	f, _ := newVolume(t)
	ctx := t.Context()
	e, err := f.Write(ctx, "/a.txt", brig.VolumeWrite{}, strings.NewReader("one"))
	if err != nil {
		t.Fatal(err)
	}
	if e.Path != "/a.txt" || e.Name != "a.txt" || e.Type != brig.RegularFile || e.Size != 3 || e.Mode != 0o644 || e.UID != 1000 || e.GID != 1000 || time.Since(e.Modified) > time.Minute {
		t.Errorf("entry %+v", e)
	}
	_, err = f.Write(ctx, "a.txt", brig.VolumeWrite{}, strings.NewReader("two"))
	wantKind(t, "an existing file without force", err, brig.AlreadyExists)
	_, err = f.Write(ctx, "no/b.txt", brig.VolumeWrite{}, strings.NewReader("two"))
	wantKind(t, "a missing parent without force", err, brig.NotFound)
	if got, err := read(f, "/a.txt"); err != nil || got != "one" {
		t.Errorf("after rejected writes: %q, %v", got, err)
	}
	owned := brig.VolumeWrite{VolumeAttributes: brig.VolumeAttributes{UID: number(0), GID: number(7), Mode: number(0o4750)}, Force: true}
	if e, err = f.Write(ctx, "x/y/b.txt", owned, strings.NewReader("")); err != nil || e.UID != 0 || e.GID != 7 || e.Mode != 0o4750 || e.Size != 0 {
		t.Errorf("with owner and parents: %+v, %v", e, err)
	}
	if e, err = f.Write(ctx, "x/y/b.txt", brig.VolumeWrite{Force: true}, strings.NewReader("22")); err != nil || e.UID != 0 || e.Size != 2 {
		t.Errorf("a replaced file keeps its owner: %+v, %v", e, err)
	}
	_, err = f.Write(ctx, "x", brig.VolumeWrite{Force: true}, strings.NewReader(""))
	wantKind(t, "a directory", err, brig.FailedPrecondition)
	_, err = f.Write(ctx, "a.txt/b", brig.VolumeWrite{Force: true}, strings.NewReader(""))
	wantKind(t, "below a file", err, brig.FailedPrecondition)
	_, _, err = f.Read(ctx, "x")
	wantKind(t, "read of a directory", err, brig.FailedPrecondition)
	_, _, err = f.Read(ctx, "nothing")
	wantKind(t, "read of nothing", err, brig.NotFound)
	_, err = f.Write(ctx, "a\x00b", brig.VolumeWrite{}, strings.NewReader(""))
	wantKind(t, "NUL", err, brig.InvalidArgument)
	_, err = f.Write(ctx, strings.Repeat("n", 256), brig.VolumeWrite{}, strings.NewReader(""))
	wantKind(t, "a long name", err, brig.InvalidArgument)
}

func TestFullVolume(t *testing.T) {
	f, _ := newVolume(t)
	_, err := f.Write(t.Context(), "big", brig.VolumeWrite{}, io.LimitReader(zeros{}, testSize))
	wantKind(t, "a file of the volume's size", err, brig.FailedPrecondition)
	if !strings.Contains(err.Error(), "full") {
		t.Error(err)
	}
	if err := f.Remove(t.Context(), "big"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "small", "fits")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestDirectories(t *testing.T) {
	f, _ := newVolume(t)
	ctx := t.Context()
	if e, err := f.MakeDir(ctx, "/d", brig.VolumeWrite{}); err != nil || e.Type != brig.Directory || e.Mode != 0o755 || e.UID != 1000 {
		t.Errorf("%+v, %v", e, err)
	}
	_, err := f.MakeDir(ctx, "d", brig.VolumeWrite{})
	wantKind(t, "an existing directory", err, brig.AlreadyExists)
	_, err = f.MakeDir(ctx, "n/o", brig.VolumeWrite{})
	wantKind(t, "a missing parent", err, brig.NotFound)
	if e, err := f.MakeDir(ctx, "d/e/f", brig.VolumeWrite{Force: true, VolumeAttributes: brig.VolumeAttributes{Mode: number(0o700)}}); err != nil || e.Mode != 0o700 {
		t.Errorf("with parents: %+v, %v", e, err)
	}
	if e, err := f.MakeDir(ctx, "d/e/f", brig.VolumeWrite{Force: true}); err != nil || e.Mode != 0o700 {
		t.Errorf("again: %+v, %v", e, err)
	}
	write(t, f, "d/file", "")
	_, err = f.MakeDir(ctx, "d/file", brig.VolumeWrite{Force: true})
	wantKind(t, "a file", err, brig.FailedPrecondition)

	list := func(p string, depth int) string {
		entries, err := f.List(ctx, p, depth)
		if err != nil {
			t.Error(err)
		}
		out := ""
		for _, e := range entries {
			out += e.Path + " "
		}
		return out
	}
	for _, c := range []struct {
		path, want string
		depth      int
	}{
		{"/", "/d ", 1}, {"/", "/d /d/e /d/file ", 2}, {"d", "/d/e /d/e/f /d/file ", 9}, {"d/e/f", "", 1},
	} {
		if got := list(c.path, c.depth); got != c.want {
			t.Errorf("list of %s to depth %d: %q, want %q", c.path, c.depth, got, c.want)
		}
	}
	_, err = f.List(ctx, "nothing", 1)
	wantKind(t, "a list of nothing", err, brig.NotFound)
	_, err = f.List(ctx, "d/file", 1)
	wantKind(t, "a list of a file", err, brig.FailedPrecondition)
	_, err = f.List(ctx, "d", 0)
	wantKind(t, "a depth of 0", err, brig.InvalidArgument)

	wantKind(t, "removal of the root", f.Remove(ctx, "/"), brig.InvalidArgument)
	wantKind(t, "removal of nothing", f.Remove(ctx, "nothing"), brig.NotFound)
	if err := f.Remove(ctx, "/d/"); err != nil {
		t.Fatal(err)
	}
	if got := list("/", 5); got != "" {
		t.Errorf("after the removal: %q", got)
	}
}

func TestAttributes(t *testing.T) {
	f, root := newVolume(t)
	ctx := t.Context()
	write(t, f, "a", "text")
	e, err := f.SetAttributes(ctx, "a", brig.VolumeAttributes{UID: number(1001), Mode: number(0o755)})
	if err != nil || e.UID != 1001 || e.GID != 1000 || e.Mode != 0o755 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = f.SetAttributes(ctx, "/", brig.VolumeAttributes{Mode: number(0o700)}); err != nil || e.Mode != 0o700 || e.Path != "/" {
		t.Errorf("the root: %+v, %v", e, err)
	}
	_, err = f.SetAttributes(ctx, "nothing", brig.VolumeAttributes{Mode: number(0)})
	wantKind(t, "nothing", err, brig.NotFound)
	if err := os.Symlink("a", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if e, err = f.Stat(ctx, "link"); err != nil || e.Type != brig.Symlink || e.Target != "a" {
		t.Errorf("a link: %+v, %v", e, err)
	}
}

// What a sandbox puts into a volume leads no call of the host to a file outside of it, and does not
// block a call.
func TestHostileFiles(t *testing.T) {
	f, root := newVolume(t)
	ctx := t.Context()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	check := errors.Join(
		os.Symlink(outside, filepath.Join(root, "absolute")),
		os.Symlink("../../../../../../../../.."+outside, filepath.Join(root, "relative")),
		os.Symlink("/proc/self/root"+outside, filepath.Join(root, "proc")),
		os.Symlink(filepath.Dir(outside), filepath.Join(root, "dir")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o666),
		unix.Mknod(filepath.Join(root, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
	)
	if check != nil {
		t.Fatal(check)
	}
	for _, p := range []string{"absolute", "relative", "proc", "dir/secret", "loop", "pipe", "null", "../../secret"} {
		if got, err := read(f, p); err == nil {
			t.Errorf("read of %s: %q", p, got)
		}
		if _, err := f.SetAttributes(ctx, p, brig.VolumeAttributes{Mode: number(0)}); err == nil && p != "null" {
			t.Errorf("change of %s", p)
		}
		if _, err := f.Write(ctx, p, brig.VolumeWrite{}, strings.NewReader("x")); err == nil && p != "../../secret" {
			t.Errorf("write of %s", p)
		}
		_, err := f.Write(ctx, p, brig.VolumeWrite{Force: true}, strings.NewReader("x"))
		if err == nil && p != "../../secret" {
			t.Errorf("forced write of %s", p)
		}
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "secret" {
		t.Errorf("the file outside: %q, %v", b, err)
	}
	if st, err := os.Stat(outside); err != nil || st.Mode() != 0o644 {
		t.Errorf("the file outside: %v, %v", st, err)
	}
	for _, p := range []string{"absolute", "relative", "proc", "dir", "loop", "pipe", "null"} {
		if err := f.Remove(ctx, p); err != nil {
			t.Errorf("removal of %s: %v", p, err)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// A tree that is deeper than a process can have files open can be removed.
func TestRemoveDeepTree(t *testing.T) {
	f, root := newVolume(t)
	const depth = 1500
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for n := range depth {
		if err := unix.Mkdirat(int(dir.Fd()), "d", 0o755); err != nil {
			t.Fatal(err)
		}
		if fd, err := unix.Openat(int(dir.Fd()), fmt.Sprintf("f%d", n), unix.O_CREAT|unix.O_WRONLY, 0); err == nil {
			unix.Close(fd)
		}
		fd, err := unix.Openat(int(dir.Fd()), "d", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), "d")
	}
	dir.Close()
	_, err = f.List(t.Context(), "/", depth)
	wantKind(t, "a deep list", err, brig.InvalidArgument)
	before := countDescriptors(t)
	most := 0
	done := make(chan error, 1)
	go func() { done <- f.Remove(t.Context(), "d") }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if most > before+20 {
				t.Errorf("%d descriptors, before %d", most, before)
			}
			if entries, err := f.List(t.Context(), "/", 1); err != nil || len(entries) != 1 {
				t.Errorf("after the removal: %v, %v", entries, err)
			}
			return
		default:
			most = max(most, countDescriptors(t))
		}
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Paths that a guest makes long take little memory: the paths of a list are bounded, not only their
// number.
func TestListMemoryIsBounded(t *testing.T) {
	f, root := newVolume(t)
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 255)
	for range 200 {
		if err := unix.Mkdirat(int(dir.Fd()), name, 0o777); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), name)
	}
	defer dir.Close()
	for i := range 3000 { // 150 MB of paths
		if err := unix.Symlinkat("x", int(dir.Fd()), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	grown := testenv.HeapGrowthWithGarbage(func() {
		_, err := f.List(t.Context(), "/", 256)
		wantKind(t, "a list of long paths", err, brig.FailedPrecondition)
	})
	if grown > 200<<20 { // four copies of what is allowed, and garbage
		t.Errorf("the list takes %d bytes", grown)
	}
	if list, err := f.List(t.Context(), "/", 200); err != nil || len(list) != 200 {
		t.Errorf("the control: %d entries, %v", len(list), err)
	}
}

// An image that was removed after a call found its volume is a missing volume.
func TestFilesOfRemovedImage(t *testing.T) {
	s, err := volume.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Skip(err)
	}
	_, _, err = s.Files("vol1")
	wantKind(t, "a removed image", err, brig.NotFound)
}
