package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/brig-run/brig"
)

// smallArchive returns an archive with one entry of each type that an image keeps.
func smallArchive(t testing.TB) []byte {
	m := newMaker(t)
	m.addDir("./")
	m.addEntry(tar.Header{Name: "./bin", Linkname: "usr/bin", Typeflag: tar.TypeSymlink}, "")
	m.addEntry(tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	m.addEntry(tar.Header{Name: "./usr/bin/bash", Mode: 0o4755, ModTime: time.Unix(1e9, 0)}, "#!")
	m.addEntry(tar.Header{Name: "./usr/bin/sh", Linkname: "usr/bin/bash", Typeflag: tar.TypeLink}, "")
	m.addEntry(tar.Header{Name: "./secret", Mode: 0o600, Uid: 7, Gid: 8}, "x")
	m.addEntry(tar.Header{Name: "./shared", Mode: 0o3777, Typeflag: tar.TypeDir}, "")
	m.addEntry(tar.Header{Name: "./locked", Mode: 0o500, Uid: 7, Gid: 8, Typeflag: tar.TypeDir}, "")
	m.addFile("./locked/inside", "x")
	m.addEntry(tar.Header{Name: "./null", Typeflag: tar.TypeChar}, "")
	return m.bytes()
}

func TestImportKeepsFilesAndModes(t *testing.T) {
	t.Parallel()
	plain := smallArchive(t)
	for _, how := range []string{"plain", "gzip", "zstd"} {
		for _, privileged := range []bool{true, false} {
			t.Run(fmt.Sprint(how, privileged), func(t *testing.T) {
				t.Parallel()
				if privileged && os.Geteuid() != 0 {
					t.Skip("only root can give files away")
				}
				a := newArena(t)
				a.store.privileged = privileged
				b := plain
				if how != "plain" {
					b = compress(plain, how)
				}
				var steps []string
				img, err := a.store.Import(t.Context(), "test", iotest.OneByteReader(bytes.NewReader(b)),
					func(p brig.Progress) { steps = append(steps, p.Step) })
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("sha256:%x", sha256.Sum256(plain)); img.Digest != want {
					t.Errorf("digest %s, want the stream's, %s", img.Digest, want)
				}
				if img.Source != "tarball" || img.Size != 4 || img.Files != 11 || strings.Join(img.Names, ",") != "test" {
					t.Errorf("%+v", img)
				}
				if got := strings.Join(steps, ","); !strings.HasPrefix(got, "unpack,") || !strings.Contains(got, "left out 1 devices") {
					t.Errorf("steps %s", got)
				}
				checkSmall(t, a.store, img.Digest, privileged)
				if err := a.checkUnchanged(); err != nil {
					t.Error(err)
				}
				if err := a.store.Remove(t.Context(), "test"); err != nil {
					t.Error(err)
				}
				if err := a.checkUnchanged(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func checkSmall(t *testing.T, s *Store, digest string, privileged bool) {
	t.Helper()
	r, err := s.Root(digest)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Binds) != 0 {
		t.Errorf("binds %v", r.Binds)
	}
	const d, l = fs.ModeDir, fs.ModeSymlink
	want := map[string]struct {
		mode fs.FileMode
		uid  uint32
	}{
		".":            {d | 0o755, 0},
		"bin":          {l | 0o777, 0},
		"usr":          {d | 0o755, 0},
		"usr/bin/bash": {0o755, 0},
		"usr/bin/sh":   {0o755, 0},
		"secret":       {0o600, 7},
		"shared":       {d | fs.ModeSticky | 0o777, 0},
		"locked":       {d | 0o500, 7},
		"proc":         {d | 0o555, 0},
		"tmp":          {d | fs.ModeSticky | 0o777, 0},
		"workspace":    {d | 0o755, 1000},
		"home/user":    {d | 0o755, 1000},
		"etc/passwd":   {0o644, 0},
	}
	for name, w := range want {
		fi, err := os.Lstat(filepath.Join(r.Dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !privileged {
			w.uid = uint32(os.Geteuid())
			if name == "locked" {
				w.mode |= 0o700
			}
		}
		if uid := fi.Sys().(*syscall.Stat_t).Uid; fi.Mode() != w.mode || uid != w.uid {
			t.Errorf("%s: %s of %d, want %s of %d", name, fi.Mode(), uid, w.mode, w.uid)
		}
		if name == "usr/bin/sh" && fi.ModTime().Unix() != 1e9 {
			t.Errorf("%s: time %s", name, fi.ModTime())
		}
	}
	if _, err := os.Lstat(filepath.Join(r.Dir, "null")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("null: %v", err)
	}
}

func TestImportRejectsOwnerOutOfRange(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	m.addEntry(tar.Header{Name: "far", Uid: 1 << 40, Format: tar.FormatPAX}, "x")
	a := newArena(t)
	a.store.privileged = true
	_, err := a.importBytes(t, m.bytes())
	if brig.KindOf(err) != brig.InvalidArgument || !strings.Contains(err.Error(), "far") {
		t.Errorf("%v", err)
	}
	a.store.privileged = false
	if _, err = a.importBytes(t, m.bytes()); err != nil {
		t.Errorf("who cannot give files away need not care: %v", err)
	}
}

func TestImportKeepsContentOfReplacedHardLinks(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	m.addFile("a", "first")
	m.addHardLink("b", "a")
	m.addFile("a", "second")
	m.addFile("etc/passwd", "root:x:0:0:::")
	m.addHardLink("copy", "etc/passwd")
	a := newArena(t)
	img, err := a.importBytes(t, m.bytes())
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.store.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "second", "b": "first", "copy": "root:x:0:0:::",
		"etc/passwd": "root:x:0:0:::\nuser:x:1000:1000::/home/user:/bin/sh\n",
	} {
		if b, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v; want %q", name, b, err, want)
		}
	}
}

func TestImportReportsInternalErrors(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	torn := errors.New("connection torn")
	half := smallArchive(t)[:1000]
	_, err := a.store.Import(t.Context(), "test", io.MultiReader(bytes.NewReader(half), iotest.ErrReader(torn)), nil)
	if !errors.Is(err, torn) || brig.KindOf(err) != brig.Internal {
		t.Errorf("torn: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = a.store.Import(ctx, "test", io.MultiReader(bytes.NewReader(half), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, nil
	})), nil)
	if brig.KindOf(err) != brig.Canceled {
		t.Errorf("canceled: %v", err)
	}
	full := errors.New("disk full")
	a.store.opts.sync = func(string) error { return full }
	if _, err = a.importBytes(t, smallArchive(t)); !errors.Is(err, full) {
		t.Errorf("full: %v", err)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
	if leftovers, err := filepath.Glob(a.store.path("sha256-*")); err != nil || len(leftovers) > 0 {
		t.Errorf("left: %v, %v", leftovers, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestConcurrentImportsStoreOneImage(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	b := smallArchive(t)
	second := openStore(t, filepath.Join(a.dir, "data")) // simulates another process
	const n = 16
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		s := []*Store{a.store, second}[i%2]
		wg.Go(func() {
			_, errs[i] = s.Import(t.Context(), fmt.Sprintf("test%d", i), bytes.NewReader(b), nil)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	list, err := a.store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := list[len(list)-1]; len(list) != 2 || len(last.Names) != n {
		t.Errorf("%d images, the last with %d names", len(list), len(last.Names))
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestImportAddsAccountOf1000(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ passwd, want string }{
		"missing":        {"", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"},
		"no newline":     {"root:x:0:0:::", "root:x:0:0:::\nuser:x:1000:1000::/home/user:/bin/sh\n"},
		"1000 is there":  {"node:x:1000:1000::/home/node:/bin/sh\n", "node:x:1000:1000::/home/node:/bin/sh\n"},
		"name is taken":  {"user:x:7:7:::\n", "user:x:7:7:::\nuser1000:x:1000:1000::/home/user:/bin/sh\n"},
		"not an account": {"\n:::\nx\n", "\n:::\nx\nuser:x:1000:1000::/home/user:/bin/sh\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t)
			m := newMaker(t)
			m.addDir("usr")
			if c.passwd != "" {
				m.addFile("etc/passwd", c.passwd)
			}
			img, err := a.importBytes(t, m.bytes())
			if err != nil {
				t.Fatal(err)
			}
			r, err := a.store.Root(img.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(r.Dir, "etc/passwd")); err != nil || string(b) != c.want {
				t.Errorf("%q, %v; want %q", b, err, c.want)
			}
			if b, err := os.ReadFile(filepath.Join(r.Dir, "etc/group")); err != nil || string(b) != "root:x:0:\nuser:x:1000:\n" {
				t.Errorf("group %q, %v", b, err)
			}
		})
	}
}
