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
	"github.com/brig-run/brig/internal/nofollow"
)

// putFiles writes the files that follow the call below its directory, owned by
// its user. Paths are confined to the directory, so that a symbolic link left
// by a program cannot lead outside it.
func putFiles(call wire.Put, r *wire.Reader, createMu *sync.RWMutex) error {
	createMu.Lock()
	err := makeDir(call.Dir, int(call.UID), int(call.GID))
	createMu.Unlock()
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
				return newInvalidError("decode file: %v", err)
			}
			if err := putFile(call, file, r, createMu); err != nil {
				return err
			}
		default:
			return newInvalidError("a frame of type %d among files", f.Type)
		}
	}
}

// putFile writes a file under a temporary name and then renames it, so that a program always reads
// either the complete previous file or the complete new file. For example, an interpreter may load
// a driver's files while another interpreter is started.
func putFile(call wire.Put, file wire.File, r *wire.Reader, createMu *sync.RWMutex) error {
	mode := fs.FileMode(file.Mode & 0o777)
	createMu.Lock()
	n, err := createBelow(call, file.Path, mode)
	createMu.Unlock()
	if err != nil {
		return fileError(file.Path, err)
	}
	defer n.close()
	for remaining := file.Size; remaining > 0; {
		d, err := r.Read()
		if err != nil {
			return err
		}
		if d.Type != wire.TypeFileData || int64(len(d.Payload)) > remaining {
			return newInvalidError("file %q: a frame of type %d with %d bytes, %d are left", file.Path, d.Type, len(d.Payload), remaining)
		}
		if _, err := n.Write(d.Payload); err != nil {
			return fileError(file.Path, err)
		}
		remaining -= int64(len(d.Payload))
	}
	if err := n.commit(); err != nil {
		return fileError(file.Path, err)
	}
	return nil
}

// createBelow creates a file and its missing parents below the call's
// directory, without following links.
func createBelow(call wire.Put, name string, mode fs.FileMode) (*newFile, error) {
	steps := strings.Split(path.Clean(name), "/")
	last := len(steps) - 1
	if !filepath.IsLocal(name) || steps[last] == "." {
		return nil, errors.New("the path is not below the directory")
	}
	dir, err := nofollow.Open(call.Dir)
	for _, step := range steps[:last] {
		if err != nil {
			return nil, err
		}
		isNew := dir.Mkdir(step, 0o755) == nil
		next, openErr := dir.Dir(step)
		if isNew && openErr == nil {
			_ = next.Chown(int(call.UID), int(call.GID))
		}
		dir.Close()
		dir, err = next, openErr
	}
	if err != nil {
		return nil, err
	}
	st, err := dir.Stat(steps[last])
	if err == nil && !st.IsRegular() {
		err = errors.New("the path is not a regular file")
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	n, err := createTemp(dir, steps[last], uint32(mode))
	if err != nil {
		return nil, err
	}
	if isOnKernelFS(n.File) {
		n.close()
		return nil, errors.New("the directory is the kernel's")
	}
	_ = n.Chown(int(call.UID), int(call.GID))
	return n, nil
}

func fileError(name string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return newFailure("exhausted", "files", "write %q: the disk is full", name)
	default:
		return newFailure("invalid", "files", "write %q: %v", name, err)
	}
}

// makeDir creates dir and its missing parents, owned by the given user.
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

// collect sends the artifacts of a directory: the regular files in it that are
// not hidden, not empty, and have a known extension. It does not follow links,
// not even for the directory itself, so that a program cannot use the agent to
// read files for which it has no permission.
func collect(call wire.Collect, w *writer) error {
	above, err := nofollow.Open(path.Dir(call.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return newInvalidError("open %q: %v", call.Dir, err)
	}
	defer above.Close()
	dir, err := above.Dir(path.Base(call.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return newInvalidError("open %q: %v", call.Dir, err)
	}
	defer dir.Close()
	names, _ := dir.Names(100_000)
	slices.Sort(names)
	sent := 0
	for _, name := range names {
		st, err := dir.Stat(name)
		if err != nil || !st.IsRegular() || st.Size == 0 || strings.HasPrefix(name, ".") ||
			!slices.Contains(call.Extensions, strings.ToLower(path.Ext(name))) {
			continue
		}
		if sent == call.Count || st.Size > call.Size {
			// List the file without its content. A size of -1 indicates this.
			w.writeJSON(wire.TypeFile, wire.File{Path: name, Size: -1})
			continue
		}
		if err := sendFile(dir, name, st, w); err != nil {
			return err
		}
		sent++
	}
	return nil
}

func sendFile(dir *nofollow.Dir, name string, st nofollow.Stat, w *writer) error {
	f, err := dir.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil // the file was removed or replaced by a link, so it is not an artifact
	}
	defer f.Close()
	// Always send the announced size. If the file shrinks during the transfer, pad with zeros.
	w.writeJSON(wire.TypeFile, wire.File{Path: name, Mode: st.Mode & 0o777, Size: st.Size})
	buf := make([]byte, wire.HeaderSize+256<<10)
	for remaining := st.Size; remaining > 0; {
		n := int(min(remaining, int64(len(buf)-wire.HeaderSize)))
		got, err := io.ReadFull(f, buf[wire.HeaderSize:wire.HeaderSize+n])
		if err != nil {
			clear(buf[wire.HeaderSize+got : wire.HeaderSize+n])
		}
		wire.PutHeader(buf, wire.TypeFileData, n)
		w.writeFrame(buf[:wire.HeaderSize+n])
		remaining -= int64(n)
	}
	return nil
}
