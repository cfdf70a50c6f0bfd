package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

// boundingSet returns the bounding set in a status file of a process or a thread.
func boundingSet(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	m := regexp.MustCompile(`(?m)^CapBnd:\s+0*([0-9a-f]*)$`).FindSubmatch(b)
	if err != nil || m == nil {
		t.Fatalf("%s: %v: %s", file, err, b)
	}
	return string(m[1])
}

// needBoundingSet skips the test unless this process may reduce its bounding set, which must contain
// the rights of a build and others.
func needBoundingSet(t *testing.T) {
	t.Helper()
	for c := range uintptr(64) {
		if has, _ := isInBoundingSet(c); !has && wire.BuildRights>>c&1 == 1 {
			t.Skipf("needs capability %d", c)
		}
	}
	const setpcap = 8
	if has, _ := isInBoundingSet(setpcap); !has || os.Geteuid() != 0 {
		t.Skip("needs root with CAP_SETPCAP")
	}
}

// In a build, the bounding set keeps exactly the rights of a build, and is empty otherwise.
func TestBoundingSetIsReduced(t *testing.T) {
	needBoundingSet(t)
	for keep, want := range map[uint64]string{wire.BuildRights: fmt.Sprintf("%x", wire.BuildRights), 0: ""} {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			err := reduceBoundingSet(keep, syscall.RawSyscall)
			if got := boundingSet(t, "/proc/thread-self/status"); got != want {
				t.Errorf("the bounding set is %q, want %q", got, want)
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// A goroutine may have locked the main thread, which never ends and runs nothing else. So the check reads
	// the status of the thread that it runs on.
	if got := boundingSet(t, "/proc/thread-self/status"); got == "" {
		t.Error("the other threads have lost their bounding set")
	}
}

// A program of a user starts with an empty bounding set, also in a build. The control is a program
// that is started in the usual way.
func TestForkBareEmptiesBoundingSet(t *testing.T) {
	needBoundingSet(t)
	for name, fork := range map[string]func(string, []string, *syscall.ProcAttr) (int, error){"bare": forkBare, "usual": syscall.ForkExec} {
		file := filepath.Join(t.TempDir(), "status")
		pid, err := fork("/bin/sh", []string{"sh", "-c", "cat /proc/self/status > " + file}, &syscall.ProcAttr{Env: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
			t.Fatalf("%v: %d", err, ws.ExitStatus())
		}
		if got := boundingSet(t, file); (got == "") != (name == "bare") {
			t.Errorf("%s: the bounding set is %q", name, got)
		}
	}
	if _, err := forkBare("/no/such/program", []string{"x"}, &syscall.ProcAttr{}); err == nil || strings.Contains(err.Error(), "capability") {
		t.Errorf("a missing program: %v", err)
	}
}
