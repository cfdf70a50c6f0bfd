package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
	"github.com/brig-run/brig/internal/sparse"
)

// unpacker creates a tree from the nodes that follow a call. It keeps the directories in the path
// of the last node open, because the next node is usually in one of them.
type unpacker struct {
	wire.Tree
	r        *wire.Reader
	createMu *sync.RWMutex
	open     []*nofollow.Dir // open[0] is the tree's directory
	names    []string        // names[i] is the name of open[i+1] in open[i]
}

// unpack creates a tree from the frames that follow the call.
func unpack(t wire.Tree, r *wire.Reader, createMu *sync.RWMutex) error {
	if t.Sealed {
		t.UID, t.GID = 0, 0
	}
	createMu.Lock()
	err := makeDir(t.Dir, int(t.UID), int(t.GID))
	createMu.Unlock()
	if err != nil {
		return err
	}
	root, err := nofollow.Open(t.Dir)
	if err != nil {
		return pathError(t.Dir, err)
	}
	u := &unpacker{Tree: t, r: r, createMu: createMu, open: []*nofollow.Dir{root}}
	defer u.closeDirs(-1)
	for {
		f, err := r.Read()
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeFilesEnd:
			return u.seal()
		case wire.TypeNode:
			var n wire.Node
			if err := json.Unmarshal(f.Payload, &n); err != nil {
				return newInvalidError("decode node: %v", err)
			}
			if err := u.createNode(n); err != nil {
				return treeError(string(n.Path), err)
			}
		default:
			return newInvalidError("a frame of type %d in a tree", f.Type)
		}
	}
}

// treeError adds the path of a node to an error.
func treeError(name string, err error) error {
	if _, isCallError := errors.AsType[*callError](err); isCallError {
		return err
	}
	return fileError(name, err)
}

// closeDirs closes the open directories below the given depth.
func (u *unpacker) closeDirs(depth int) {
	for len(u.open) > depth+1 {
		u.open[len(u.open)-1].Close()
		u.open = u.open[:len(u.open)-1]
	}
	if depth >= 0 {
		u.names = u.names[:depth]
	}
}

// openDir opens the directory at a path. The directory must exist.
func (u *unpacker) openDir(dir string) (*nofollow.Dir, error) {
	var steps []string
	if dir != "." {
		steps = strings.Split(dir, "/")
	}
	same := 0
	for same < len(steps) && same < len(u.names) && steps[same] == u.names[same] {
		same++
	}
	u.closeDirs(same)
	for _, name := range steps[same:] {
		next, err := u.open[len(u.open)-1].Dir(name)
		if err != nil {
			return nil, err
		}
		u.open, u.names = append(u.open, next), append(u.names, name)
	}
	return u.open[len(u.open)-1], nil
}

// createNode creates one node.
func (u *unpacker) createNode(n wire.Node) error {
	at := string(n.Path)
	if !filepath.IsLocal(at) || path.Clean(at) != at || at == "." || strings.ContainsRune(at, 0) {
		return errors.New("the path is not below the directory")
	}
	if u.Sealed { // all users get the owner's read and execute permissions
		n.Mode = n.Mode >> 6 & 5 * 0o111
	}
	dir, err := u.openDir(path.Dir(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	switch n.Type {
	case "directory":
		return u.createDirectory(dir, name, n.Mode&0o777)
	case "symlink":
		return u.replaceEntry(dir, name, func() error {
			if err := dir.Symlink(string(n.Target), name); err != nil {
				return err
			}
			return dir.Lchown(name, int(u.UID), int(u.GID))
		})
	case "file":
		return u.createFile(dir, name, n)
	}
	return newInvalidError("a node of type %q", n.Type)
}

// replaceEntry calls f to create a file. If the name already exists, it removes the existing file
// and calls f again.
func (u *unpacker) replaceEntry(dir *nofollow.Dir, name string, f func() error) error {
	u.createMu.Lock()
	defer u.createMu.Unlock()
	err := f()
	if errors.Is(err, fs.ErrExist) {
		if err = dir.RemoveAll(name); err == nil {
			err = f()
		}
	}
	return err
}

func (u *unpacker) createDirectory(dir *nofollow.Dir, name string, mode uint32) error {
	return u.replaceEntry(dir, name, func() error {
		err := dir.Mkdir(name, 0o700)
		if st, statErr := dir.Stat(name); errors.Is(err, fs.ErrExist) && statErr == nil && st.IsDir() {
			err = nil
		}
		if err != nil {
			return err
		}
		sub, err := dir.Dir(name)
		if err != nil {
			return err
		}
		defer sub.Close()
		return errors.Join(sub.Chmod(mode), sub.Chown(int(u.UID), int(u.GID)))
	})
}

func (u *unpacker) createFile(dir *nofollow.Dir, name string, n wire.Node) error {
	var f *os.File
	err := u.replaceEntry(dir, name, func() (err error) {
		f, err = dir.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return f.Chown(int(u.UID), int(u.GID))
	})
	if f != nil {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	w := &sparse.File{File: f}
	for {
		d, err := u.r.Read()
		if err != nil {
			return err
		}
		if d.Type == wire.TypeNodeEnd {
			break
		}
		if d.Type != wire.TypeFileData {
			return newInvalidError("a frame of type %d in a file", d.Type)
		}
		if _, err := w.Write(d.Payload); err != nil {
			return err
		}
	}
	if err := w.Fill(); err != nil {
		return err
	}
	return errors.Join(f.Chmod(fs.FileMode(n.Mode&0o777)), nofollow.SetTime(f, syscall.NsecToTimespec(n.ModifiedNS)))
}

// seal makes the tree's directory read-only and changes its owner to root. It
// is the last step.
func (u *unpacker) seal() error {
	if !u.Sealed {
		return nil
	}
	root := u.open[0]
	if err := errors.Join(root.Chmod(0o555), root.Chown(0, 0)); err != nil {
		return fileError(u.Dir, err)
	}
	return nil
}
