package image

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
)

// userID is the user ID and group ID of programs in a sandbox.
const userID = 1000

// hostTree builds the synthetic part of the host image in out.
type hostTree struct {
	out   *os.Root
	m     *hostFS
	chown bool
	log   *slog.Logger
	binds []Bind

	copied, size int64               // data copied from the host so far
	dirs         map[string]*os.Root // the directories that parent has opened
}

// place is a directory of the tree.
type place struct {
	name string
	mode fs.FileMode
	user bool // belongs to the sandbox's user
}

// hostPlaces returns the directories of every host image.
func hostPlaces() []place {
	const sticky = fs.ModeSticky | 0o777
	return []place{
		{"usr", 0o755, false},
		{"proc", 0o555, false}, {"dev", 0o755, false}, {"sys", 0o555, false},
		{"tmp", sticky, false}, {"run", 0o755, false},
		{"var", 0o755, false}, {"var/tmp", sticky, false}, {"var/lib", 0o755, false},
		{"var/cache", 0o755, false}, {"var/log", 0o755, false}, {"var/spool", 0o755, false},
		{"home", 0o755, false}, {"home/user", 0o755, true},
		{"root", 0o700, false}, {"workspace", 0o755, true},
		{"opt", 0o755, false}, {"srv", 0o755, false}, {"mnt", 0o755, false}, {"media", 0o755, false},
		{"etc", 0o755, false},
	}
}

// hostLinks returns the top-level names that are links into /usr on a merged-/usr
// system.
func hostLinks() []string { return []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} }

func (t *hostTree) build() error {
	for _, p := range hostPlaces() {
		if err := t.mkdir(p); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := t.out.Symlink(target, name); err != nil {
			return err
		}
	}
	if err := t.createUserland(); err != nil {
		return err
	}
	return t.writeEtc()
}

// createUserland lays out /usr, /bin, /lib and related directories as on the host.
func (t *hostTree) createUserland() error {
	usr, err := t.m.resolve("usr")
	if err != nil {
		return brig.Errorf(brig.Unavailable, "this machine has no /usr that everybody may read").
			WithHint("use another image: brig image build debian NAME PACKAGE...").Because(err)
	}
	t.binds = append(t.binds, Bind{Source: filepath.Join(t.m.dir, usr), Target: "/usr"})
	for _, name := range hostLinks() {
		fi, err := t.m.lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch fi.Mode().Type() {
		case fs.ModeSymlink:
			target, err := t.m.readlink(name)
			if err != nil {
				return err
			}
			if p, err := t.m.resolve(name); err != nil || !strings.HasPrefix(p, usr+"/") {
				t.log.Warn("not in the host image: a link that does not lead into /usr", "link", name)
				continue
			}
			if err := t.out.Symlink(target, name); err != nil {
				return err
			}
		case fs.ModeDir:
			if err := t.mkdir(place{name, 0o755, false}); err != nil {
				return err
			}
			t.binds = append(t.binds, Bind{Source: filepath.Join(t.m.dir, name), Target: "/" + name})
		}
	}
	return nil
}

func (t *hostTree) mkdir(p place) error {
	if err := t.out.Mkdir(p.name, 0o700); err != nil {
		return err
	}
	if p.user && t.chown {
		if err := t.out.Lchown(p.name, userID, userID); err != nil {
			return err
		}
	}
	return t.out.Chmod(p.name, p.mode) // not by Mkdir, which applies the umask
}

// write creates a file of the tree and its parent directories.
func (t *hostTree) write(name string, content []byte) error {
	dir, err := t.openParent(name)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(path.Base(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// createLink creates a symbolic link of the tree and its parent directories.
func (t *hostTree) createLink(target, name string) error {
	dir, err := t.openParent(name)
	if err != nil {
		return err
	}
	return dir.Symlink(target, path.Base(name))
}

// openParent returns the directory of name and creates it if it is missing. It
// keeps the directory open, because hundreds of links are created in a few
// directories.
func (t *hostTree) openParent(name string) (*os.Root, error) {
	dir := path.Dir(name)
	if dir == "." {
		return t.out, nil
	}
	if r := t.dirs[dir]; r != nil {
		return r, nil
	}
	if _, err := t.out.Lstat(dir); err != nil {
		if _, err := t.openParent(dir); err != nil {
			return nil, err
		}
		if err := t.mkdir(place{dir, 0o755, false}); err != nil {
			return nil, err
		}
	}
	r, err := t.out.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	t.dirs[dir] = r
	return r, nil
}

// close closes the directories that parent has opened.
func (t *hostTree) close() {
	for _, r := range t.dirs {
		_ = r.Close()
	}
}
