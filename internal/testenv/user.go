package testenv

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// OtherUser is the ID of a user that owns no file and no process of the tests.
const OtherUser = 61_111

// RunAsUser calls f with the permissions of another user. Only the system calls that f makes
// itself, for example to listen on a socket or to connect, use the user's ID. System calls of
// other goroutines do not. RunAsUser skips a test that does not run as root.
func RunAsUser(t testing.TB, uid int, f func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		// The function of package syscall would change the user of all threads.
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			result <- fmt.Errorf("become user %d: %w", uid, errno)
			return
		}
		result <- f()
	}()
	return <-result
}

// OpenDir returns a temporary directory that every user can enter. The parent directories of
// t.TempDir may be closed to other users.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "brig-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
