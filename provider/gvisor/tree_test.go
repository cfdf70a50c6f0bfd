package gvisor

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// createTree creates a tree from a directory with one file. Another directory is
// mounted inside it, as in a sentry's image.
func createTree(t testing.TB, writable bool) (dir string, root *os.File) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the image"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openTree(dir, writable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if root, err = reopen(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}

// TestTreeIsConfined verifies that a process with a tree's root can read the
// files in the tree, but cannot change them or reach other files.
func TestTreeIsConfined(t *testing.T) {
	dir, root := createTree(t, false)
	at := int(root.Fd())
	for _, up := range []string{".", "..", "../..", "../../../../.."} {
		var there, own unix.Stat_t
		fd, err := unix.Openat(at, up, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.Fstat(fd, &there), unix.Stat(dir, &own), unix.Close(fd)); err != nil || there.Ino != own.Ino || there.Dev != own.Dev {
			t.Errorf("%s leads out of the tree: %v", up, err)
		}
	}
	if fd, err := unix.Openat(at, "file", unix.O_RDWR, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("open for writing: %d, %v", fd, err)
	}
	if fd, err := unix.Openat(at, "new", unix.O_CREAT|unix.O_WRONLY, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("create: %d, %v", fd, err)
	}
	if err := unix.Fchmodat(at, "file", 0o777, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("change mode: %v", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil {
		t.Fatal(err)
	}
	for name, flag := range map[string]int64{"read-only": unix.ST_RDONLY, "nosuid": unix.ST_NOSUID, "nodev": unix.ST_NODEV} {
		if fs.Flags&flag == 0 {
			t.Errorf("the tree is not %s", name)
		}
	}
}

// TestUnprotectedTreeIsWritable is the control: a tree without protection is
// writable.
func TestUnprotectedTreeIsWritable(t *testing.T) {
	dir, root := createTree(t, true)
	fd, err := unix.Openat(int(root.Fd()), "new", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if _, err := os.Stat(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	// The parent directory of an ordinary path on the host is reachable.
	var up, own unix.Stat_t
	if err := errors.Join(unix.Stat(dir+"/..", &up), unix.Stat(dir, &own)); err != nil || up.Ino == own.Ino {
		t.Errorf("nothing is above %s: %v", dir, err)
	}
}

// TestNestedMountsAreReadOnly verifies that a mount inside a tree is also
// read-only and has no parent directory, even if only the inner mount is still
// open.
func TestNestedMountsAreReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := errors.Join(os.Mkdir(below, 0o755), unix.Mount("none", below, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	f, err := openTree(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	root, err := reopen(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fd, err := unix.Openat(int(root.Fd()), "below", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if made, err := unix.Openat(fd, "new", unix.O_CREAT|unix.O_WRONLY, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("create: %d, %v", made, err)
	}
	var own, up unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Fstatat(fd, "../../../..", &up, 0)); err != nil || own.Ino != up.Ino || own.Dev != up.Dev {
		t.Errorf("it leads out of the tree: %v", err)
	}
	// Control: the inner mount is writable at its mount point.
	if err := os.WriteFile(filepath.Join(below, "new"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// TestTreeRequestsArePaced verifies that the shim delays its responses to a
// sentry that floods it with requests, so that the shim does little work.
func TestTreeRequestsArePaced(t *testing.T) {
	_, root := createTree(t, false)
	const more = 10
	say := [][]byte{encodeMessage(msgMount, nil)}
	for range unpacedRequests - 1 + more {
		say = append(say, openMessage(rootID, unix.O_RDWR))
	}
	begin := time.Now()
	answers, _ := exchangeMessages(t, root, say...)
	if took := time.Since(begin); took < more*requestPause || len(answers) < len(say)*msgHeader {
		t.Errorf("%d bytes of answers after %v", len(answers), took)
	}
}

// socketPair returns two connected sockets of the given type.
func socketPair(t testing.TB, kind int) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end "+strconv.Itoa(i))
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// exchangeMessages sends messages to a tree. It returns all responses and their descriptors until
// the tree closes the connection.
func exchangeMessages(t testing.TB, root *os.File, messages ...[]byte) (answers []byte, files []*os.File) {
	t.Helper()
	ends := socketPair(t, unix.SOCK_STREAM)
	defer ends[0].Close()
	defer ends[1].Close()
	one := &tree{root: root, c: ends[0]}
	done := make(chan struct{})
	go func() {
		defer close(done)
		one.serve()
	}()
	go func() {
		for _, m := range messages {
			if _, err := ends[1].Write(m); err != nil {
				break // the tree has closed the connection
			}
		}
		_ = ends[1].CloseWrite()
	}()
	_ = ends[1].SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*16))
		n, oobn, _, _, err := ends[1].ReadMsgUnix(buf, oob)
		for _, fd := range descriptors(oob[:oobn]) {
			files = append(files, os.NewFile(uintptr(fd), "given"))
		}
		answers = append(answers, buf[:max(n, 0)]...)
		if err != nil || n == 0 {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("read answers: %v", err)
			}
			break
		}
	}
	<-done
	t.Cleanup(func() {
		for _, f := range files {
			f.Close()
		}
	})
	return answers, files
}

// openMessage returns the message that a sentry sends to open the root.
func openMessage(id uint64, flags uint32) []byte {
	b := binary.NativeEndian.AppendUint64(nil, id)
	b = binary.NativeEndian.AppendUint32(b, flags)
	return encodeMessage(msgOpenAt, binary.NativeEndian.AppendUint32(b, 0))
}

func TestTreeRejectsOtherRequests(t *testing.T) {
	_, root := createTree(t, false)
	mount, fine := encodeMessage(msgMount, nil), openMessage(rootID, unix.O_RDONLY|unix.O_DIRECTORY)
	for name, c := range map[string]struct {
		say   [][]byte
		files int
		last  uint16 // the kind of the last response
	}{
		"mount":                   {[][]byte{mount}, 1, msgMount},
		"mount and open":          {[][]byte{mount, fine, fine}, 3, msgOpenAt},
		"for writing":             {[][]byte{mount, openMessage(rootID, unix.O_RDWR)}, 1, msgError},
		"to cut it":               {[][]byte{mount, openMessage(rootID, unix.O_TRUNC)}, 1, msgError},
		"another file":            {[][]byte{mount, openMessage(7, 0)}, 1, msgError},
		"another message":         {[][]byte{mount, encodeMessage(5, make([]byte, 16)), fine}, 1, msgMount},
		"a channel":               {[][]byte{mount, encodeMessage(2, nil), fine}, 1, msgMount},
		"a mount with something":  {[][]byte{encodeMessage(msgMount, make([]byte, 3)), fine}, 0, 0},
		"too short":               {[][]byte{mount, encodeMessage(msgOpenAt, make([]byte, 8)), fine}, 1, msgMount},
		"too long":                {[][]byte{mount, encodeMessage(msgOpenAt, make([]byte, 1<<20)), fine}, 1, msgMount},
		"a header that is broken": {[][]byte{mount, {1, 2, 3}}, 1, msgMount},
	} {
		t.Run(name, func(t *testing.T) {
			answers, files := exchangeMessages(t, root, c.say...)
			if len(files) != c.files {
				t.Errorf("%d descriptors, want %d", len(files), c.files)
			}
			for _, f := range files {
				if _, err := os.ReadDir("/proc/self/fd/" + strconv.Itoa(int(f.Fd()))); err != nil {
					t.Error(err)
				}
			}
			last := uint16(0)
			for len(answers) >= msgHeader {
				size := int(binary.NativeEndian.Uint32(answers))
				last = binary.NativeEndian.Uint16(answers[4:])
				answers = answers[min(msgHeader+size, len(answers)):]
			}
			if last != c.last {
				t.Errorf("the last answer is %d, want %d", last, c.last)
			}
		})
	}
}

// FuzzTree verifies that a sentry receives only descriptors of the tree's root
// that are opened for reading, regardless of the messages that it sends.
func FuzzTree(f *testing.F) {
	_, root := createTree(f, false)
	f.Add(slices.Concat(encodeMessage(msgMount, nil), openMessage(rootID, 0), openMessage(2, 1)))
	f.Add(encodeMessage(3, make([]byte, 16)))
	own, err := root.Stat()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 512 {
			return // longer messages would need more descriptors than fit
		}
		_, files := exchangeMessages(t, root, data)
		for _, file := range files {
			flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
			if info, err2 := file.Stat(); err != nil || err2 != nil || !os.SameFile(info, own) || flags&unix.O_ACCMODE != unix.O_RDONLY {
				t.Errorf("it was given %v with flags %x, %v, %v", info, flags, err, err2)
			}
		}
	})
}
