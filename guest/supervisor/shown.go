package supervisor

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// bindRoot creates a root that contains the existing files, for machines
// without privileges. An unprivileged overlay is not allowed above a tree with
// other mounts. Read-only paths remain read-only, except in the copy of /etc.
func (o initConfig) bindRoot(root string) error {
	if err := syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a root: %w", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("list the root: %w", err)
	}
	for _, e := range entries {
		name := "/" + e.Name()
		switch {
		case name == "/workspace":
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err == nil {
				err = os.Symlink(to, root+name)
			}
			if err != nil {
				return fmt.Errorf("show %s: %w", name, err)
			}
		case !e.IsDir():
		case slices.Contains(hiddenDirs, name):
			err = os.Mkdir(root+name, 0o755)
		case name == "/etc":
			// Copy into the root, which is in memory. On ext4, creating a thousand files right
			// after another machine has ended takes half a second, because freed inodes are not
			// reused for a while.
			err = copyEtc(root)
		case name == "/home":
			err = bindEach(root, name)
		default:
			err = bindTree(root, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bindTree binds a directory including all mounts below it, because an unprivileged process may not
// bind the directory without them.
func bindTree(root, name string) error {
	if err := os.MkdirAll(root+name, 0o755); err != nil {
		return fmt.Errorf("show %s: %w", name, err)
	}
	_ = syscall.Mount(name, root+name, "", syscall.MS_BIND|syscall.MS_REC, "") // on failure the directory is empty
	return nil
}

// bindEach binds the entries of a directory, so that the machine can add its
// own entries.
func bindEach(root, dir string) error {
	if err := os.MkdirAll(root+dir, 0o755); err != nil {
		return fmt.Errorf("show %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the directory is not readable, and remains empty
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "user" {
			if err := bindTree(root, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// bindEtc mounts a copy of /etc, which is in the machine's directory, at /etc.
func (o initConfig) bindEtc() error {
	upper := filepath.Join(o.Dir, "upper")
	if err := copyEtc(upper); err != nil {
		return err
	}
	if err := bind(upper+"/etc", "/etc", 0); err != nil {
		return fmt.Errorf("mount /etc: %w", err)
	}
	return nil
}

// copyEtc copies the readable files of /etc to a root, so that the machine's programs
// have their own settings.
func copyEtc(root string) error {
	err := filepath.WalkDir("/etc", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // not readable
		}
		to := root + name
		switch {
		case e.IsDir():
			return os.MkdirAll(to, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			if target, err := os.Readlink(name); err == nil {
				return os.Symlink(target, to)
			}
		case e.Type().IsRegular():
			return copyFile(name, to)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy /etc: %w", err)
	}
	return nil
}

func copyFile(name, to string) error {
	from, err := os.Open(name)
	if err != nil {
		return nil // not readable
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, from)
	return err
}
