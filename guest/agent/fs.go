package agent

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// fsCall is one call about files.
type fsCall struct {
	wire.FS
	conn net.Conn
	r    *wire.Reader
	w    *writer
	// making is the agent's.
	making *sync.RWMutex
}

// fsCalls does the calls about files. The agent has more rights than the
// user, who owns all that is in the sandbox; what it makes it gives to the
// user. Links are followed as any program would: they lead nowhere else than
// into the sandbox.
var fsCalls = map[wire.Op]func(fsCall) error{
	wire.OpStat: stat, wire.OpList: list, wire.OpMakeDir: makeDirectory, wire.OpMove: move, wire.OpRemove: remove,
	wire.OpRead: read, wire.OpWrite: write, wire.OpCompose: compose, wire.OpWatch: watch,
}

// place is an absolute path, and who gets what is made there.
type place struct {
	name     string
	uid, gid int
	making   *sync.RWMutex // the agent's
}

// target is a place at which something is made.
func (c fsCall) target(p wire.Path) (place, error) {
	at, err := locate(p)
	at.making = c.making
	return at, err
}

// locate makes a path absolute.
func locate(p wire.Path) (place, error) {
	at := place{name: p.Name, uid: int(p.UID), gid: int(p.GID)}
	switch {
	case p.Name == "~", strings.HasPrefix(p.Name, "~/"):
		at.name = p.Home + p.Name[1:]
	case strings.HasPrefix(p.Name, "~"):
		return at, badPath("path '%s' is in somebody else's home: only '~' and '~/' are known", p.Name)
	case !path.IsAbs(p.Name):
		at.name = path.Join(p.Home, p.Name)
	}
	if strings.ContainsRune(at.name, 0) {
		return at, badPath("path %q has a NUL in it", p.Name)
	}
	at.name = path.Clean(at.name)
	return at, nil
}

func badPath(format string, args ...any) error { return failure("invalid", "path", format, args...) }

// pathError tells what is wrong with a path.
func pathError(name string, err error) error {
	if _, told := errors.AsType[*callError](err); told || err == nil {
		return err
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR: // of a lookup: something above it is a file
		return failure("not_found", "path", "path '%s' does not exist", name)
	case syscall.ENOSPC, syscall.EDQUOT:
		return failure("exhausted", "path", "path '%s': the disk is full", name)
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return failure("exhausted", "path", "path '%s': %v", name, errno)
	case syscall.ELOOP:
		return failure("loop", "path", "path '%s' leads through links that lead to themselves", name)
	case syscall.EISDIR:
		return badPath("path '%s' is a directory", name)
	case syscall.ENXIO:
		return badPath("path '%s' is not a regular file", name)
	case syscall.EROFS:
		return badPath("path '%s' is on a file system that is read-only", name)
	case syscall.ENOTEMPTY:
		return badPath("path '%s' is a directory that is not empty", name)
	case syscall.EBUSY:
		return badPath("path '%s' is where a file system is mounted", name)
	case 0:
		return badPath("path '%s': %v", name, err)
	default:
		return badPath("path '%s': %v", name, errno)
	}
}

// stat sends what is at the path.
func stat(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	return c.sendEntry(p.name)
}

// sendEntry sends what is at a path itself.
func (c fsCall) sendEntry(name string) error {
	e, err := (&accounts{}).entry(name)
	if err != nil {
		return pathError(name, err)
	}
	c.w.json(wire.TypeEntry, e)
	return nil
}

// accounts knows the names of users and groups, once it has looked.
type accounts struct {
	read          bool
	users, groups map[uint32]string
}

// entry describes what is at a path itself.
func (a *accounts) entry(name string) (wire.Entry, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return wire.Entry{}, err
	}
	return a.describe(name, st), nil
}

// describe puts what is known of a file into the host's words.
func (a *accounts) describe(name string, st fs.FileInfo) wire.Entry {
	e := wire.Entry{Path: name, Type: "other", Size: st.Size(), Mode: uint32(st.Mode().Perm()), ModifiedNS: st.ModTime().UnixNano()}
	switch {
	case st.Mode().IsRegular():
		e.Type, e.Metadata = "file", metadata(name)
	case st.IsDir():
		e.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		e.Type, e.Target = "symlink", target(name)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		if !a.read {
			a.read, a.users, a.groups = true, numbered("/etc/passwd"), numbered("/etc/group")
		}
		e.Owner, e.Group = nameOf(a.users, sys.Uid), nameOf(a.groups, sys.Gid)
	}
	// A frame has a bound. The path always fits, the rest nearly always: JSON
	// needs up to six bytes for one.
	size := len(e.Target)
	for k, v := range e.Metadata {
		size += len(k) + len(v)
	}
	if 6*(len(name)+size) > wire.MaxEntry-2000 {
		e.Metadata, e.Target = nil, ""
	}
	return e
}

// target is where a link leads in the end, or where it points if there is
// nothing.
func target(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	to, err := os.Readlink(name)
	if err == nil && !path.IsAbs(to) {
		to = path.Join(path.Dir(name), to)
	}
	return to
}

func nameOf(names map[uint32]string, id uint32) string {
	if n := names[id]; n != "" {
		return n
	}
	return strconv.FormatUint(uint64(id), 10)
}

// numbered reads the names of a file like /etc/passwd by their numbers. The
// first name of a number counts.
func numbered(file string) map[uint32]string {
	st, err := os.Stat(file)
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	names := map[uint32]string{}
	for lines := bufio.NewScanner(io.LimitReader(f, 1<<20)); lines.Scan(); {
		part := strings.SplitN(lines.Text(), ":", 4)
		if len(part) < 4 || part[0] == "" || len(part[0]) > 64 {
			continue
		}
		if id, err := strconv.ParseUint(part[2], 10, 32); err == nil && names[uint32(id)] == "" {
			names[uint32(id)] = part[0]
		}
	}
	return names
}
