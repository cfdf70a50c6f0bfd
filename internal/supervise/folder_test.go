package supervise

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type record struct{ Code int }

func TestRecordRoundTrip(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "exit.json")
	var r record
	if ok, err := ReadRecord(name, &r); ok || err != nil {
		t.Errorf("a record that does not exist: %t, %v", ok, err)
	}
	for code, durable := range []bool{false, true} {
		if err := WriteRecord(name, record{code}, durable); err != nil {
			t.Fatal(err)
		}
		if ok, err := ReadRecord(name, &r); !ok || err != nil || r.Code != code {
			t.Errorf("read %+v, %t, %v; want %d", r, ok, err, code)
		}
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
		t.Errorf("the record has mode %v, %v", st.Mode(), err)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := ReadRecord(name, &r); ok || err == nil {
		t.Errorf("half a record: %t, %v", ok, err)
	}
}

// A failed write changes nothing and leaves no temporary file.
func TestFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"over a directory": WriteRecord(filepath.Join(dir, "taken"), record{}, false),
		"of no JSON":       WriteRecord(filepath.Join(dir, "odd"), func() {}, false),
	} {
		if err == nil {
			t.Errorf("a write %s succeeds", what)
		}
	}
	if err := WriteRecord(filepath.Join(dir, "none", "x"), record{}, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write in no directory: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestSocketPathSupportsLongDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"a", strings.Repeat("b", 150)} {
		subdir := filepath.Join(dir, sub)
		if err := os.Mkdir(subdir, 0o700); err != nil {
			t.Fatal(err)
		}
		p, done, err := SocketPath(subdir, "socket")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", p)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Join(subdir, "socket")); err != nil || st.Mode().Type() != fs.ModeSocket {
			t.Errorf("%s: %v, %v", p, st, err)
		}
		l.Close()
		done()
	}
	if _, _, err := SocketPath(filepath.Join(dir, strings.Repeat("c", 150)), "socket"); err == nil {
		t.Error("a directory that does not exist has a socket")
	}
}
