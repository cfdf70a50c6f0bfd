package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// These are the expected results of a hostile archive.
const (
	refused  = "refused"  // Import fails with an error that names the reason
	confined = "confined" // Import succeeds, and no file escaped
)

// hostile is one archive of the corpus.
type hostile struct {
	name      string
	make      func(m *maker, canary string) []byte // a nil result means the maker's own bytes
	want      string
	errorText string // text that the error of a refusal contains
	// escapes reports whether a naive extractor is vulnerable to it.
	escapes bool
	class   string // in the catalogue of attacks
}

func corpus() []hostile {
	var all []hostile
	for class, some := range map[string][]hostile{"FS-03": corpusPaths(), "ESC-09": corpusPlaces(), "FS-05": corpusContents()} {
		for _, h := range some {
			h.class = class
			all = append(all, h)
		}
	}
	return all
}

func (h hostile) bytes(t testing.TB, canary string) []byte {
	m := newMaker(t)
	if b := h.make(m, canary); b != nil {
		return b
	}
	return m.bytes()
}

func TestHostileArchivesCannotEscape(t *testing.T) {
	t.Parallel()
	if n := len(corpus()); n < 60 {
		t.Errorf("the corpus has shrunk to %d archives", n)
	}
	for _, h := range corpus() {
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			attack.Case(t, h.class, h.name)
			for _, privileged := range []bool{true, false} {
				if privileged && os.Geteuid() != 0 {
					continue
				}
				a := newArena(t)
				a.store.privileged = privileged
				img, err := a.importBytes(t, h.bytes(t, a.canary))
				if cerr := a.checkUnchanged(); cerr != nil {
					t.Errorf("privileged %t: %v", privileged, cerr)
				}
				switch h.want {
				case confined:
					if err != nil {
						t.Fatalf("privileged %t: %v", privileged, err)
					}
					a.checkPlaces(t, img.Digest)
				case refused:
					e := brig.AsError(err)
					if e == nil || e.Kind != brig.InvalidArgument || e.Field != "archive" {
						t.Fatalf("privileged %t: not refused: %v, %v", privileged, img, err)
					}
					if !strings.Contains(e.Message, h.errorText) {
						t.Errorf("the message is %q, without %q", e.Message, h.errorText)
					}
					if strings.ContainsAny(e.Message, "\x00\x1b\n") || len(e.Message) > 600 {
						t.Errorf("the message is unfit for a terminal: %q", e.Message)
					}
					if strings.Contains(e.Message, a.store.dir) || strings.Contains(e.Hint, a.store.dir) {
						t.Errorf("the message tells where the store is: %q", e.Message)
					}
					if list, err := filepath.Glob(a.store.path("sha256-*")); err != nil || len(list) > 0 {
						t.Errorf("left in the store: %v, %v", list, err)
					}
				}
			}
		})
	}
}

// checkPlaces checks the mount points that every image has: they must be real
// directories.
func (a *arena) checkPlaces(t *testing.T, digest string) {
	t.Helper()
	r, err := a.store.Root(digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "proc", "dev", "sys", "tmp", "run", "etc", "workspace", "home", "home/user"} {
		fi, err := os.Lstat(filepath.Join(r.Dir, name))
		if err != nil || !fi.IsDir() {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	for _, name := range []string{"etc/passwd", "etc/group"} {
		fi, err := os.Lstat(filepath.Join(r.Dir, name))
		if err != nil || !fi.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
}

// TestArenaDetectsCarelessExtractor is the control: the arena must detect the damage
// of a careless extractor.
func TestArenaDetectsCarelessExtractor(t *testing.T) {
	t.Parallel()
	n := 0
	for _, h := range corpus() {
		if !h.escapes {
			continue
		}
		n++
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			attack.Mutant(t, h.class, h.name, "care in unpacking")
			a := newArena(t)
			naiveExtract(t, a.store.path("sha256-naive"), h.bytes(t, a.canary))
			if err := a.checkUnchanged(); err == nil {
				t.Error("the arena did not notice")
			} else {
				t.Log(err)
			}
		})
	}
	if n < 20 {
		t.Errorf("only %d archives fool a naive extractor", n)
	}
}

// TestBombsAreAcceptedWithoutLimits is the control for the limits: without them, an import
// accepts bombs as images.
func TestBombsAreAcceptedWithoutLimits(t *testing.T) {
	t.Parallel()
	bombs := []string{"gzip bomb", "zstd bomb", "padding bomb", "too many files", "too many directories between", "too many bytes"}
	for _, h := range corpus() {
		if !slices.Contains(bombs, h.name) {
			continue
		}
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			attack.Mutant(t, h.class, h.name, "limits of unpacking")
			a := newArena(t)
			o := testOptions(filepath.Join(a.dir, "data"))
			o.MaxSize, o.MaxFiles, o.MaxRatio = 1<<40, 1<<30, 1<<30
			store, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			a.store = store
			if _, err := a.importBytes(t, h.bytes(t, a.canary)); err != nil {
				t.Errorf("it is refused for something else: %v", err)
			}
		})
	}
}

// naiveExtract extracts an archive in the common careless way.
func naiveExtract(t *testing.T, root string, archive []byte) {
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return root + "/" + name
	}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err != nil {
			break
		}
		p := in(h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			_ = os.MkdirAll(p, 0o755)
			_ = os.Chmod(p, h.FileInfo().Mode())
		case tar.TypeSymlink:
			_ = os.Remove(p)
			_ = os.Symlink(h.Linkname, p)
		case tar.TypeLink:
			_ = os.Link(in(h.Linkname), p)
		case tar.TypeReg:
			_ = os.MkdirAll(filepath.Dir(p), 0o755)
			if f, err := os.Create(p); err == nil {
				_, _ = io.Copy(f, r)
				_ = f.Close()
				_ = os.Chmod(p, h.FileInfo().Mode())
			}
		}
	}
	// The last step of an import, without checks.
	for _, name := range []string{"proc", "dev", "sys", "tmp", "run", "workspace", "home", "home/user"} {
		_ = os.MkdirAll(filepath.Join(root, name), 0o755)
		_ = os.Chmod(filepath.Join(root, name), 0o777)
	}
	for _, name := range []string{"etc/passwd", "etc/group", "dev/null"} {
		if f, err := os.OpenFile(filepath.Join(root, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644); err == nil {
			_, _ = f.WriteString("user:x:1000:1000::/home/user:/bin/sh\n")
			_ = f.Close()
		}
	}
}
