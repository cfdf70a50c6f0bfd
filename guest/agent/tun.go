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

// tunFile is the device, and tunNumber its number, by which it is known.
const (
	tunFile   = "/dev/net/tun"
	tunNumber = 10<<8 | 200
)

// tun is an interface whose packets are the agent's to carry. It is there as
// long as it is open.
type tun struct {
	f   *os.File
	raw syscall.RawConn
}

// take takes the device away from the sandbox's programs: it has no name from
// then on, and only the agent's descriptor leads to it. One that is mounted from
// the host is the host's and stays; without a capability nobody can use it.
func (l *link) take() error {
	const oPath = 0x200000 // O_PATH
	fd, err := syscall.Open(tunFile, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOENT {
		return nil // there is none to take, and no uplink
	}
	if err != nil {
		return fmt.Errorf("take %s: %w", tunFile, err)
	}
	switch err := syscall.Unlink(tunFile); err {
	case nil:
		l.device = fmt.Sprintf("/proc/self/fd/%d", fd)
		return nil
	case syscall.EBUSY: // it is mounted
		return syscall.Close(fd)
	default:
		syscall.Close(fd)
		return fmt.Errorf("take %s: %w", tunFile, err)
	}
}

// openTun makes a new interface, with the device by the name that the agent has
// for it or else by everybody's.
func openTun(device, name string) (*tun, error) {
	flags := syscall.O_RDWR | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	if device == "" {
		device, flags = tunFile, flags|syscall.O_NOFOLLOW
	}
	fd, err := syscall.Open(device, flags, 0)
	if err != nil {
		return nil, failure("internal", "", "open %s: %v", tunFile, err)
	}
	if err := attach(fd, name); err != nil {
		syscall.Close(fd)
		return nil, failure("internal", "", "make interface %s: %v", name, err)
	}
	// Reads wait in the runtime's poller, so that a deadline ends them.
	f := os.NewFile(uintptr(fd), tunFile)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, failure("internal", "", "make interface %s: %v", name, err)
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
	// Exclusive: one that somebody else has open would be shared with them.
	const exclusive = 0x8000 // IFF_TUN_EXCL
	var request [40]byte     // struct ifreq
	copy(request[:syscall.IFNAMSIZ-1], name)
	binary.NativeEndian.PutUint16(request[syscall.IFNAMSIZ:], syscall.IFF_TUN|syscall.IFF_NO_PI|exclusive)
	if err := control(fd, syscall.TUNSETIFF, unsafe.Pointer(&request)); err != nil {
		return err
	}
	// An image may have brought a node of the same device. Not all kernels know
	// owners.
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETOWNER, agentID)
	return nil
}

// read waits for packets and appends those that there are, each with its
// header, as long as b has room for the largest.
func (t *tun) read(b []byte) ([]byte, error) {
	var failed error
	err := t.raw.Read(func(fd uintptr) bool {
		for cap(b)-len(b) >= wire.PacketHeader+wire.MaxPacket {
			at := len(b) + wire.PacketHeader
			n, err := syscall.Read(int(fd), b[at:at+wire.MaxPacket])
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				return len(b) > 0
			case err != nil || n == 0:
				failed = fmt.Errorf("read %s: %d bytes, %w", tunFile, n, err)
				return true
			}
			wire.PutPacketHeader(b[at-wire.PacketHeader:at], n)
			b = b[:at+n]
		}
		return true
	})
	return b, errors.Join(err, failed)
}

// write gives the sandbox's kernel a packet. What it does not want is lost.
func (t *tun) write(packet []byte) error {
	_, err := t.f.Write(packet)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

// interrupt ends a read that waits.
func (t *tun) interrupt() { t.f.SetReadDeadline(past) }

// close takes the interface away. Between its fork and its exec a child has
// the device open, too, so it waits for those.
func (t *tun) close() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	t.f.Close()
}
