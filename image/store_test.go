package image

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"golang.org/x/sys/unix"
)

func TestOpenCreatesPrivateDirectory(t *testing.T) {
	t.Parallel()
	if _, err := Open(Options{}); brig.KindOf(err) != brig.InvalidConfig {
		t.Errorf("without a folder: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "not", "there")
	s := openStore(t, dir)
	if fi, err := os.Stat(s.dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	if d := (Options{}).withDefaults(); d.MaxSize != DefaultMaxSize || d.MaxFiles != DefaultMaxFiles || d.MaxRatio != DefaultMaxRatio {
		t.Errorf("%+v", d)
	}
}

func TestResolveRejectsInvalidRefs(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	for ref, want := range map[string]brig.Kind{
		"nothing":                              brig.NotFound,
		"python:3.11-slim":                     brig.NotFound,
		"example.org/a/b_c:latest":             brig.NotFound,
		"sha256:" + strings.Repeat("0", 64):    brig.NotFound,
		"":                                     brig.InvalidArgument,
		"-x":                                   brig.InvalidArgument,
		"/etc":                                 brig.InvalidArgument,
		"../x":                                 brig.InvalidArgument,
		"Upper":                                brig.InvalidArgument,
		"a b":                                  brig.InvalidArgument,
		"a\x00":                                brig.InvalidArgument,
		"\xff":                                 brig.InvalidArgument,
		"ä":                                    brig.InvalidArgument,
		strings.Repeat("a", 256):               brig.InvalidArgument,
		"sha256:":                              brig.InvalidArgument,
		"sha256:" + strings.Repeat("A", 64):    brig.InvalidArgument,
		"sha256:" + strings.Repeat("g", 64):    brig.InvalidArgument,
		"sha256:" + strings.Repeat("../x", 16): brig.InvalidArgument,
	} {
		for what, f := range map[string]func() error{
			"resolve": func() error { _, err := s.Resolve(t.Context(), ref); return err },
			"remove":  func() error { return s.Remove(t.Context(), ref) },
		} {
			e := brig.AsError(f())
			if e == nil || e.Kind != want || e.Hint == "" && want == brig.NotFound {
				t.Errorf("%s %q: %v, want %s", what, ref, e, want)
			}
			if want == brig.InvalidArgument && e.Field != "image" {
				t.Errorf("%s %q: field %q", what, ref, e.Field)
			}
		}
	}
	for ref, want := range map[string]brig.Kind{
		"host": brig.InvalidArgument, "sha256:" + strings.Repeat("0", 64): brig.NotFound,
	} {
		if _, err := s.Root(ref); brig.KindOf(err) != want {
			t.Errorf("root of %q: %v", ref, err)
		}
	}
}

func TestInvalidImageNamesAreRejected(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	for _, name := range []string{"", "host", "-a", "a/b", "a:b", "A", "../a", "sha256:" + strings.Repeat("0", 64)} {
		_, err := s.Import(t.Context(), name, bytes.NewReader(nil), nil)
		if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "name" {
			t.Errorf("import as %q: %v", name, err)
		}
		_, err = s.Build(t.Context(), brig.ImageBuild{Name: name}, nil)
		if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "name" {
			t.Errorf("build %q: %v", name, err)
		}
	}
}

// archiveOf returns an archive whose digest depends on text.
func archiveOf(t *testing.T, text string) []byte {
	m := newMaker(t)
	m.addFile("text", text)
	return m.bytes()
}

func TestNamesCanBeMovedAndDeleted(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	s := a.store
	load := func(name, text string) string {
		t.Helper()
		img, err := s.Import(t.Context(), name, bytes.NewReader(archiveOf(t, text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return img.Digest
	}
	names := func(digest string) string {
		t.Helper()
		img, err := s.Resolve(t.Context(), digest)
		if brig.KindOf(err) == brig.NotFound {
			return "gone"
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(img.Names, ",")
	}
	remove := func(ref string) {
		t.Helper()
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	one, two := load("b", "1"), load("a", "2")
	if load("c", "1") != one || names(one) != "b,c" || names(two) != "a" {
		t.Errorf("one is %s, two is %s", names(one), names(two))
	}
	if load("b", "2") != two || names(one) != "c" || names(two) != "a,b" {
		t.Errorf("after b has moved one is %s, two is %s", names(one), names(two))
	}
	load("c", "2")
	if names(one) != "" {
		t.Errorf("one should have no name and stay, it is %s", names(one))
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 3 || list[0].Names[0] != brig.HostImage || list[1].Digest != two || list[2].Digest != one {
		t.Errorf("%v, %v", list, err)
	}
	remove(one)
	remove("c")
	if names(one) != "gone" || names(two) != "a,b" {
		t.Errorf("one is %s, two is %s", names(one), names(two))
	}
	remove("a")
	remove("b")
	if names(two) != "gone" {
		t.Errorf("two is %s after its last name", names(two))
	}
	three := load("x", "3")
	load("y", "3")
	remove(three)
	for _, ref := range []string{"x", "y", three} {
		if err := s.Remove(t.Context(), ref); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s is still there: %v", ref, err)
		}
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestNameWithoutFilesCanBeRemoved(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	img, err := s.Import(t.Context(), "x", bytes.NewReader(archiveOf(t, "1")), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Simulate a crash between the two steps of Remove.
	if err := os.RemoveAll(s.imageDir(img.Digest)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), "x"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("resolve: %v", err)
	}
	if err := s.Remove(t.Context(), "x"); err != nil {
		t.Errorf("remove: %v", err)
	}
	if x, err := s.readIndex(); err != nil || len(x.Names) != 0 {
		t.Errorf("%v, %v", x, err)
	}
}

func TestHostImageCannotBeRemoved(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	img, err := s.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{brig.HostImage, img.Digest} {
		if err := s.Remove(t.Context(), ref); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("remove %s: %v", ref, err)
		}
	}
}

func TestOpenRemovesLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	busy, err := s.newScratch()
	if err != nil {
		t.Fatal(err)
	}
	crashed, err := s.newScratch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(crashed.dir, "trash/deep/er"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := crashed.f.Close(); err != nil { // as the kernel does when a process exits
		t.Fatal(err)
	}
	if err := os.Mkdir(s.path("tmp", "WITHOUTLOCK"), 0o700); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
	leftovers, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range leftovers {
		names = append(names, e.Name())
	}
	if want := []string{filepath.Base(busy.dir), filepath.Base(busy.lock)}; !slices.Equal(names, want) {
		t.Errorf("left %v, want what is busy, %v", names, want)
	}
	busy.discard()
	if _, err := os.Lstat(busy.lock); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock of discarded scratch: %v", err)
	}
}

func TestIndexIsLockedAndChecked(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Remove(ctx, "x") }()
	cancel()
	if err := <-done; brig.KindOf(err) != brig.Canceled {
		t.Errorf("while another holds the lock: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"{", `{"version":99}`} {
		if err := os.WriteFile(s.path("index.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(t.Context(), "x"); brig.KindOf(err) != brig.Internal {
			t.Errorf("index %s: %v", text, err)
		}
	}
}
