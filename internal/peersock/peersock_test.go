package peersock

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/testenv"
)

const name = "test.sock"

// listen listens in a directory and accepts all connections until the test
// ends.
func listen(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	ln, err := Listen(t.Context(), dir, name)
	if err != nil {
		t.Fatal(err)
	}
	acceptAll(t, ln)
	return ln
}

func acceptAll(t *testing.T, ln net.Listener) {
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
}

// TestOnlyOwnerCanConnect verifies that only the owner can connect from the moment at which the
// socket is created, even with a permissive umask.
func TestOnlyOwnerCanConnect(t *testing.T) {
	dir := t.TempDir()
	defer unix.Umask(unix.Umask(0))
	listen(t, dir)
	if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// Control: a plain listener.
	ln, err := net.Listen("unix", filepath.Join(dir, "usual"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if info, err := os.Stat(filepath.Join(dir, "usual")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the control has %v, %v", info.Mode(), err)
	}
}

// connectTo connects to the socket of a directory.
func connectTo(t *testing.T, dir string) {
	t.Helper()
	c, err := Dial(t.Context(), dir, name, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestListenAcceptsLongDirectoryPath verifies that the directory's path may be longer than a socket
// address. Control: a plain listener fails there.
func TestListenAcceptsLongDirectoryPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	listen(t, dir)
	connectTo(t, dir)
	if ln, err := net.Listen("unix", filepath.Join(dir, "usual")); err == nil {
		ln.Close()
		t.Error("the control listens: the path is not long")
	}
	// Test the longest path that fits, and a path that is one byte longer.
	top := t.TempDir()
	for _, size := range []int{maxPath, maxPath + 1} {
		n := size - len(top) - len(name) - 2
		if n < 1 {
			t.Skip("the folder for temporary files has a long path")
		}
		dir := filepath.Join(top, strings.Repeat("f", n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		listen(t, dir)
		c, err := Dial(t.Context(), dir, name, os.Geteuid())
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		c.Close()
	}
}

// TestListenReplacesStaleSocket verifies that Listen replaces the socket of a process that has
// exited, but no other kind of file.
func TestListenReplacesStaleSocket(t *testing.T) {
	dir := t.TempDir()
	listen(t, dir).Close()
	if _, err := Dial(t.Context(), dir, name, os.Geteuid()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
	listen(t, dir)
	connectTo(t, dir)
	file := filepath.Join(dir, name)
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), dir, name); !errors.Is(err, ErrNotSocket) {
		t.Errorf("in the place of a file: %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// TestListenerOfOtherUserIsRejected verifies that a client does not connect to a listener of
// another user. Control: a listener of the same user is accepted.
func TestListenerOfOtherUserIsRejected(t *testing.T) {
	dir := testenv.OpenDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	if err := testenv.RunAsUser(t, testenv.OtherUser, func() (err error) {
		ln, err = Listen(t.Context(), dir, name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	acceptAll(t, ln)
	_, err := Dial(t.Context(), dir, name, os.Geteuid())
	if peer, ok := errors.AsType[*PeerError](err); !ok || peer.UID != testenv.OtherUser {
		t.Errorf("the listener of another user: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	listen(t, dir)
	connectTo(t, dir)
}

// TestOverflowIDIsNotTrusted verifies which peers are trusted. The overflow ID is never trusted,
// even if it is the process's own ID, because it stands for every user of other user namespaces.
func TestOverflowIDIsNotTrusted(t *testing.T) {
	for _, c := range []struct {
		peer, uid int
		want      bool
	}{
		{1000, 1000, true},
		{0, 0, true},
		{0, 1000, true},
		{1001, 1000, false},
		{1000, 0, false},
		{overflowUID(), 1000, false},
		{overflowUID(), overflowUID(), false},
	} {
		if got := IsTrusted(c.peer, c.uid); got != c.want {
			t.Errorf("peer %d for user %d: %v", c.peer, c.uid, got)
		}
	}
}
