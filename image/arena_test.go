package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// The limits of an arena's store are small, so that a bomb can be small too.
const (
	arenaSize  = 4 << 20
	arenaFiles = 500
)

// canaryText is the content that no image may contain.
const canaryText = "the canary's secret 7f3b1c\n"

// arena is a store next to a canary: files that no archive may read or touch.
type arena struct {
	dir, canary string
	store       *Store
	before      map[string]string
}

func newArena(t testing.TB) *arena {
	t.Helper()
	dir := t.TempDir()
	a := &arena{dir: dir, canary: filepath.Join(dir, "canary")}
	for _, name := range []string{"secret", "dir/passwd", "dir/group", "dir/null", "dir/inner/file"} {
		p := filepath.Join(a.canary, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(canaryText), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.store = openStore(t, filepath.Join(dir, "data"))
	var err error
	if a.before, err = a.snapshot(); err != nil {
		t.Fatal(err)
	}
	return a
}

// openStore opens a store with small limits that does not wait for the disk.
func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(testOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testOptions(dir string) Options {
	return Options{
		Dir: dir, MaxSize: arenaSize, MaxFiles: arenaFiles, MaxRatio: 50,
		ratioFloor: 1 << 20, sync: func(string) error { return nil }, retryWait: time.Millisecond,
	}
}

// snapshot describes all files outside the store.
func (a *arena) snapshot() (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(a.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(a.dir, "data") {
			return fs.SkipDir
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		var content []byte
		if fi.Mode().IsRegular() {
			if content, err = os.ReadFile(p); err != nil {
				return err
			}
		}
		if p == a.dir {
			all[p] = fmt.Sprint(fi.Mode(), st.Uid, st.Gid)
			return nil
		}
		all[p] = fmt.Sprint(fi.Mode(), st.Uid, st.Gid, st.Ino, st.Nlink, fi.ModTime(), string(content))
		return nil
	})
	return all, err
}

// checkUnchanged returns an error if an archive did damage: the canary has changed, its secret is in the
// store, or the store contains a file of a forbidden type.
func (a *arena) checkUnchanged() error {
	after, err := a.snapshot()
	if err != nil {
		return err
	}
	for p, was := range a.before {
		if is := after[p]; is != was {
			return fmt.Errorf("%s was touched: %q, now %q", p, was, is)
		}
	}
	for p := range after {
		if _, ok := a.before[p]; !ok {
			return fmt.Errorf("%s was created", p)
		}
	}
	a.store.Wait()
	leftovers, err := os.ReadDir(a.store.path("tmp"))
	if err != nil || len(leftovers) > 0 {
		return fmt.Errorf("left in tmp: %v, %v", leftovers, err)
	}
	return filepath.WalkDir(a.store.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			return fmt.Errorf("%s is %s", p, fi.Mode())
		}
		if fi.Mode()&fs.ModeSticky != 0 && !fi.IsDir() {
			return fmt.Errorf("%s is %s", p, fi.Mode())
		}
		if !fi.Mode().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		if err == nil && bytes.Contains(b, []byte(strings.TrimSpace(canaryText))) {
			err = fmt.Errorf("%s holds the canary's secret", p)
		}
		return err
	})
}

// climbTo returns a name that leads from any directory of the store to target.
func climbTo(target string) string { return strings.Repeat("../", 24) + target[1:] }

// maker writes archives, including those that archive/tar refuses to write.
type maker struct {
	t   testing.TB
	buf bytes.Buffer
	w   *tar.Writer
	raw bool // the caller writes the end of the archive
}

func newMaker(t testing.TB) *maker {
	m := &maker{t: t}
	m.w = tar.NewWriter(&m.buf)
	return m
}

// addEntry writes one entry. For a regular file, the size is the content's length.
func (m *maker) addEntry(h tar.Header, content string) {
	m.t.Helper()
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	if h.Typeflag == tar.TypeReg {
		h.Size = int64(len(content))
	}
	if err := m.w.WriteHeader(&h); err != nil {
		m.t.Fatalf("write header of %.60q: %v", h.Name, err)
	}
	if _, err := io.WriteString(m.w, content); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) addFile(name, content string) { m.addEntry(tar.Header{Name: name}, content) }
func (m *maker) addDir(name string) {
	m.addEntry(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, "")
}
func (m *maker) addLink(name, target string) {
	m.addEntry(tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}, "")
}
func (m *maker) addHardLink(name, target string) {
	m.addEntry(tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink}, "")
}

// addBlock writes one header block by hand, with a correct checksum, and content.
func (m *maker) addBlock(typ byte, name, size, content string) {
	m.t.Helper()
	if err := m.w.Flush(); err != nil {
		m.t.Fatal(err)
	}
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[108:], "0000000\x00")
	copy(b[116:], "0000000\x00")
	copy(b[124:136], size)
	copy(b[136:], "00000000000\x00")
	copy(b[148:], "        ")
	b[156] = typ
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	m.buf.Write(b)
	m.buf.WriteString(content)
	m.buf.Write(make([]byte, (512-len(content)%512)%512))
}

// addPAX writes a PAX header by hand for the entry that follows.
func (m *maker) addPAX(records ...string) {
	var all string
	for i := 0; i+1 < len(records); i += 2 {
		all += paxRecord(records[i], records[i+1])
	}
	m.addBlock('x', "pax", octal(len(all)), all)
}

func paxRecord(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	for n := len(rest); ; n++ {
		if s := fmt.Sprint(n) + rest; len(s) == n {
			return s
		}
	}
}

func octal(n int) string { return fmt.Sprintf("%011o", n) }

// bytes ends the archive and returns it.
func (m *maker) bytes() []byte {
	if !m.raw {
		if err := m.w.Close(); err != nil {
			m.t.Fatal(err)
		}
	}
	return m.buf.Bytes()
}

// importBytes imports under the name "test".
func (a *arena) importBytes(t testing.TB, b []byte) (*brig.Image, error) {
	return a.store.Import(t.Context(), "test", bytes.NewReader(b), nil)
}
