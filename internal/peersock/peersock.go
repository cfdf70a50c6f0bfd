// Package peersock provides Unix sockets in a directory. Each end obtains the user of the other
// end from the kernel (SO_PEERCRED), so that neither end needs to send a secret.
package peersock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPath is the length of the longest path in a socket address. sun_path has
// 108 bytes, and the last one is zero.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// ErrNotSocket is the error if a file that is not a socket exists at the socket's path.
var ErrNotSocket = errors.New("the file is not a socket")

// PeerError is the error for a listener that belongs to another user.
type PeerError struct{ UID int }

// Error implements error.
func (e *PeerError) Error() string {
	return fmt.Sprintf("the listener belongs to another user (uid %d)", e.UID)
}

// Listen listens on a socket to which only its owner and root can connect. It replaces the
// socket of an earlier process. The caller must ensure that no other process listens on it.
// Close does not remove the file.
func Listen(ctx context.Context, dir, name string) (*net.UnixListener, error) {
	file := filepath.Join(dir, name)
	switch info, err := os.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, ErrNotSocket
	default:
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	path, done, err := prepareAddress(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	// The file is created with the mode of the socket. With a chmod after bind, other users
	// could connect in between.
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmodErr error
		if err := raw.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return chmodErr
	}}
	ln, err := c.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	l := ln.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // the path may contain a descriptor that is closed by then
	return l, nil
}

// Dial connects to a socket. It returns a PeerError unless the process that
// listens belongs to the user uid or to root.
func Dial(ctx context.Context, dir, name string, uid int) (net.Conn, error) {
	path, done, err := prepareAddress(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	peer, err := UID(c.(*net.UnixConn))
	if err == nil && !IsTrusted(peer, uid) {
		err = &PeerError{peer}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepareAddress returns a path for a socket address. A path that is too long is replaced by one
// through a descriptor of the directory. The function done closes the descriptor.
func prepareAddress(dir, name string) (path string, done func(), err error) {
	if path = filepath.Join(dir, name); len(path) <= maxPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	done = func() { _ = unix.Close(fd) }
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	if _, err := os.Stat(link); err != nil {
		done()
		return "", nil, fmt.Errorf("the path %s has more than %d bytes, and /proc is not mounted: %w", path, maxPath, err)
	}
	return link + "/" + name, done, nil
}

// UID returns the user of the process at the other end of a connection. A user without an ID in
// the user namespace of this process is reported as the overflow ID.
func UID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Uid), nil
}

// IsTrusted reports whether a peer is the user uid or root. The overflow ID is
// never trusted, because it stands for all users of other user namespaces.
func IsTrusted(peer, uid int) bool {
	return peer != overflowUID() && (peer == uid || peer == 0)
}

// overflowUID returns the ID of users without an ID in this user namespace.
var overflowUID = sync.OnceValue(func() int {
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil {
		var id int
		if id, err = strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return id
		}
	}
	return 65534 // the kernel's default
})
