package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// The code of cells can use bash's ends of the pipes of a shell: bash saves the descriptor of the
// reports while a cell runs, and reads its script from a descriptor of its own. Therefore every
// report begins with a mark that only the corresponding script contains.

// errShellEnded means that bash has ended without sending the report.
var errShellEnded = errors.New("bash has ended")

// violationLost is ViolationLost of package interpreter.
const violationLost = "lost"

// reportError is the error of a shell whose pipes were used by other code.
type reportError struct {
	name string // violationLost, or empty for a line without the mark
}

// Error implements error.
func (e *reportError) Error() string {
	return "the pipes of bash were used by other code " + e.name
}

// newMark returns the mark of the next report. It is short because bash reads its script byte by
// byte. The length is sufficient because a wrong guess ends the shell.
func newMark() string { return rand.Text()[:8] }

// scriptGrace is the interval at which runScript checks whether bash is idle; after two idle checks
// in a row the script counts as lost.
const scriptGrace = 5 * time.Second

// isIdle reports whether bash waits for a script and the pipe is empty. Bash's descriptor for
// reports is then open, whereas it is closed while a cell runs.
func (s *shell) isIdle() bool {
	reports, err := s.reports.SyscallConn()
	if err != nil {
		return false
	}
	var link string
	if reports.Control(func(fd uintptr) { link, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }) != nil {
		return false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.cmd.Process.Pid, reportFD))
	return err == nil && theirs == link && strings.HasPrefix(link, "pipe:") && s.unreadScript() == 0
}

// unreadScript returns the number of script bytes that bash has not read, or -1 if the number is
// unknown.
func (s *shell) unreadScript() int {
	script, err := s.script.SyscallConn()
	if err != nil {
		return -1
	}
	var n int32
	var errno syscall.Errno
	err = script.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	})
	if err != nil || errno != 0 {
		return -1
	}
	return int(n)
}
