package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/brig-run/brig/guest/wire"
)

// makeDirectory makes a directory that is not there.
func makeDirectory(c fsCall) error {
	p, err := c.target(c.Path)
	if err != nil {
		return err
	}
	if err := p.makeDirs(path.Dir(p.name)); err != nil {
		return err
	}
	if err := p.mkdir(p.name); errors.Is(err, fs.ErrExist) {
		if err := needDirThere(p.name); err != nil {
			return err
		}
		return failure("exists", "path", "path '%s' already exists", p.name)
	} else if err != nil {
		return pathError(p.name, err)
	}
	return c.sendEntry(p.name)
}

// makeDirs makes dir and what is missing above it.
func (p place) makeDirs(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if parent := path.Dir(dir); parent != dir {
		if err := p.makeDirs(parent); err != nil {
			return err
		}
	}
	if err := p.mkdir(dir); errors.Is(err, fs.ErrExist) {
		return needDirThere(dir)
	} else if err != nil {
		return pathError(dir, err)
	}
	return nil
}

// needDirThere is needDir of what is there, if only as a link to nothing.
func needDirThere(name string) error {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return badPath("path '%s' is not a directory", name)
	}
	return pathError(name, err)
}

func (p place) mkdir(dir string) error {
	p.making.Lock()
	defer p.making.Unlock()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Lchown(dir, p.uid, p.gid)
}

// write makes a file of the frames that follow. When they end too soon, the
// file stays as far as it came.
func write(c fsCall) error {
	p, err := c.target(c.Path)
	if err != nil {
		return err
	}
	if err := p.makeDirs(path.Dir(p.name)); err != nil {
		return err
	}
	f, err := p.open(fs.FileMode(c.Mode & 0o777))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := setMetadata(f, c.Metadata); err != nil {
		return pathError(p.name, err)
	}
	if err := empty(f); err != nil {
		return pathError(p.name, err)
	}
	for {
		d, err := c.r.Read()
		if err != nil {
			return err
		}
		if d.Type == wire.TypeFilesEnd {
			break
		}
		if d.Type != wire.TypeFileData {
			return invalid("a frame of type %d in a file", d.Type)
		}
		if _, err := f.Write(d.Payload); err != nil {
			return pathError(p.name, err)
		}
	}
	return c.sendOpen(p.name, f)
}

// empty takes what a file has. One that has nothing is left alone: who watches it
// would be told of a change.
func empty(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		err = f.Truncate(0)
	}
	return err
}

// sendOpen sends the entry of a file that was opened by this name: of the
// file itself, where the name is a link.
func (c fsCall) sendOpen(name string, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return pathError(name, err)
	}
	c.w.json(wire.TypeEntry, (&accounts{}).describe(name, st))
	return nil
}

// open opens a file to write it, and makes it if there is none. Mode 0 keeps
// what a file has.
func (p place) open(mode fs.FileMode) (*os.File, error) {
	_, err := os.Stat(p.name)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew && mode == 0 {
		mode = 0o644
	}
	if isNew {
		p.making.Lock()
		defer p.making.Unlock()
	}
	f, st, err := openRegular(p.name, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	if onKernel(f) {
		// The agent's own may be among them, and its kernel may be the host's.
		f.Close()
		return nil, badPath("path '%s' is the kernel's and not to be written", p.name)
	}
	if isNew {
		err = f.Chown(p.uid, p.gid)
	}
	if err == nil && mode != 0 && st.Mode() != mode {
		err = f.Chmod(mode)
	}
	if err != nil {
		f.Close()
		return nil, pathError(p.name, err)
	}
	return f, nil
}

// compose makes one file of several. Nobody sees half of it: it is made beside
// its place.
func compose(c fsCall) error {
	p, err := c.target(c.Path)
	if err != nil {
		return err
	}
	if st, err := os.Stat(p.name); err == nil {
		if err := needRegular(p.name, st); err != nil {
			return err
		}
	}
	if err := p.makeDirs(path.Dir(p.name)); err != nil {
		return err
	}
	f, err := p.beside()
	if err != nil {
		return err
	}
	defer f.Close()
	sources, err := p.gather(f, c.From)
	if err == nil {
		err = pathError(p.name, os.Rename(f.Name(), p.name))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	for _, s := range sources {
		if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pathError(s, err)
		}
	}
	return c.sendOpen(p.name, f)
}

// beside makes a new file in the place's directory.
func (p place) beside() (*os.File, error) {
	p.making.Lock()
	defer p.making.Unlock()
	f, err := os.CreateTemp(path.Dir(p.name), ".brig-*")
	if err != nil {
		return nil, pathError(p.name, err)
	}
	if err := errors.Join(f.Chown(p.uid, p.gid), f.Chmod(0o644)); err != nil {
		os.Remove(f.Name())
		f.Close()
		return nil, pathError(p.name, err)
	}
	return f, nil
}

// gather writes the sources into f and returns where they are.
func (p place) gather(f *os.File, from []wire.Path) (sources []string, err error) {
	there, _ := os.Stat(p.name)
	for _, each := range from {
		at, err := locate(each)
		if err != nil {
			return nil, err
		}
		s, st, err := openRegular(at.name, os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		if at.name == p.name || there != nil && os.SameFile(st, there) {
			s.Close()
			return nil, badPath("path '%s' cannot be composed of itself", p.name)
		}
		_, err = io.Copy(f, s)
		s.Close()
		if err != nil {
			return nil, pathError(p.name, err)
		}
		if !slices.Contains(sources, at.name) {
			sources = append(sources, at.name)
		}
	}
	return sources, nil
}
