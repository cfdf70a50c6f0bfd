//go:build !shim

package gvisor

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const cpuidChild = "BRIG_TEST_CPUID"

// TestPlainCPUID verifies that a sentry cannot enable CPUID faulting, even on
// threads older than the filter, and that all other calls are unaffected. The
// test uses a separate process, because the filter cannot be removed. Like a
// sentry, the process has its own user namespace.
func TestPlainCPUID(t *testing.T) {
	if os.Getenv(cpuidChild) != "" {
		plainCPUIDChild(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPlainCPUID$")
	cmd.Env = append(os.Environ(), cpuidChild+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"here no such device", "elsewhere no such device", "the register errno 0", "another number errno 0"} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if !strings.Contains(string(out), "before errno 0\n") {
		t.Log("this processor could not make CPUID a fault before either: the test says little")
	}
}

func plainCPUIDChild(t *testing.T) {
	runtime.LockOSThread()
	// The call disables CPUID faulting, which is already disabled, and is
	// therefore harmless if the kernel accepts it.
	set := func() syscall.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archSetCPUID, 1, 0)
		return errno
	}
	ask, result := make(chan struct{}), make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread()
		for range ask {
			result <- set()
		}
	}()
	fmt.Println("before", set())
	ask <- struct{}{}
	<-result
	if err := stopCPUIDFaults(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("here", set())
	ask <- struct{}{}
	fmt.Println("elsewhere", <-result)
	const archGetFS = 0x1003
	var fs uint64
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&fs)), 0)
	fmt.Println("the register", errno)
	_, _, errno = unix.RawSyscall(unix.SYS_SCHED_YIELD, archSetCPUID, 1, 0)
	fmt.Println("another number", errno)
}
