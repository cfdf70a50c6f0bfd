package image

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// Whiteouts are entries of a layer that say what of the layers below it is
// gone: ".wh.name" hides name, and ".wh..wh..opq" all that its directory had.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// layerState is what is known of the layer that is being applied: a whiteout
// hides what layers below brought and nothing of its own layer.
type layerState struct {
	seed   maphash.Seed // random, so that nobody can make two names look alike
	mine   map[uint64]struct{}
	hidden map[uint64]struct{} // what a whiteout was applied to before
}

func newLayerState() *layerState {
	return &layerState{seed: maphash.MakeSeed(), mine: map[uint64]struct{}{}, hidden: map[uint64]struct{}{}}
}

// add takes note of a name that this layer brings.
func (l *layerState) add(name string) {
	if l != nil {
		l.mine[maphash.String(l.seed, name)] = struct{}{}
	}
}

func (l *layerState) has(name string) bool {
	_, ok := l.mine[maphash.String(l.seed, name)]
	return ok
}

// once reports whether it is called for the first time with name: to look for
// the same again finds nothing, and could be made to take for ever.
func (l *layerState) once(name string) bool {
	k := maphash.String(l.seed, name)
	_, before := l.hidden[k]
	l.hidden[k] = struct{}{}
	return !before
}

// whiteout applies a whiteout. It follows no link: no tool writes one that
// would need it.
func (u *unpacker) whiteout(name string) error {
	dir, base := path.Split(name)
	dir = path.Clean("./" + dir)
	if strings.HasPrefix(base, whiteoutMeta) && base != whiteoutOpaque {
		return nil // of aufs
	}
	what := strings.TrimPrefix(base, whiteoutPrefix)
	if what == "" || what == "." || what == ".." {
		return refuse("entry %s: it is a whiteout of nothing", quote(name))
	}
	u.close()
	at, real, err := u.walk(dir, false)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	if base == whiteoutOpaque {
		if u.layer.once(real + "/") {
			err = u.hideAll(at, real)
		}
	} else if real = path.Join(real, what); u.layer.once(real) {
		err = u.hide(at, what, real)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", quote(name), err)
	}
	return nil
}

// hide removes base, which is name, as far as layers below brought it.
func (u *unpacker) hide(at *os.Root, base, name string) error {
	fi, err := at.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		dir, err := at.OpenRoot(base)
		if err != nil {
			return err
		}
		err = u.hideAll(dir, name)
		_ = dir.Close()
		if err != nil {
			return err
		}
	}
	if u.layer.has(name) {
		return nil
	}
	err = at.Remove(base)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil // there is something of this layer in it
	}
	return err
}

// hideAll removes what a directory holds of layers below.
func (u *unpacker) hideAll(dir *os.Root, name string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	all, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return err
	}
	for _, base := range all {
		if err := u.hide(dir, base, path.Join(name, base)); err != nil {
			return err
		}
	}
	return nil
}
