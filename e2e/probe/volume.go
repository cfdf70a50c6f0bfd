package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors with which volume runs: the roots of a volume that can be written, and of one that cannot.
const (
	volumeRoot     = 3
	readOnlyVolume = 4
)

// Requests to ext4 and to file systems that package unix does not have.
const (
	ioctlSetFlags     = 0x40086602
	ioctlFreeze       = 0xc0045877
	ioctlTrim         = 0xc0185879
	ioctlSetXAttr     = 0x401c5820
	ioctlResize       = 0x40086610
	ioctlSwapBoot     = 0x6611
	ioctlSetLabel     = 0x41009432
	flagAppend        = 0x20
	flagImmutable     = 0x10
	flagProjectHerits = 0x200
)

// volume tries what a sentry that a guest has taken over could try with the root of a volume, without a
// system call filter. It reports the attempts that succeed as "done".
func volume() facts {
	f := facts{}
	attempt := func(name string, err error) {
		f[name] = "done"
		if err != nil {
			f[name] = errnoOf(err)
		}
	}
	fd, err := unix.Openat(volumeRoot, "victim", unix.O_RDWR|unix.O_CREAT, 0o666)
	attempt("create", err)
	ioctl := func(name string, request uintptr, argument unsafe.Pointer) {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		if e == 0 {
			attempt(name, nil)
			return
		}
		attempt(name, e)
	}
	flags := [2]uint32{flagImmutable}
	ioctl("immutable", ioctlSetFlags, unsafe.Pointer(&flags))
	flags[0] = 0
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlSetFlags, uintptr(unsafe.Pointer(&flags)))
	flags[0] = flagAppend
	ioctl("append-only", ioctlSetFlags, unsafe.Pointer(&flags))
	flags[0] = 0
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlSetFlags, uintptr(unsafe.Pointer(&flags)))
	attributes := [7]uint32{3: 4711}
	ioctl("project", ioctlSetXAttr, unsafe.Pointer(&attributes))
	attributes = [7]uint32{0: flagProjectHerits}
	ioctl("project-inherited", ioctlSetXAttr, unsafe.Pointer(&attributes))
	blocks := uint64(1 << 20)
	ioctl("resize", ioctlResize, unsafe.Pointer(&blocks))
	ioctl("swap-boot", ioctlSwapBoot, nil)
	trim := [3]uint64{1: 1 << 40}
	ioctl("trim", ioctlTrim, unsafe.Pointer(&trim))
	label := [256]byte{'x'}
	ioctl("label", ioctlSetLabel, unsafe.Pointer(&label))
	attempt("device", unix.Mknodat(volumeRoot, "disk", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
	attempt("trusted-attribute", unix.Fsetxattr(fd, "trusted.x", []byte("y"), 0))
	attempt("quota", unix.Fallocate(fd, 0, 0, 1<<40))
	up, err := unix.Openat(volumeRoot, "../../../../etc/hostname", unix.O_RDONLY, 0)
	attempt("parent", err)
	if err == nil {
		unix.Close(up)
	}
	// The handles 2 and 11 are the root and the first file of the volume; a handle that the kernel made is
	// used too.
	h, _, err := unix.NameToHandleAt(volumeRoot, "victim", 0)
	attempt("name-to-handle", err)
	if err == nil {
		_, err = unix.OpenByHandleAt(volumeRoot, h, unix.O_RDWR)
		attempt("open-by-handle", err)
	}
	attempt("remount", unix.MountSetattr(readOnlyVolume, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	clone, err := unix.OpenTree(readOnlyVolume, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE)
	if err == nil {
		err = unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}
	attempt("clone", err)
	_, err = unix.Openat(readOnlyVolume, "victim", unix.O_RDWR, 0)
	attempt("write-read-only", err)
	_, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d/victim", readOnlyVolume), unix.O_RDWR, 0)
	attempt("write-read-only-by-proc", err)
	// A freeze is last, because nothing can write any more after it.
	ioctl("freeze", ioctlFreeze, nil)
	return f
}
