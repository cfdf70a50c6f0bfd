//go:build !shim

package gvisor

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentrykernel "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// countRefusals makes this sentry count the calls that it refuses to programs,
// and returns its arguments without the counters' flag. If the counters cannot
// be mapped, the sentry runs without them.
func countRefusals(args []string) []string {
	for i, arg := range args {
		value, found := strings.CutPrefix(arg, "--"+countersFlag+"=")
		if !found {
			continue
		}
		if fd, err := strconv.Atoi(value); err == nil {
			if c, err := mapCounters(fd, unix.PROT_READ|unix.PROT_WRITE); err == nil {
				c.watch(hostTable())
			}
			_ = unix.Close(fd)
		}
		return slices.Concat(args[:i], args[i+1:])
	}
	return args
}

// hostTable returns the system call table of this machine's architecture.
func hostTable() *sentrykernel.SyscallTable {
	if runtime.GOARCH == "arm64" {
		return linux.ARM64
	}
	return linux.AMD64
}

// watch wraps the system calls that create processes and connections, to count
// the errors with which gVisor refuses them. The overhead for a successful
// call is one comparison.
func (c *counters) watch(table *sentrykernel.SyscallTable) {
	for number, call := range table.Table {
		switch call.Name {
		case "clone", "clone3", "fork", "vfork":
			call.Fn = countErrors(call.Fn, c.processes, linuxerr.EAGAIN)
		case "connect", "sendto", "sendmsg", "sendmmsg":
			call.Fn = countErrors(call.Fn, c.connections, linuxerr.ENETUNREACH, linuxerr.EHOSTUNREACH)
		default:
			continue
		}
		table.Table[number] = call
	}
	table.Init() // copies the functions to the table in which gVisor looks them up
}

// countErrors wraps a system call and counts the given errors.
func countErrors(call sentrykernel.SyscallFn, n *atomic.Uint64, errs ...*errors.Error) sentrykernel.SyscallFn {
	return func(t *sentrykernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentrykernel.SyscallControl, error) {
		v, control, err := call(t, number, args)
		if err != nil {
			for _, e := range errs {
				if linuxerr.Equals(e, err) {
					n.Add(1)
					break
				}
			}
		}
		return v, control, err
	}
}
