package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// finisher prepares a root file system for use as an image: it adds the mount points and the user
// that programs run as. It follows no links. Where an image has a link or a file in such a place, a
// directory replaces it, because a mount would follow the link.
type finisher struct {
	root  *os.Root
	chown bool
}

// maxAccounts is the largest /etc/passwd or /etc/group that is read.
const maxAccounts = 1 << 20

func (f *finisher) finish() error {
	for _, name := range []string{"proc", "dev", "sys"} {
		// A file system is always mounted there, so the contents are unused, and
		// a link there could redirect a mount.
		if err := f.root.RemoveAll(name); err != nil {
			return fmt.Errorf("clear %s: %w", name, err)
		}
	}
	for _, p := range []place{
		{"proc", 0o555, false}, {"dev", 0o755, false}, {"sys", 0o555, false},
		{"tmp", fs.ModeSticky | 0o777, false}, {"run", 0o755, false},
		{"etc", 0o755, false}, {"workspace", 0o755, true},
		{"home", 0o755, false}, {"home/user", 0o755, true},
	} {
		if err := f.placeDir(p); err != nil {
			return fmt.Errorf("make %s: %w", p.name, err)
		}
	}
	if err := f.addAccounts(); err != nil {
		return err
	}
	return f.linkPython()
}

// placeDir makes p a real directory and replaces any other file.
func (f *finisher) placeDir(p place) error {
	fi, err := f.root.Lstat(p.name)
	if err == nil && !fi.IsDir() {
		if err := f.root.Remove(p.name); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.root.Mkdir(p.name, 0o700); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if f.chown {
		owner := 0
		if p.user {
			owner = userID
		}
		if err := f.root.Lchown(p.name, owner, owner); err != nil {
			return err
		}
	}
	return f.root.Chmod(p.name, p.mode)
}

// addAccounts ensures that uid and gid 1000 have a name.
func (f *finisher) addAccounts() error {
	shell := "/bin/sh"
	if exists(f.root, "usr/bin/bash") || exists(f.root, "bin/bash") {
		shell = "/bin/bash"
	}
	err := f.addAccount("etc/passwd", "root:x:0:0:root:/root:"+shell, ":1000:1000::/home/user:"+shell)
	if err != nil {
		return err
	}
	return f.addAccount("etc/group", "root:x:0:", ":1000:")
}

// addAccount appends an entry for ID 1000, the third field, to an account file
// that has none. rest is the part of the line after the name and its "x".
func (f *finisher) addAccount(name, first, rest string) error {
	b, err := f.readAccounts(name)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		b = []byte(first + "\n")
	}
	taken := map[string]bool{}
	for line := range bytes.Lines(b) {
		fields := strings.Split(strings.TrimSpace(string(line)), ":")
		taken[fields[0]] = true
		if len(fields) > 2 && fields[2] == strconv.Itoa(userID) {
			return f.write(name, b)
		}
	}
	user := "user"
	for n := userID; taken[user]; n++ {
		user = "user" + strconv.Itoa(n)
	}
	if b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return f.write(name, append(b, user+":x"+rest+"\n"...))
}

// readAccounts reads an account file. A missing file or a link counts as empty.
func (f *finisher) readAccounts(name string) ([]byte, error) {
	fi, err := f.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	switch {
	case fi.IsDir():
		return nil, archiveError("entry %s: it is a directory", quote(name))
	case !fi.Mode().IsRegular():
		return nil, nil
	case fi.Size() > maxAccounts:
		return nil, archiveError("entry %s: it is larger than %d bytes, the limit", quote(name), maxAccounts)
	}
	in, err := f.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(io.LimitReader(in, maxAccounts))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// write replaces a file. It never writes into the existing file, which may be a
// link or have another hard link.
func (f *finisher) write(name string, content []byte) error {
	err := f.root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = f.create(name, content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path.Clean(name), err)
	}
	return nil
}

func (f *finisher) create(name string, content []byte) error {
	out, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	if err == nil {
		err = out.Chmod(0o644)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// pipConfig allows pip to install beside the packages of the image's
// distribution. A sandbox is temporary, so damage to the distribution's
// packages is temporary, too.
const pipConfig = "[global]\nbreak-system-packages = true\n"

// linkPython links python to python3 in an image without python, and allows its pip
// to install packages. It keeps an existing python and pip configuration.
func (f *finisher) linkPython() error {
	dirWith := func(name string) string {
		for _, dir := range [...]string{"usr/local/bin", "usr/bin", "bin"} {
			if exists(f.root, path.Join(dir, name)) {
				return dir
			}
		}
		return ""
	}
	if dir := dirWith("python3"); dir != "" && dirWith("python") == "" {
		err := f.root.Symlink("python3", path.Join(dir, "python"))
		// Without root privileges, a directory of the image may not be writable.
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("link python: %w", err)
		}
	}
	managed, _ := fs.Glob(f.root.FS(), "usr/lib/python3*/EXTERNALLY-MANAGED") // fails only for a bad pattern
	if len(managed) == 0 || exists(f.root, "etc/pip.conf") {
		return nil
	}
	return f.write("etc/pip.conf", []byte(pipConfig))
}
