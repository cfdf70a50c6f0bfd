//go:build !shim

package gvisor

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentrykernel "gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/brig-run/brig"
)

// TestCounters verifies that a sentry counts only the intended errors of the
// intended system calls, and that its shim reads the same counts.
func TestCounters(t *testing.T) {
	shims, file, err := newCounters()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := *shims.read(); got != (brig.Refusals{}) {
		t.Errorf("new counters have %+v", got)
	}
	sentrys, err := mapCounters(int(file.Fd()), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	// Call each wrapped system call once with every error, and once without an
	// error.
	answers := []error{nil, linuxerr.EAGAIN, linuxerr.ENETUNREACH, linuxerr.EHOSTUNREACH, linuxerr.ECONNREFUSED, linuxerr.EINVAL, unix.EPERM, errors.New("other")}
	var response error
	call := func(*sentrykernel.Task, uintptr, arch.SyscallArguments) (uintptr, *sentrykernel.SyscallControl, error) {
		return 7, nil, response
	}
	names := []string{"read", "clone", "clone3", "fork", "vfork", "connect", "sendto", "sendmsg", "sendmmsg", "execve"}
	table := &sentrykernel.SyscallTable{Table: map[uintptr]sentrykernel.Syscall{}}
	for i, name := range names {
		table.Table[uintptr(i)] = sentrykernel.Syscall{Name: name, Fn: call}
	}
	sentrys.watch(table)
	for i := range names {
		for _, response = range answers {
			v, _, err := table.Lookup(uintptr(i))(nil, uintptr(i), arch.SyscallArguments{})
			if v != 7 || err != response {
				t.Errorf("%s returns %d, %v instead of %v", names[i], v, err, response)
			}
		}
	}
	if got, want := *shims.read(), (brig.Refusals{Processes: 4, Connections: 8}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	// Every value that a sentry writes is read as a valid count.
	sentrys.processes.Store(1 << 63)
	if got := shims.read().Processes; got < 0 {
		t.Errorf("a count is %d", got)
	}
	if err := file.Truncate(0); err == nil {
		t.Error("a sentry can shrink the counters, and end the shim by that")
	}
}

// TestCountRefusals verifies that countRefusals removes the counters' flag
// from gVisor's arguments, and that the counted system calls exist.
func TestCountRefusals(t *testing.T) {
	plain := []string{"runsc-sandbox", "--root=/x", "boot", "id"}
	if got := countRefusals(plain); !slices.Equal(got, plain) {
		t.Errorf("%q", got)
	}
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Insert(slices.Clone(plain), 3, "--"+countersFlag+"="+strconv.Itoa(fd))
	if got := countRefusals(args); !slices.Equal(got, plain) {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"clone", "clone3", "connect", "sendto", "sendmsg", "sendmmsg"} {
		if _, err := hostTable().LookupNo(name); err != nil {
			t.Errorf("gVisor has no system call %s: %v", name, err)
		}
	}
}
