package agent

import (
	"os"
	"syscall"
)

// The ends of a pipe.
const (
	readEnd = iota
	writeEnd
)

// openPipe makes a pipe of which one end is ours, which the runtime's poller
// waits for, and the other a process's, which blocks, as programs expect. It is
// os.Pipe in half of the calls: each costs a program's start 20 µs and more.
func openPipe(name string, mine int) (ours *os.File, theirs int, err error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, 0, failure("exhausted", "", "open a pipe: %v", err)
	}
	theirs = p[1-mine]
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(theirs), syscall.F_SETFL, 0); errno != 0 {
		closeAll([]uintptr{uintptr(p[0]), uintptr(p[1])})
		return nil, 0, failure("internal", "", "make a pipe block: %v", errno)
	}
	return os.NewFile(uintptr(p[mine]), name), theirs, nil
}
