package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
)

// tunFile is the path of the tun device. tunNumber is its device number, which
// identifies it.
const (
	tunFile   = "/dev/net/tun"
	tunNumber = 10<<8 | 200
)

// tun is a network interface whose packets the agent transfers. The interface
// exists while its file is open.
type tun struct {
	f   *os.File
	raw syscall.RawConn
}

// take removes the tun device from the file system, so that only the agent can
// open it, through a descriptor. A device that is mounted from the host cannot
// be removed, but a process without a capability cannot use it.
func (l *link) take() error {
	const oPath = 0x200000 // O_PATH
	fd, err := syscall.Open(tunFile, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOENT {
		return nil // the device does not exist, so there is no network link
	}
	if err != nil {
		return fmt.Errorf("take %s: %w", tunFile, err)
	}
	switch err := syscall.Unlink(tunFile); err {
	case nil:
		l.device = fmt.Sprintf("/proc/self/fd/%d", fd)
		return nil
	case syscall.EBUSY: // the device is a mount point
		return syscall.Close(fd)
	default:
		syscall.Close(fd)
		return fmt.Errorf("take %s: %w", tunFile, err)
	}
}

// openTun creates a new interface. If device is empty, it opens the device by
// its public path.
func openTun(device, name string) (*tun, error) {
	flags := syscall.O_RDWR | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	if device == "" {
		device, flags = tunFile, flags|syscall.O_NOFOLLOW
	}
	fd, err := syscall.Open(device, flags, 0)
	if err != nil {
		return nil, newFailure("internal", "", "open %s: %v", tunFile, err)
	}
	if err := attach(fd, name); err != nil {
		syscall.Close(fd)
		return nil, newFailure("internal", "", "make interface %s: %v", name, err)
	}
	// Reads use the runtime's poller, so that a deadline interrupts them.
	f := os.NewFile(uintptr(fd), tunFile)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, newFailure("internal", "", "make interface %s: %v", name, err)
	}
	return &tun{f, raw}, nil
}

func attach(fd int, name string) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Rdev != tunNumber {
		return errors.New("a program has put something else in the device's place")
	}
	// Request exclusive use, because otherwise an interface that another
	// process has open would be shared.
	const exclusive = 0x8000 // IFF_TUN_EXCL
	var request [40]byte     // struct ifreq
	copy(request[:syscall.IFNAMSIZ-1], name)
	binary.NativeEndian.PutUint16(request[syscall.IFNAMSIZ:], syscall.IFF_TUN|syscall.IFF_NO_PI|exclusive)
	if err := ioctl(fd, syscall.TUNSETIFF, unsafe.Pointer(&request)); err != nil {
		return err
	}
	// An image may contain a node of the same device, so set the owner of the
	// interface. Ignore errors, because some kernels do not support owners.
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETOWNER, agentID)
	return nil
}

// read waits for packets and appends the available packets, each with its
// header, while b has space for the largest packet.
func (t *tun) read(b []byte) ([]byte, error) {
	var failed error
	err := t.raw.Read(func(fd uintptr) bool {
		for cap(b)-len(b) >= wire.PacketHeader+wire.MaxPacket {
			offset := len(b) + wire.PacketHeader
			n, err := syscall.Read(int(fd), b[offset:offset+wire.MaxPacket])
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				return len(b) > 0
			case err != nil || n == 0:
				failed = fmt.Errorf("read %s: %d bytes, %w", tunFile, n, err)
				return true
			}
			wire.PutPacketHeader(b[offset-wire.PacketHeader:offset], n)
			b = b[:offset+n]
		}
		return true
	})
	return b, errors.Join(err, failed)
}

// write passes a packet to the sandbox's kernel. A packet that the kernel
// rejects is dropped.
func (t *tun) write(packet []byte) error {
	_, err := t.f.Write(packet)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

// interrupt interrupts a pending read.
func (t *tun) interrupt() { t.f.SetReadDeadline(pastDeadline) }

// close removes the interface. A child also has the device open between its
// fork and its exec, so close waits for such children.
func (t *tun) close() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	t.f.Close()
}
