package agent

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// put writes the files that follow the call, below its directory and owned by
// its user. Paths are confined to the directory, so that a symbolic link that
// a program left there leads nowhere else.
func put(call wire.Put, r *wire.Reader, making *sync.RWMutex) error {
	making.Lock()
	err := makeDir(call.Dir, int(call.UID), int(call.GID))
	making.Unlock()
	if err != nil {
		return err
	}
	for {
		f, err := r.Read()
		if err != nil {
			return err
		}
		switch f.Type {
		case wire.TypeFilesEnd:
			return nil
		case wire.TypeFile:
			var file wire.File
			if err := json.Unmarshal(f.Payload, &file); err != nil {
				return invalid("decode file: %v", err)
			}
			if err := putFile(call, file, r, making); err != nil {
				return err
			}
		default:
			return invalid("a frame of type %d among files", f.Type)
		}
	}
}

func putFile(call wire.Put, file wire.File, r *wire.Reader, making *sync.RWMutex) error {
	mode := fs.FileMode(file.Mode & 0o777)
	making.Lock()
	f, err := createBelow(call, file.Path, mode)
	making.Unlock()
	if err != nil {
		return fileError(file.Path, err)
	}
	defer f.Close()
	for left := file.Size; left > 0; {
		d, err := r.Read()
		if err != nil {
			return err
		}
		if d.Type != wire.TypeFileData || int64(len(d.Payload)) > left {
			return invalid("file %q: a frame of type %d with %d bytes, %d are left", file.Path, d.Type, len(d.Payload), left)
		}
		if _, err := f.Write(d.Payload); err != nil {
			return fileError(file.Path, err)
		}
		left -= int64(len(d.Payload))
	}
	f.Chmod(mode)
	return nil
}

// createBelow creates a file below the call's directory, with the directories
// on the way, and follows no link. It goes step by step by itself: os.Root
// opens a step with O_DIRECTORY and O_NOFOLLOW, and gVisor follows a link then.
func createBelow(call wire.Put, name string, mode fs.FileMode) (*os.File, error) {
	const flags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	steps := strings.Split(path.Clean(name), "/")
	last := len(steps) - 1
	if !filepath.IsLocal(name) || steps[last] == "." {
		return nil, errors.New("the path is not below the directory")
	}
	dir, err := syscall.Open(call.Dir, syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	for _, step := range steps[:last] {
		if err != nil {
			return nil, err
		}
		made := syscall.Mkdirat(dir, step, 0o755) == nil
		next, openErr := syscall.Openat(dir, step, flags, 0)
		if made && openErr == nil {
			syscall.Fchown(next, int(call.UID), int(call.GID))
		}
		syscall.Close(dir)
		dir, err = next, openErr
	}
	if err != nil {
		return nil, err
	}
	defer syscall.Close(dir)
	fd, err := syscall.Openat(dir, steps[last], flags|syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, uint32(mode))
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if onKernel(f) {
		f.Close()
		return nil, errors.New("the directory is the kernel's")
	}
	syscall.Fchown(fd, int(call.UID), int(call.GID))
	return f, nil
}

func fileError(name string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return failure("exhausted", "files", "write %q: the disk is full", name)
	default:
		return failure("invalid", "files", "write %q: %v", name, err)
	}
}

// makeDir makes dir and what is missing above it, owned by the user.
func makeDir(dir string, uid, gid int) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := path.Dir(dir); parent != dir {
		if err := makeDir(parent, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fileError(dir, err)
	}
	os.Lchown(dir, uid, gid)
	return nil
}

// collect sends the artifacts of a directory: regular files directly in it,
// not hidden, not empty, with a known extension. It sends no symbolic link
// and what one points to neither.
func collect(call wire.Collect, w *writer) error {
	root, err := os.OpenRoot(call.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return invalid("open %q: %v", call.Dir, err)
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return invalid("open %q: %v", call.Dir, err)
	}
	defer d.Close()
	names, _ := d.Readdirnames(100_000)
	slices.Sort(names)
	sent := 0
	for _, name := range names {
		st, err := root.Lstat(name)
		if err != nil || !st.Mode().IsRegular() || st.Size() == 0 || strings.HasPrefix(name, ".") ||
			!slices.Contains(call.Extensions, strings.ToLower(path.Ext(name))) {
			continue
		}
		if sent == call.Count || st.Size() > call.Size {
			// Told, not sent: a size of -1 says so.
			w.json(wire.TypeFile, wire.File{Path: name, Size: -1})
			continue
		}
		if err := sendFile(root, name, st, w); err != nil {
			return err
		}
		sent++
	}
	return nil
}

func sendFile(root *os.Root, name string, st fs.FileInfo, w *writer) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil // it went away, or turned into a link: then it is none
	}
	defer f.Close()
	// What is promised is sent, even if the file shrinks meanwhile.
	w.json(wire.TypeFile, wire.File{Path: name, Mode: uint32(st.Mode().Perm()), Size: st.Size()})
	buf := make([]byte, wire.HeaderSize+256<<10)
	for left := st.Size(); left > 0; {
		n := int(min(left, int64(len(buf)-wire.HeaderSize)))
		got, err := io.ReadFull(f, buf[wire.HeaderSize:wire.HeaderSize+n])
		if err != nil {
			clear(buf[wire.HeaderSize+got : wire.HeaderSize+n])
		}
		wire.PutHeader(buf, wire.TypeFileData, n)
		w.raw(buf[:wire.HeaderSize+n])
		left -= int64(n)
	}
	return nil
}
