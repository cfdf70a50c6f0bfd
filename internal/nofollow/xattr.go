package nofollow

import (
	"os"
	"syscall"
	"unsafe"
)

// Listxattr lists the extended attributes of the file at a path. It does not
// follow a final link.
func Listxattr(name string, b []byte) (int, error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	return syscallResult(syscall.Syscall(syscall.SYS_LLISTXATTR, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))))
}

// Getxattr reads an extended attribute of the file at a path. It does not
// follow a final link.
func Getxattr(name, attribute string, b []byte) (int, error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	a, err := syscall.BytePtrFromString(attribute)
	if err != nil {
		return -1, err
	}
	return syscallResult(syscall.Syscall6(syscall.SYS_LGETXATTR, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(a)),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0))
}

// Flistxattr lists the extended attributes of an open file.
func Flistxattr(f *os.File, b []byte) (n int, err error) {
	return control(f, func(fd uintptr) (int, error) {
		return syscallResult(syscall.Syscall(syscall.SYS_FLISTXATTR, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))))
	})
}

// Fgetxattr reads an extended attribute of an open file.
func Fgetxattr(f *os.File, attribute string, b []byte) (int, error) {
	a, err := syscall.BytePtrFromString(attribute)
	if err != nil {
		return -1, err
	}
	return control(f, func(fd uintptr) (int, error) {
		return syscallResult(syscall.Syscall6(syscall.SYS_FGETXATTR, fd, uintptr(unsafe.Pointer(a)),
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0))
	})
}

// Fsetxattr sets an extended attribute of an open file.
func Fsetxattr(f *os.File, attribute string, value []byte) error {
	a, err := syscall.BytePtrFromString(attribute)
	if err != nil {
		return err
	}
	_, err = control(f, func(fd uintptr) (int, error) {
		return syscallResult(syscall.Syscall6(syscall.SYS_FSETXATTR, fd, uintptr(unsafe.Pointer(a)),
			uintptr(unsafe.Pointer(unsafe.SliceData(value))), uintptr(len(value)), 0, 0))
	})
	return err
}

// Fremovexattr removes an extended attribute of an open file.
func Fremovexattr(f *os.File, attribute string) error {
	a, err := syscall.BytePtrFromString(attribute)
	if err != nil {
		return err
	}
	_, err = control(f, func(fd uintptr) (int, error) {
		return syscallResult(syscall.Syscall(syscall.SYS_FREMOVEXATTR, fd, uintptr(unsafe.Pointer(a)), 0))
	})
	return err
}

func control(f *os.File, call func(fd uintptr) (int, error)) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if closed := conn.Control(func(fd uintptr) { n, err = call(fd) }); closed != nil {
		return -1, closed
	}
	return n, err
}

func syscallResult(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
