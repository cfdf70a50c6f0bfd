// Package diskimage stores a file system of a fixed size in one file, and mounts it without
// making it visible in any mount namespace.
//
// The file system is ext4. The command mke2fs creates it, and the kernel mounts it through a loop
// device. The size is therefore an exact bound: whoever writes more gets ENOSPC. Files that are
// removed free the space of the file.
package diskimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MinSize is the minimum size of an image, in bytes. A smaller file system has no room for a journal.
const MinSize = 16 << 20

// sizeStep is the granularity of sizes. ext4 ignores the part of a file after the last whole block.
const sizeStep = 4096

// features are the features of a file system that mke2fs does not use by default without its
// configuration file, which is ignored because it differs between machines. Without a journal, the file
// system would be damaged after a crash of the machine.
const features = "has_journal,ext_attr,extent,64bit,flex_bg,huge_file,dir_nlink,extra_isize,metadata_csum"

// makeTimeout bounds mke2fs, which writes only few blocks.
const makeTimeout = time.Minute

// makers are the paths of mke2fs. A service often has no sbin in its PATH.
var makers = []string{"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"}

// Check returns nil if this process can create and mount images, and otherwise the reason why not.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting a file system needs root")
	}
	if _, err := maker(); err != nil {
		return err
	}
	f, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return errors.New("the machine has no loop devices")
	}
	f.Close()
	fd, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("the kernel cannot mount %s: %w", fsType, err)
	}
	return unix.Close(fd)
}

func maker() (string, error) {
	for _, name := range makers {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the command mke2fs is missing; install the package e2fsprogs")
}

// Create creates an image of a size in bytes, with an empty file system whose root has the given
// owner and mode. The file must not exist. It uses disk space only for what is written.
func Create(ctx context.Context, path string, size int64, owner int, mode fs.FileMode) (err error) {
	if size < MinSize {
		return fmt.Errorf("an image of %d bytes is too small", size)
	}
	command, err := maker()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := errors.Join(f.Truncate(size-size%sizeStep), f.Close()); err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	// No blocks are reserved for root, and the kernel does not write empty inode tables later.
	cmd := exec.CommandContext(ctx, command, "-q", "-F", "-t", fsType, "-O", features, "-b", "4096", "-I", "256", "-m", "0", "-i", "16384",
		"-E", fmt.Sprintf("nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=%d:%d", owner, owner), path)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "MKE2FS_CONFIG=/dev/null", "MKE2FS_SYNC=0"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make a file system: %w: %s", err, strings.TrimSpace(out.String()))
	}
	m, err := Mount(path, false)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Chmod(mode); err != nil {
		return fmt.Errorf("set the mode of the root: %w", err)
	}
	// The directory is for e2fsck, and users would ask what it is.
	if err := unix.Unlinkat(int(m.Fd()), "lost+found", unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove lost+found: %w", err)
	}
	return nil
}

// Used returns the disk space that an image uses, in bytes.
func Used(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("read size of image: %w", err)
	}
	return st.Blocks * 512, nil
}
