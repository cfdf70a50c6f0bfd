package diskimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	fsType      = "ext4"
	loopControl = "/dev/loop-control"
	// attachTries bounds the attempts to get a free loop device, which other processes can take first.
	attachTries = 100
)

// Mount mounts an image and returns its root directory. The mount is in no namespace. It ends when
// the last descriptor of it is closed and the last process with a copy of it has ended. All mounts of
// one image, even those of different processes, are the same file system. Programs and device files
// in it have no special rights. Files of a read-only mount cannot be changed through it.
func Mount(path string, readOnly bool) (root *os.File, err error) {
	// Two file systems over one image would destroy it. The lock ensures that only one process at a
	// time looks for the image's loop device and attaches one.
	lock, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer lock.Close()
	if err := flock(lock); err != nil {
		return nil, fmt.Errorf("lock image: %w", err)
	}
	device, err := findDevice(lock)
	if err == nil && device == nil {
		device, err = attach(path)
	}
	if err != nil {
		return nil, err
	}
	defer device.Close() // the mount keeps the device
	fd, err := mountDevice(device.Name(), readOnly)
	if err != nil {
		return nil, fmt.Errorf("mount image: %w", err)
	}
	defer unix.Close(fd)
	in, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root of image: %w", err)
	}
	return os.NewFile(uintptr(in), path), nil
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// findDevice returns the loop device of an image, or nil if it has none. As long as the result is
// open, the device cannot be detached.
func findDevice(image *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &st); err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	// A search that misses the device would be followed by a second file system over the image.
	if _, err := os.Stat(sysBlock); err != nil {
		return nil, fmt.Errorf("find loop devices: %w", err)
	}
	attached, err := filepath.Glob(sysBlock + "/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, dir := range attached {
		f, err := openDevice(filepath.Base(filepath.Dir(dir)), os.O_RDONLY)
		if isForeign(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("examine a loop device: %w", err)
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino {
			return f, nil
		}
		f.Close()
		if err != nil && !isForeign(err) {
			return nil, fmt.Errorf("examine a loop device: %w", err)
		}
	}
	return nil, nil
}

// sysBlock is the directory that lists the block devices.
const sysBlock = "/sys/block"

// isForeign reports whether an error means that a device was removed, or belongs to another container.
func isForeign(err error) bool {
	for _, one := range []error{unix.ENOENT, unix.ENXIO, unix.ENODEV, unix.EACCES, unix.EPERM} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func openDevice(name string, flags int) (*os.File, error) {
	return os.OpenFile("/dev/"+name, flags, 0)
}

// attach attaches an image to a free loop device. The kernel detaches it after its last use.
func attach(path string) (*os.File, error) {
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer image.Close()
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("find a loop device: %w", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	// With direct I/O the page cache does not hold all data twice.
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	for n := 1; ; n++ {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		f, err := openDevice("loop"+strconv.Itoa(number), os.O_RDWR)
		if err == nil {
			if err = unix.IoctlLoopConfigure(int(f.Fd()), &config); err == nil {
				return f, nil
			}
			f.Close()
		}
		switch {
		case errors.Is(err, unix.EINVAL) && config.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0:
			config.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO // the disk of the image does not support it
		case errors.Is(err, unix.EBUSY) && n < attachTries: // another process was faster
			time.Sleep(time.Millisecond)
		default:
			return nil, fmt.Errorf("attach image: %w", err)
		}
	}
}

// mountDevice mounts a device and returns the mount's descriptor.
func mountDevice(device string, readOnly bool) (int, error) {
	fd, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	err = errors.Join(
		unix.FsconfigSetString(fd, "source", device),
		unix.FsconfigSetString(fd, "errors", "remount-ro"),
		// gVisor hides errors of fsync. If data is lost because the disk of the image is full, the
		// next writes must fail, so that programs notice the loss.
		unix.FsconfigSetString(fd, "data_err", "abort"),
		unix.FsconfigSetFlag(fd, "discard"),       // removed files free the space of the image
		unix.FsconfigSetFlag(fd, "noinit_itable"), // the image's unwritten parts are zero
	)
	if err == nil {
		err = unix.FsconfigCreate(fd)
	}
	if err != nil {
		return -1, fmt.Errorf("%w %s", err, messages(fd))
	}
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	return unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attributes)
}

// messages returns the kernel's messages about a failed configuration.
func messages(fd int) string {
	var out []string
	b := make([]byte, 4096)
	for range 8 {
		n, err := unix.Read(fd, b)
		if err != nil {
			break
		}
		out = append(out, strings.TrimSpace(string(b[:n])))
	}
	return strings.Join(out, "; ")
}
