package agent

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// restoreSignals restores the default action of the signals that init neither catches nor needs.
// The Go runtime installs a handler for each of some sixty signals. Every fork resets all of them
// in the child, which takes 1.5 ms inside gVisor. The agent calls restoreSignals after the first
// process has ended, because many sandboxes have no second process, and no caller waits at that
// time.
func (a *Agent) restoreSignals() {
	if a.plain || os.Getpid() != 1 {
		return // a process that is not init may receive unexpected signals
	}
	a.signalsRestored.Do(func() {
		// Prevent forks while the signals are ignored, because programs would
		// inherit the ignored signals.
		a.reaper.mu.Lock()
		defer a.reaper.mu.Unlock()
		for s := syscall.Signal(1); s < 65; s++ {
			if !isSignalNeeded(s) {
				signal.Ignore(s) // removes the runtime's handler
				restoreDefaultAction(s)
			}
		}
	})
}

// isSignalNeeded reports whether the runtime or the agent uses a signal: the signals that New
// catches, faults, SIGXFSZ, and the signal that preempts goroutines. SIGCHLD also counts as needed,
// because a parent that ignores it cannot get the exit status of a child.
func isSignalNeeded(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGURG, syscall.SIGPROF, syscall.SIGCHLD, syscall.SIGXFSZ,
		syscall.SIGKILL, syscall.SIGSTOP, 32, 33, 34: // reserved: SIGKILL, SIGSTOP, and the signals of the C library and the runtime
		return true
	}
	return false
}

// restoreDefaultAction restores the kernel's default action for a signal.
func restoreDefaultAction(s syscall.Signal) {
	var action struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
}
