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
)

// tree is a part of the host's files that a sentry works with itself: a mount
// that is attached nowhere, so that there is no way up from it, and that is
// read-only with everything below it.
//
// A sentry asks for the files of each mount on a socket, in the words of
// gVisor's LISAFS protocol, and with directfs asks for no more than two
// things: the mount's root, once, before the guest runs; and the root anew,
// when a program opens just that, since it has no name by which the sentry
// could open it. No answer depends on what was asked for beyond these two.
type tree struct {
	root *os.File // opened for reading
	c    *net.UnixConn
}

type trees []*tree

func (t trees) close() error {
	var errs []error
	for _, one := range t {
		_ = one.c.Close() // the talk may have ended
		errs = append(errs, one.root.Close())
	}
	return errors.Join(errs...)
}

// attributes are what a tree is: what the image has of devices and of
// programs that run as their owner is nothing to the sentry.
const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// openTree makes a tree of what is at a path.
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

// tryTree reports why this machine cannot make trees, or nil if it can.
func tryTree(path string) error {
	f, err := openTree(path, false)
	if err == nil {
		f.Close()
	}
	return err
}

// again opens a tree's root once more, for reading.
func again(f *os.File) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// donateTrees donates a socket for the root and for each bind, and has what is
// asked on them answered.
func (b *boarding) donateTrees(o *order) (out trees, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
		}
	}()
	add := func(path string, writable bool) error {
		apart, err := openTree(path, writable)
		if err != nil {
			return err
		}
		defer apart.Close()
		if info, err := apart.Stat(); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			return errors.Join(fmt.Errorf("%s is no folder and no file", path), err)
		}
		t := &tree{}
		if t.root, err = again(apart); err != nil {
			return err
		}
		if err := b.donateTree(t); err != nil {
			t.root.Close()
			return err
		}
		out = append(out, t)
		return nil
	}
	if err := add(o.Root.Dir, false); err != nil {
		return out, err
	}
	for _, bind := range o.Root.Binds {
		if err := add(bind.Source, o.disabled("read-only")); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (b *boarding) donateTree(t *tree) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	b.own("io-fds", os.NewFile(uintptr(fds[1]), "tree"))
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

// The messages of LISAFS that are spoken, and how long they are. All numbers
// are of this machine's order of bytes.
const (
	msgError  = 0
	msgMount  = 1
	msgOpenAt = 7

	msgHeader = 8  // length of what follows, kind, nothing
	msgOpen   = 16 // a file's number, flags, nothing
	msgStatx  = 144

	rootID = 1       // the root's number
	openID = 2       // that of whatever is opened; nobody closes it
	msgMax = 1 << 16 // said to the sentry, who never sends so much
)

// A sentry asks a few times in all. One that goes on asking, since it is the
// guest's by now, is not to have this process work for it: what is done here
// counts to nobody's limit.
const (
	askedFreely = 32
	askedPause  = 10 * time.Millisecond
)

// serve answers the sentry until it ends, or asks for anything else.
func (t *tree) serve() {
	defer t.c.Close() // so that nobody waits for an answer
	for n := 0; ; n++ {
		if n >= askedFreely {
			time.Sleep(askedPause)
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
		answer, f, err := t.answer(kind, buf[msgHeader:msgHeader+size])
		if err != nil {
			return
		}
		if err := t.send(answer, f); err != nil {
			return
		}
	}
}

// answer says what a message is answered with; an error ends the talk.
func (t *tree) answer(kind uint16, body []byte) (answer []byte, _ *os.File, err error) {
	switch {
	case kind == msgMount && len(body) == 0:
		f, err := again(t.root)
		return mounted(), f, err
	case kind != msgOpenAt || len(body) != msgOpen:
		return nil, nil, errors.New("nothing else is ever asked")
	}
	id, flags := binary.NativeEndian.Uint64(body), binary.NativeEndian.Uint32(body[8:])
	if id != rootID || flags&(unix.O_ACCMODE|unix.O_TRUNC) != unix.O_RDONLY {
		return refusal(unix.EROFS), nil, nil
	}
	f, err := again(t.root)
	if err != nil { //nolint:nilerr // that is the answer: it may be out of descriptors, for now
		return refusal(unix.EIO), nil, nil
	}
	return message(msgOpenAt, binary.NativeEndian.AppendUint64(nil, openID)), f, nil
}

func refusal(e unix.Errno) []byte {
	return message(msgError, binary.NativeEndian.AppendUint32(nil, uint32(e)))
}

// mounted is the answer to who asks for the root: its number, attributes that
// nobody reads since they come with the descriptor, and what may be asked.
func mounted() []byte {
	b := binary.NativeEndian.AppendUint64(nil, rootID)
	b = append(b, make([]byte, msgStatx)...)
	b = binary.NativeEndian.AppendUint32(b, msgMax)
	b = binary.NativeEndian.AppendUint16(b, 2)
	b = binary.NativeEndian.AppendUint16(b, msgMount)
	b = binary.NativeEndian.AppendUint16(b, msgOpenAt)
	return message(msgMount, b)
}

// message puts the header in front of what is said.
func message(kind uint16, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	return append(b, body...)
}

// send sends an answer, with a descriptor if there is one, which it closes.
func (t *tree) send(answer []byte, f *os.File) error {
	var oob []byte
	if f != nil {
		defer f.Close()
		oob = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := t.c.WriteMsgUnix(answer, oob, nil)
	return err
}
