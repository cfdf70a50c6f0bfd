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

// Whiteouts are entries of a layer that delete files of the layers below it:
// ".wh.name" hides name, and ".wh..wh..opq" hides the previous contents of its
// directory.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// layerState is the state of the layer being applied. A whiteout hides only
// files of lower layers and none of its own layer.
type layerState struct {
	seed       maphash.Seed // random, so that no archive can construct a collision
	ownEntries map[uint64]struct{}
	hidden     map[uint64]struct{} // names that a whiteout was already applied to
}

func newLayerState() *layerState {
	return &layerState{seed: maphash.MakeSeed(), ownEntries: map[uint64]struct{}{}, hidden: map[uint64]struct{}{}}
}

// add records a name that this layer contains.
func (l *layerState) add(name string) {
	if l != nil {
		l.ownEntries[maphash.String(l.seed, name)] = struct{}{}
	}
}

func (l *layerState) contains(name string) bool {
	_, ok := l.ownEntries[maphash.String(l.seed, name)]
	return ok
}

// markHidden marks name as hidden, and reports whether it was not marked before. A repeated search
// would find no files, and an archive could make the search very slow.
func (l *layerState) markHidden(name string) bool {
	k := maphash.String(l.seed, name)
	_, before := l.hidden[k]
	l.hidden[k] = struct{}{}
	return !before
}

// applyWhiteout applies a whiteout. It does not follow links: no tool writes a
// whiteout whose path contains one.
func (u *unpacker) applyWhiteout(name string) error {
	dir, base := path.Split(name)
	dir = path.Clean("./" + dir)
	if strings.HasPrefix(base, whiteoutMeta) && base != whiteoutOpaque {
		return nil // metadata of aufs
	}
	what := strings.TrimPrefix(base, whiteoutPrefix)
	if what == "" || what == "." || what == ".." {
		return archiveError("entry %s: it is a whiteout of nothing", quote(name))
	}
	u.close()
	current, real, err := u.walk(dir, false)
	if err != nil {
		return err
	}
	defer func() { _ = current.Close() }()
	if base == whiteoutOpaque {
		if u.layer.markHidden(real + "/") {
			err = u.hideAll(current, real)
		}
	} else if real = path.Join(real, what); u.layer.markHidden(real) {
		err = u.hide(current, what, real)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", quote(name), err)
	}
	return nil
}

// hide removes base, whose full name is name, if a lower layer created it.
func (u *unpacker) hide(current *os.Root, base, name string) error {
	fi, err := current.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		dir, err := current.OpenRoot(base)
		if err != nil {
			return err
		}
		err = u.hideAll(dir, name)
		_ = dir.Close()
		if err != nil {
			return err
		}
	}
	if u.layer.contains(name) {
		return nil
	}
	err = current.Remove(base)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil // it contains a file of this layer
	}
	return err
}

// hideAll removes a directory's files that lower layers created.
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
