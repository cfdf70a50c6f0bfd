package nofollow

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

func openDir(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// createTree creates a directory with a file, a directory, and links to files
// outside.
func createTree(t *testing.T) (root, outside string) {
	t.Helper()
	root, outside = t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "dir"), 0o755),
		os.WriteFile(filepath.Join(root, "dir", "below"), []byte("below"), 0o644),
		os.WriteFile(filepath.Join(root, "file"), []byte("file"), 0o644),
		os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644),
		os.Symlink(outside, filepath.Join(root, "link")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "filelink")),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

func TestSymlinksAreNotFollowed(t *testing.T) {
	root, outside := createTree(t)
	d := openDir(t, root)
	for name, want := range map[string]error{
		"dir": nil, "file": syscall.ENOTDIR, "link": syscall.ELOOP, "filelink": syscall.ELOOP, "pipe": syscall.ENOTDIR, "none": syscall.ENOENT,
		"..": syscall.EINVAL, ".": syscall.EINVAL, "": syscall.EINVAL, "dir/below": syscall.EINVAL, "a\x00b": syscall.EINVAL,
	} {
		next, err := d.Dir(name)
		if next != nil {
			next.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("open directory %q: %v, want %v", name, err, want)
		}
	}
	if _, err := d.Open("filelink", os.O_RDONLY, 0); err != syscall.ELOOP {
		t.Errorf("open a link to a file: %v", err)
	}
	if _, err := d.Open("dir", syscall.O_DIRECTORY, 0); err != syscall.EINVAL {
		t.Errorf("open with O_DIRECTORY, which gVisor follows links with: %v", err)
	}
	if _, err := d.Walk("link/secret"); err != syscall.ELOOP {
		t.Errorf("walk through a link: %v", err)
	}
	if w, err := d.Walk("dir"); err != nil {
		t.Error(err)
	} else if names, err := w.Names(-1); err != nil || !slices.Equal(names, []string{"below"}) {
		t.Errorf("the directory has %q, %v", names, err)
	}
	st, err := d.Stat("link")
	if err != nil || !st.IsLink() {
		t.Errorf("stat of a link: %+v, %v", st, err)
	}
	if to, err := d.Readlink("link"); err != nil || to != outside {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	for _, name := range []string{"link", "dir", "filelink", "pipe", "none"} {
		if err := d.RemoveAll(name); err != nil {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Errorf("the target of the link was removed: %v", err)
	}
	if names, err := d.Names(-1); err != nil || !slices.Equal(names, []string{"file"}) {
		t.Errorf("left are %q, %v", names, err)
	}
}

func TestNamesReturnsAllBatches(t *testing.T) {
	root := t.TempDir()
	var want []string
	for i := range 2000 {
		name := "a-name-that-is-rather-long-" + strconv.Itoa(10_000+i)
		want = append(want, name)
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := openDir(t, root)
	for range 2 {
		var got []string
		for {
			names, err := d.Names(33)
			got = append(got, names...)
			if len(names) > 33 {
				t.Fatalf("%d names at once", len(names))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%d names, want %d", len(got), len(want))
		}
		if err := d.Rewind(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMagicLinksAreNotFollowed checks that magic links in /proc are rejected,
// because they refer to descriptors of this process regardless of path
// permissions.
func TestMagicLinksAreNotFollowed(t *testing.T) {
	root, _ := createTree(t)
	d := openDir(t, root)
	if _, err := OpenFile(d.Proc("file"), os.O_RDONLY, 0); err != syscall.ELOOP {
		t.Errorf("through a descriptor: %v", err)
	}
	f, err := OpenFile(filepath.Join(root, "filelink"), os.O_RDONLY, 0)
	if err != nil {
		t.Fatalf("through a link: %v", err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "secret" {
		t.Errorf("read %q, %v", b, err)
	}
	created, err := OpenFile(filepath.Join(root, "made"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer created.Close()
	if st, err := created.Stat(); err != nil || st.Mode() != 0o600 {
		t.Errorf("made with %v, %v", st.Mode(), err)
	}
}
