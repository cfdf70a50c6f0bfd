package gvisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/diskimage"
)

// tree is a part of the host's files that a sentry accesses directly. It is a
// detached mount, so that the sentry cannot reach its parent directories. The
// tree is read-only, including all mounts below it, unless it is a volume.
//
// A sentry requests the files of each mount over a socket, with gVisor's LISAFS
// protocol. With directfs the sentry sends only two kinds of requests. The
// first requests the mount's root, before the guest runs. The second requests
// the root again, whenever a program opens the root itself, because the sentry
// cannot open the root by name. On any other request the tree closes the
// connection.
type tree struct {
	root *os.File // opened for reading
	c    *net.UnixConn
}

type trees []*tree

func (t trees) close() error {
	var errs []error
	for _, one := range t {
		_ = one.c.Close() // the connection may already be closed
		errs = append(errs, one.root.Close())
	}
	return errors.Join(errs...)
}

// attributes are the mount attributes of a tree: devices and setuid programs of
// the image have no effect for the sentry.
const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// openTree creates a detached mount of a path.
func openTree(path string, writable bool) (_ *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("mount %s apart: %w", path, err)
		}
	}()
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	if writable {
		attr.Attr_set = 0
	}
	if err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// tryTree returns nil if this machine can create trees, and otherwise the
// reason why it cannot.
func tryTree(path string) error {
	f, err := openTree(path, false)
	if err == nil {
		f.Close()
	}
	return err
}

// reopen opens a tree's root again, for reading.
func reopen(f *os.File) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// donateTrees donates a socket for the root and for each bind mount, and serves
// the requests on them.
func (b *sentryLaunch) donateTrees(o *order) (out trees, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	// serve donates a tree whose root is open, and closes the root if it fails.
	serve := func(root *os.File) error {
		t := &tree{root: root}
		if err := b.donateTree(t); err != nil {
			root.Close()
			return err
		}
		out = append(out, t)
		return nil
	}
	add := func(path string, writable bool) error {
		detached, err := openTree(path, writable)
		if err != nil {
			return err
		}
		defer detached.Close()
		if info, err := detached.Stat(); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("%s is no folder and no file", path), err)
		}
		root, err := reopen(detached)
		if err != nil {
			return err
		}
		return serve(root)
	}
	if err := add(o.Root.Dir, false); err != nil {
		return out, err
	}
	for _, bind := range o.binds() {
		if err := add(bind.Source, o.isDisabled("read-only")); err != nil {
			return out, err
		}
	}
	for _, v := range o.Volumes {
		root, err := diskimage.Mount(v.Image, v.ReadOnly)
		if err == nil {
			err = serve(root)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (b *sentryLaunch) donateTree(t *tree) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	b.donate("io-fds", os.NewFile(uintptr(fds[1]), "tree"))
	ours := os.NewFile(uintptr(fds[0]), "tree")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	t.c = c.(*net.UnixConn)
	go t.serve()
	return nil
}

// The supported LISAFS messages and their lengths. All numbers are in this
// machine's byte order.
const (
	msgError  = 0
	msgMount  = 1
	msgOpenAt = 7

	msgHeader = 8  // length of the body, kind, padding
	msgOpen   = 16 // a file's number, flags, padding
	msgStatx  = 144

	rootID = 1       // the root's number
	openID = 2       // the number of every open file; the sentry never closes these files
	msgMax = 1 << 16 // advertised to the sentry, which never sends messages of this size
)

// A sentry makes only a few requests. If the guest has taken over the sentry
// and sends more, the shim must not waste CPU time, because no limit applies
// to the shim.
const (
	unpacedRequests = 32
	requestPause    = 10 * time.Millisecond
)

// serve answers the sentry's requests until the sentry exits or sends an
// invalid request.
func (t *tree) serve() {
	defer t.c.Close() // so that the sentry does not wait for a response
	for n := 0; ; n++ {
		if n >= unpacedRequests {
			time.Sleep(requestPause)
		}
		var buf [msgHeader + msgOpen]byte
		if _, err := io.ReadFull(t.c, buf[:msgHeader]); err != nil {
			return
		}
		size, kind := binary.NativeEndian.Uint32(buf[:]), binary.NativeEndian.Uint16(buf[4:])
		if size > msgOpen {
			return
		}
		if _, err := io.ReadFull(t.c, buf[msgHeader:msgHeader+size]); err != nil {
			return
		}
		response, f, err := t.handleMessage(kind, buf[msgHeader:msgHeader+size])
		if err != nil {
			return
		}
		if err := t.send(response, f); err != nil {
			return
		}
	}
}

// handleMessage returns the response to a message. If it returns an error, the caller
// closes the connection.
func (t *tree) handleMessage(kind uint16, body []byte) (response []byte, _ *os.File, err error) {
	switch {
	case kind == msgMount && len(body) == 0:
		f, err := reopen(t.root)
		return encodeMountResponse(), f, err
	case kind != msgOpenAt || len(body) != msgOpen:
		return nil, nil, errors.New("nothing else is ever asked")
	}
	id, flags := binary.NativeEndian.Uint64(body), binary.NativeEndian.Uint32(body[8:])
	if id != rootID || flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY {
		return encodeErrno(unix.EROFS), nil, nil
	}
	f, err := reopen(t.root)
	if err != nil {
		return encodeErrno(unix.EIO), nil, nil //nolint:nilerr // the sentry gets an error: it may be temporarily out of descriptors
	}
	return encodeMessage(msgOpenAt, binary.NativeEndian.AppendUint64(nil, openID)), f, nil
}

func encodeErrno(e unix.Errno) []byte {
	return encodeMessage(msgError, binary.NativeEndian.AppendUint32(nil, uint32(e)))
}

// encodeMountResponse returns the response to a mount request: the root's number, empty
// attributes, and the supported messages. The sentry ignores the attributes
// because it can read them from the descriptor.
func encodeMountResponse() []byte {
	b := binary.NativeEndian.AppendUint64(nil, rootID)
	b = append(b, make([]byte, msgStatx)...)
	b = binary.NativeEndian.AppendUint32(b, msgMax)
	b = binary.NativeEndian.AppendUint16(b, 2)
	b = binary.NativeEndian.AppendUint16(b, msgMount)
	b = binary.NativeEndian.AppendUint16(b, msgOpenAt)
	return encodeMessage(msgMount, b)
}

// encodeMessage adds the header to a message body.
func encodeMessage(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	return append(b, body...)
}

// send sends a response, with a descriptor if there is one, and closes the
// descriptor.
func (t *tree) send(response []byte, f *os.File) error {
	var oob []byte
	if f != nil {
		defer f.Close()
		oob = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := t.c.WriteMsgUnix(response, oob, nil)
	return err
}
