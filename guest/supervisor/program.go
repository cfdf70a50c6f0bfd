package supervisor

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// memfdCreate maps architectures to the number of a system call that package
// syscall does not define.
var memfdCreate = map[string]uintptr{"amd64": 319, "arm64": 279}

// makeSealedCopy returns a copy of this program that no process can modify, even
// the owner of the original. It is needed because an agent writes files on
// request, and some kernels do not protect the file of a running program.
func makeSealedCopy() (*os.File, error) {
	const cloexec, allowSealing = 1, 2
	const addSeals, noSeals, noShrink, noGrow, noWrite = 1033, 1, 2, 4, 8
	name := []byte("brig-agent\x00")
	fd, _, errno := syscall.Syscall(memfdCreate[runtime.GOARCH], uintptr(unsafe.Pointer(&name[0])), cloexec|allowSealing, 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a copy of the program: %w", errno)
	}
	f := os.NewFile(fd, "brig-agent")
	self, err := os.Open("/proc/self/exe")
	if err == nil {
		_, err = io.Copy(f, self)
		self.Close()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("copy the program: %w", err)
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, addSeals, noSeals|noShrink|noGrow|noWrite); errno != 0 {
		f.Close()
		return nil, fmt.Errorf("seal the program: %w", errno)
	}
	return f, nil
}
