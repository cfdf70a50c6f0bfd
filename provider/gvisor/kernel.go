package gvisor

import (
	"os"

	"golang.org/x/sys/unix"
)

// kernel is gVisor's, of one sandbox: the sentry's process and what belongs to
// it. It is started by a shim alone, or with a gofer by gVisor's own library.
type kernel interface {
	// pid is the sentry's, 0 when there is none any more.
	pid() int
	// kill ends the sentry's process, and reports whether all that belongs to
	// the kernel ends with it.
	kill() bool
	// run starts the agent in it. Nothing of the guest has run before.
	run() error
	// wait returns how the sentry has ended, when it has.
	wait() unix.WaitStatus
	pause() error
	resume() error
	// destroy ends it, and removes what it had on the host.
	destroy() error
}

// donated are the files that a sandbox is given.
type donated struct{ control, agent *os.File }
