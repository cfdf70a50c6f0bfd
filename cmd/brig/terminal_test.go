package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

func TestDetachKeysAreDetected(t *testing.T) {
	for typed, want := range map[string]struct {
		sent       string
		isDetached bool
	}{
		"abc": {"abc", false}, "": {"", false}, "a\x10\x11b": {"a", true}, "\x10|\x11b": {"", true}, "\x10|b": {"\x10b", false},
		"\x10\x10\x11": {"\x10", true}, "\x11\x10": {"\x11", false}, "\x10|\x10|\x10a": {"\x10\x10\x10a", false},
	} {
		var d detachDetector
		var sent []byte
		isDetached := false
		for part := range strings.SplitSeq(typed, "|") { // one read for each part
			var send []byte
			send, isDetached = d.scanTyped([]byte(part))
			sent = append(sent, send...)
		}
		if string(sent) != want.sent || isDetached != want.isDetached {
			t.Errorf("%q: %q was sent, left %v", typed, sent, isDetached)
		}
	}
}

// openPTY returns the two ends of a terminal.
func openPTY(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return master, tty
}

// echoProcess is a process that echoes its input in capitals. Input "end" ends
// it, and input "lost" simulates the loss of the process.
type echoProcess struct {
	brig.Processes
	out   chan []byte
	mu    sync.Mutex // guards the field below
	sizes []brig.Terminal
}

func (e *echoProcess) WriteInput(_ context.Context, _ int, p []byte) error {
	e.out <- bytes.Clone(p)
	return nil
}

func (e *echoProcess) Resize(_ context.Context, _ int, size brig.Terminal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sizes = append(e.sizes, size)
	return nil
}

// lastSize returns the last reported size of the terminal.
func (e *echoProcess) lastSize() (size brig.Terminal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.sizes); n > 0 {
		size = e.sizes[n-1]
	}
	return size
}

func (e *echoProcess) Attach(ctx context.Context, _ int, _ int64, on func(brig.ProcessEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-e.out:
			switch {
			case bytes.Contains(p, []byte("end")):
				return on(brig.ProcessEvent{End: &brig.Result{ExitCode: 3}})
			case bytes.Contains(p, []byte("lost")):
				return brig.Errorf(brig.ConnectionFailed, "the server is gone")
			}
			if err := on(brig.ProcessEvent{Output: bytes.ToUpper(p), From: brig.FromStdout}); err != nil {
				return err
			}
		}
	}
}

// TestTerminalIsRestored checks that the terminal is restored, regardless of
// how the session ends.
func TestTerminalIsRestored(t *testing.T) {
	for _, x := range []struct {
		typed string // the typed bytes; if empty, the context is canceled
		kind  error
		code  int
	}{
		{"end", nil, 3},
		{"\x10\x11", errDetached, 0},
		{"lost", brig.Errorf(brig.ConnectionFailed, "the server is gone"), 0},
		{"", context.Canceled, 0},
	} {
		master, tty := openPTY(t)
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
			t.Fatal(err)
		}
		before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		p := &echoProcess{out: make(chan []byte, 8)}
		ctx, cancel := context.WithCancel(t.Context())
		type outcome struct {
			end *brig.Result
			err error
		}
		done := make(chan outcome, 1)
		go func() {
			end, err := (&session{in: tty, out: tty, proc: p, pid: 7}).run(ctx, 0)
			done <- outcome{end, err}
		}()
		enter := func(s string) {
			if _, err := master.WriteString(s); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "the size", func() bool { return p.lastSize() == brig.Terminal{Columns: 100, Rows: 30} })
		enter("\x03a") // a raw terminal does not turn Ctrl-C into a signal, and does not echo
		buf := make([]byte, 16)
		if n, err := master.Read(buf); err != nil || string(buf[:n]) != "\x03A" {
			t.Errorf("the terminal shows %q, %v", buf[:n], err)
		}
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 6}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the new size", func() bool { return p.lastSize() == brig.Terminal{Columns: 6, Rows: 5} })
		if x.typed == "" {
			cancel()
		}
		enter(x.typed)
		select {
		case got := <-done:
			ended := got.end != nil && got.end.ExitCode == x.code
			if ended != (x.kind == nil) || !errors.Is(got.err, x.kind) && brig.KindOf(got.err) != brig.KindOf(x.kind) {
				t.Errorf("%q: %+v, %v", x.typed, got.end, got.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%q does not end it", x.typed)
		}
		cancel()
		after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil || *after != *before {
			t.Errorf("%q: the terminal is not what it was: %v", x.typed, err)
		}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestParseGuestPathRejectsLocalPaths(t *testing.T) {
	for s, want := range map[string]guestPath{
		"box:/a": {"box", "/a"}, "box:": {"box", ""}, "box:a:b": {"box", "a:b"},
		"a": {}, "./a:b": {}, "/a:b": {}, ":b": {}, "a/b:c": {}, "../a:b": {},
	} {
		if got, ok := parseGuestPath(s); got != want || ok != (want != guestPath{}) {
			t.Errorf("%q is %+v, %v", s, got, ok)
		}
	}
	for s, want := range map[string][2]int{"80": {80, 80}, "8080:80": {8080, 80}, "0:80": {0, 80}, "x": {}, "0": {}, "1:2:3": {}, "80:": {}, "70000": {}} {
		local, inside, err := parsePorts(s)
		if (err == nil) != (want != [2]int{}) || err == nil && want != [2]int{local, inside} {
			t.Errorf("%q is %d, %d, %v", s, local, inside, err)
		}
	}
}

// TestCopyOutIsConfined checks that malicious file names in a sandbox cannot
// make a copy write outside its destination.
func TestCopyOutIsConfined(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	for _, name := range []string{"/w/../../evil", "/evil", "/w/a/../../evil", "/w/", "/w/./../evil"} {
		o := copyOut{fileCopy{c: &cli{stderr: &out}, files: falseFiles{name: name}}}
		if err := o.copy(t.Context(), "/w", dir+"/to"); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The copy must not follow an existing link, either.
	if err := os.Symlink(dir, dir+"/to/out"); err != nil {
		t.Fatal(err)
	}
	o := copyOut{fileCopy{c: &cli{stderr: &out}, files: falseFiles{name: "/w/out/evil"}}}
	if err := o.copy(t.Context(), "/w", dir+"/to"); err == nil {
		t.Error("a link was followed")
	}
	o.files = falseFiles{name: "/w/cut"}
	if err := o.copy(t.Context(), "/w/", dir+"/to/"); err == nil {
		t.Error("what was cut short is whole")
	}
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil || !slices.Equal(names, []string{"to/out"}) {
		t.Errorf("there are %q, %v", names, err)
	}
}

// falseFiles serves a directory with one file, which has a malicious name and
// truncated content.
type falseFiles struct {
	brig.Files
	name string
}

func (falseFiles) Stat(context.Context, brig.Path) (*brig.Entry, error) {
	return &brig.Entry{Path: "/w", Type: brig.Directory}, nil
}

func (l falseFiles) List(context.Context, brig.Path, int) ([]*brig.Entry, error) {
	return []*brig.Entry{{Path: l.name, Type: brig.RegularFile}}, nil
}

func (l falseFiles) Read(context.Context, brig.Path, int64, int64) (*brig.Entry, io.ReadCloser, error) {
	return &brig.Entry{Path: l.name, Mode: 0o644}, io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
}
