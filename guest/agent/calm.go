package agent

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// calm gives the kernel back the signals that init neither catches nor needs.
// The runtime has a handler for each of some sixty, and every fork takes them
// all off the child again: 1.5 ms inside gVisor. It waits for a first process's
// end, as many a sandbox has no second one; then nobody waits for it.
func (a *Agent) calm() {
	if a.plain || os.Getpid() != 1 {
		return // who is no init may be sent what it does not expect
	}
	a.calmed.Do(func() {
		// No fork may see them ignored, which programs would inherit.
		a.reaper.mu.Lock()
		defer a.reaper.mu.Unlock()
		for s := syscall.Signal(1); s < 65; s++ {
			if !needed(s) {
				signal.Ignore(s) // so that the runtime knows of no handler
				byDefault(s)
			}
		}
	})
}

// needed says that the runtime or the agent has a use for a signal: those that
// are caught (New), faults, a file that grew too large, and what preempts goroutines. While SIGCHLD is ignored
// nobody learns how a child ended, so it is never touched.
func needed(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGURG, syscall.SIGPROF, syscall.SIGCHLD, syscall.SIGXFSZ,
		syscall.SIGKILL, syscall.SIGSTOP, 32, 33, 34: // not anybody's to set: the C library's, and the runtime's own
		return true
	}
	return false
}

// byDefault has the kernel act on a signal as if nobody ever had set it.
func byDefault(s syscall.Signal) {
	var action struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
}
