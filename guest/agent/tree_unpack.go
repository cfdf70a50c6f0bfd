package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// unpacker makes a tree of the nodes that follow a call. The directories on
// the way to the last node stay open: those that come are mostly beside it.
type unpacker struct {
	wire.Tree
	r      *wire.Reader
	making *sync.RWMutex
	open   []*os.Root // open[0] is the tree's directory
	names  []string   // names[i] is that of open[i+1] in open[i]
}

// unpack makes a tree.
func unpack(t wire.Tree, r *wire.Reader, making *sync.RWMutex) error {
	if t.Sealed {
		t.UID, t.GID = 0, 0
	}
	making.Lock()
	err := makeDir(t.Dir, int(t.UID), int(t.GID))
	making.Unlock()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return pathError(t.Dir, err)
	}
	u := &unpacker{Tree: t, r: r, making: making, open: []*os.Root{root}}
	defer u.leave(-1)
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
				return invalid("decode node: %v", err)
			}
			if err := u.node(n); err != nil {
				return treeError(string(n.Path), err)
			}
		default:
			return invalid("a frame of type %d in a tree", f.Type)
		}
	}
}

// treeError says with which node something went wrong.
func treeError(name string, err error) error {
	if _, told := errors.AsType[*callError](err); told {
		return err
	}
	return fileError(name, err)
}

// leave closes the directories that are deeper than so many steps.
func (u *unpacker) leave(depth int) {
	for len(u.open) > depth+1 {
		u.open[len(u.open)-1].Close()
		u.open = u.open[:len(u.open)-1]
	}
	if depth >= 0 {
		u.names = u.names[:depth]
	}
}

// enter opens the directory of a path, which must be there.
func (u *unpacker) enter(dir string) (*os.Root, error) {
	var steps []string
	if dir != "." {
		steps = strings.Split(dir, "/")
	}
	same := 0
	for same < len(steps) && same < len(u.names) && steps[same] == u.names[same] {
		same++
	}
	u.leave(same)
	for _, name := range steps[same:] {
		next, err := step(u.open[len(u.open)-1], name)
		if err != nil {
			return nil, err
		}
		u.open, u.names = append(u.open, next), append(u.names, name)
	}
	return u.open[len(u.open)-1], nil
}

// node makes one node.
func (u *unpacker) node(n wire.Node) error {
	at := string(n.Path)
	if !filepath.IsLocal(at) || path.Clean(at) != at || at == "." || strings.ContainsRune(at, 0) {
		return errors.New("the path is not below the directory")
	}
	if u.Sealed { // what its owner might read or run, everybody may now
		n.Mode = n.Mode >> 6 & 5 * 0o111
	}
	dir, err := u.enter(path.Dir(at))
	if err != nil {
		return err
	}
	name := path.Base(at)
	switch n.Type {
	case "directory":
		return u.directory(dir, name, fs.FileMode(n.Mode&0o777))
	case "symlink":
		return u.make(dir, name, func() error {
			if err := dir.Symlink(string(n.Target), name); err != nil {
				return err
			}
			return dir.Lchown(name, int(u.UID), int(u.GID))
		})
	case "file":
		return u.file(dir, name, n)
	}
	return invalid("a node of type %q", n.Type)
}

// make does f, again when what stood in its way is gone.
func (u *unpacker) make(dir *os.Root, name string, f func() error) error {
	u.making.Lock()
	defer u.making.Unlock()
	err := f()
	if errors.Is(err, fs.ErrExist) {
		if err = dir.RemoveAll(name); err == nil {
			err = f()
		}
	}
	return err
}

func (u *unpacker) directory(dir *os.Root, name string, mode fs.FileMode) error {
	return u.make(dir, name, func() error {
		err := dir.Mkdir(name, 0o700)
		if st, there := dir.Lstat(name); errors.Is(err, fs.ErrExist) && there == nil && st.IsDir() {
			err = nil
		}
		if err != nil {
			return err
		}
		own, err := step(dir, name)
		if err != nil {
			return err
		}
		defer own.Close()
		return errors.Join(own.Chmod(".", mode), own.Chown(".", int(u.UID), int(u.GID)))
	})
}

func (u *unpacker) file(dir *os.Root, name string, n wire.Node) error {
	var f *os.File
	err := u.make(dir, name, func() (err error) {
		f, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
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
	for {
		d, err := u.r.Read()
		if err != nil {
			return err
		}
		if d.Type == wire.TypeNodeEnd {
			break
		}
		if d.Type != wire.TypeFileData {
			return invalid("a frame of type %d in a file", d.Type)
		}
		if _, err := f.Write(d.Payload); err != nil {
			return err
		}
	}
	when := syscall.NsecToTimespec(n.ModifiedNS)
	return errors.Join(f.Chmod(fs.FileMode(n.Mode&0o777)),
		syscall.UtimesNano("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), []syscall.Timespec{when, when}))
}

// seal takes the directory itself away from the user, last.
func (u *unpacker) seal() error {
	if !u.Sealed {
		return nil
	}
	root := u.open[0]
	if err := errors.Join(root.Chmod(".", 0o555), root.Chown(".", 0, 0)); err != nil {
		return fileError(u.Dir, err)
	}
	return nil
}
