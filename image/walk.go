package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxSteps limits how many directories one walk opens, including those of
// links: links that alternate between parents and children could make it very
// long.
const maxSteps = 2048

// enter makes dir the current parent and creates it if it is missing.
func (u *unpacker) enter(dir string) error {
	if u.parent != nil && u.parentName == dir {
		return nil
	}
	u.close()
	current, real, err := u.walk(dir, u.layer != nil)
	if err != nil {
		return err
	}
	u.parent, u.parentName, u.parentReal = current, dir, real
	return nil
}

// walk opens dir and creates it if it is missing. Each component must be a real directory. walk
// follows a link only if follow is set, because upper layers write "lib/x" where a lower layer has
// the link "lib -> usr/lib". It interprets the target below the root and walks to it in the same
// way. It also returns the name of dir without links.
func (u *unpacker) walk(dir string, follow bool) (*os.Root, string, error) {
	current, err := u.openTop()
	if err != nil {
		return nil, "", err
	}
	todo, done, links := strings.Split(dir, "/"), []string(nil), 0
	for steps := 0; len(todo) > 0; steps++ {
		part := todo[0]
		todo = todo[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." { // from a link target: entry names contain no ".."
			todo = append(done[:max(len(done)-1, 0):max(len(done)-1, 0)], todo...)
			part = ""
		}
		var next *os.Root
		target := ""
		if part != "" {
			next, target, err = u.openStep(current, part, dir, follow)
		}
		if target != "" {
			if links++; links > 40 {
				err = archiveError("entry below %s: there are too many symbolic links on the way", quote(dir))
			}
			if path.IsAbs(target) {
				done = nil
			}
			todo = append(append(done[:len(done):len(done)], strings.Split(target, "/")...), todo...)
		}
		if err == nil && next == nil { // start from the top again
			done = nil
			next, err = u.openTop()
		} else {
			done = append(done, part)
		}
		_ = current.Close()
		if err == nil && (len(done) > maxDepth || steps > maxSteps) {
			_ = next.Close()
			err = archiveError("entry below %s: it is more than %d directories deep", quote(dir), maxDepth)
		}
		if err != nil {
			return nil, "", err
		}
		current = next
	}
	return current, path.Join(append([]string{"."}, done...)...), nil
}

func (u *unpacker) openTop() (*os.Root, error) {
	current, err := u.root.OpenRoot(".")
	if err != nil {
		return nil, fmt.Errorf("open image folder: %w", err)
	}
	return current, nil
}

// openStep opens one directory of a walk or returns the target of a link.
func (u *unpacker) openStep(current *os.Root, part, dir string, follow bool) (next *os.Root, target string, err error) {
	fi, err := current.Lstat(part)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// An archive may leave out directories. Implicit directories count toward the limit.
		if u.files++; u.files > u.maxFiles {
			return nil, "", archiveError("entry %s: the archive has more than %d entries, the limit", quote(dir), u.maxFiles)
		}
		if err := current.Mkdir(part, 0o755); err != nil {
			return nil, "", fmt.Errorf("unpack %s: %w", quote(dir), err)
		}
		if err := current.Chmod(part, 0o755); err != nil {
			return nil, "", fmt.Errorf("unpack %s: %w", quote(dir), err)
		}
	case err != nil:
		return nil, "", fmt.Errorf("unpack %s: %w", quote(dir), err)
	case fi.Mode().Type() == fs.ModeSymlink && follow:
		if target, err = current.Readlink(part); err != nil {
			return nil, "", fmt.Errorf("unpack %s: %w", quote(dir), err)
		}
		return nil, target, nil
	case fi.Mode().Type() == fs.ModeSymlink:
		return nil, "", archiveError("entry below %s: %s in it is a symbolic link, and links are not followed", quote(dir), quote(part))
	case !fi.IsDir():
		return nil, "", archiveError("entry below %s: %s in it is not a directory", quote(dir), quote(part))
	}
	if next, err = current.OpenRoot(part); err != nil {
		return nil, "", fmt.Errorf("unpack %s: %w", quote(dir), err)
	}
	return next, "", nil
}
