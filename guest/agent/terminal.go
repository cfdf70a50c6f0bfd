package agent

import (
	"io"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/brig-run/brig/guest/wire"
)

// openTerminal creates a pseudo-terminal. It returns the agent's side and the
// process's side, which belongs to the given user.
func openTerminal(size wire.Terminal, uid, gid uint32) (ours *os.File, theirs int, err error) {
	master, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, newFailure("internal", "", "open a terminal: %v", err)
	}
	// A non-blocking descriptor uses the runtime's poller, so that closing it
	// interrupts reads.
	if err := syscall.SetNonblock(master, true); err != nil {
		syscall.Close(master)
		return nil, 0, err
	}
	ours = os.NewFile(uintptr(master), "terminal")
	n, lock := int32(0), int32(0)
	err = ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&lock))
	if err == nil {
		err = ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&n))
	}
	if err == nil {
		err = resize(master, size)
	}
	name := "/dev/pts/" + strconv.Itoa(int(n))
	if err == nil {
		theirs, err = syscall.Open(name, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		ours.Close()
		return nil, 0, newFailure("internal", "", "open a terminal: %v", err)
	}
	syscall.Fchown(theirs, int(uid), int(gid)) // allows the user to reopen the terminal by its name
	return ours, theirs, nil
}

func resize(master int, size wire.Terminal) error {
	ws := struct{ rows, columns, x, y uint16 }{rows: size.Rows, columns: size.Columns}
	return ioctl(master, syscall.TIOCSWINSZ, unsafe.Pointer(&ws))
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// relayTerminal copies data between a terminal and the host's pipes until no
// process has the terminal open.
func relayTerminal(terminal *os.File, in, out uintptr) {
	from, to := os.NewFile(in, "input"), os.NewFile(out, "output")
	go func() {
		io.Copy(terminal, from)
		from.Close() // the writer then gets a broken pipe
	}()
	go func() {
		buf := make([]byte, 16<<10)
		for {
			n, err := terminal.Read(buf)
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					break
				}
			}
			if err != nil {
				break // EIO: no process has the terminal open
			}
		}
		to.Close()
		terminal.Close()
	}()
}
