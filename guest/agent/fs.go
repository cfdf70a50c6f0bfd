package agent

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// fsCall is one call that concerns files or directories.
type fsCall struct {
	wire.FS
	conn net.Conn
	r    *wire.Reader
	w    *writer
	// createMu and rights are those of the agent.
	createMu *sync.RWMutex
	rights   *accountThreads
}

// fsCalls maps each file operation to its function. Each operation runs with the permissions of the
// account in the call. Links in a path are followed, and thus only lead to files that the account
// may access. Links below a directory that is listed, watched, copied or removed are not followed.
var fsCalls = map[wire.Op]func(fsCall) error{
	wire.OpStat: stat, wire.OpList: listDir, wire.OpMakeDir: makeDirectory, wire.OpMove: move, wire.OpRemove: remove,
	wire.OpRead: read, wire.OpWrite: write, wire.OpCompose: compose, wire.OpWatch: watch,
}

// place is an absolute path.
type place struct{ name string }

// withRights runs f with the permissions of the call's account.
func (c fsCall) withRights(f func() error) error {
	return c.rights.runAs(account{c.Path.UID, c.Path.GID}, f)
}

// locate converts a path to an absolute path.
func locate(p wire.Path) (place, error) {
	located := place{name: p.Name}
	switch {
	case p.Name == "~", strings.HasPrefix(p.Name, "~/"):
		located.name = p.Home + p.Name[1:]
	case strings.HasPrefix(p.Name, "~"):
		return located, newPathError("path '%s' is in somebody else's home: only '~' and '~/' are known", p.Name)
	case !path.IsAbs(p.Name):
		located.name = path.Join(p.Home, p.Name)
	}
	if strings.ContainsRune(located.name, 0) {
		return located, newPathError("path %q has a NUL in it", p.Name)
	}
	located.name = path.Clean(located.name)
	return located, nil
}

func newPathError(format string, args ...any) error {
	return newFailure("invalid", "path", format, args...)
}

// pathError converts an error for a path to a callError.
func pathError(name string, err error) error {
	if _, isCallError := errors.AsType[*callError](err); isCallError || err == nil {
		return err
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR: // a parent does not exist or is not a directory
		return newFailure("not_found", "path", "path '%s' does not exist", name)
	case syscall.EACCES, syscall.EPERM:
		return newFailure("denied", "path", "path '%s': the user has no permission", name)
	case syscall.ENOSPC, syscall.EDQUOT:
		return newFailure("exhausted", "path", "path '%s': the disk is full", name)
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return newFailure("exhausted", "path", "path '%s': %v", name, errno)
	case syscall.ELOOP:
		return newFailure("loop", "path", "path '%s' leads through links that lead to themselves", name)
	case syscall.EISDIR:
		return newPathError("path '%s' is a directory", name)
	case syscall.ENXIO:
		return newPathError("path '%s' is not a regular file", name)
	case syscall.EROFS:
		return newPathError("path '%s' is on a file system that is read-only", name)
	case syscall.ENOTEMPTY:
		return newPathError("path '%s' is a directory that is not empty", name)
	case syscall.EBUSY:
		return newPathError("path '%s' is where a file system is mounted", name)
	case 0:
		return newPathError("path '%s': %v", name, err)
	default:
		return newPathError("path '%s': %v", name, errno)
	}
}

// stat sends the entry of the file at the path.
func stat(c fsCall) error {
	p, err := locate(c.Path)
	if err != nil {
		return err
	}
	var e wire.Entry
	err = c.withRights(func() (err error) {
		e, err = (&accounts{}).statEntry(p.name)
		return err
	})
	return c.sendEntry(p.name, e, err)
}

// sendEntry sends an entry, or returns the error for its path.
func (c fsCall) sendEntry(name string, e wire.Entry, err error) error {
	if err != nil {
		return pathError(name, err)
	}
	c.w.writeJSON(wire.TypeEntry, e)
	return nil
}

// accounts caches the names of users and groups after the first read.
type accounts struct {
	loaded        bool
	users, groups map[uint32]string
}

// statEntry describes the file at a path, without following a link.
func (a *accounts) statEntry(name string) (wire.Entry, error) {
	var st nofollow.Stat
	if err := syscall.Lstat(name, &st.Stat_t); err != nil {
		return wire.Entry{}, err
	}
	return a.describe(name, name, st), nil
}

// statEntryIn describes the file with this name in a directory. full is the path in
// the entry.
func (a *accounts) statEntryIn(dir *nofollow.Dir, name, full string) (wire.Entry, error) {
	st, err := dir.Stat(name)
	if err != nil {
		return wire.Entry{}, err
	}
	return a.describe(full, dir.Proc(name), st), nil
}

// describe returns the entry of a file. name is the path in the entry, and at
// is the path for system calls.
func (a *accounts) describe(name, at string, st nofollow.Stat) wire.Entry {
	e := wire.Entry{Path: name}
	switch {
	case st.IsRegular():
		e.Metadata = readMetadata(at)
	case st.IsLink():
		e.Target = resolveLink(name, at)
		var to nofollow.Stat
		if syscall.Stat(at, &to.Stat_t) == nil {
			e.TargetType, e.TargetMode = typeOf(to), to.Mode&0o777
		}
	}
	return a.complete(e, st)
}

// describeOpen describes an open regular file. name is the path by which it was
// opened.
func (a *accounts) describeOpen(name string, f *os.File, st nofollow.Stat) wire.Entry {
	return a.complete(wire.Entry{Path: name, Metadata: readOpenMetadata(f)}, st)
}

// complete adds the file status to an entry, and limits the entry's size.
func (a *accounts) complete(e wire.Entry, st nofollow.Stat) wire.Entry {
	e.Type, e.Size, e.Mode, e.ModifiedNS = typeOf(st), st.Size, st.Mode&0o777, st.Mtim.Nano()
	if !a.loaded {
		a.loaded, a.users, a.groups = true, readNamesByID("/etc/passwd"), readNamesByID("/etc/group")
	}
	e.Owner, e.Group = nameOf(a.users, st.Uid), nameOf(a.groups, st.Gid)
	// The size of a frame is limited. The path always fits. Metadata and target
	// nearly always do, although JSON needs up to six bytes for one byte.
	size := len(e.Target)
	for k, v := range e.Metadata {
		size += len(k) + len(v)
	}
	if 6*(len(e.Path)+size) > wire.MaxEntry-2000 {
		e.Metadata, e.Target = nil, ""
	}
	return e
}

func typeOf(st nofollow.Stat) string {
	switch {
	case st.IsRegular():
		return "file"
	case st.IsDir():
		return "directory"
	case st.IsLink():
		return "symlink"
	}
	return "other"
}

// resolveLink returns the final target of a link, or the link's content if the final target does
// not exist.
func resolveLink(name, at string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	to, err := os.Readlink(at)
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

// readNamesByID reads names by their numeric ids from a file like /etc/passwd. If an id has several
// names, the first name is used.
func readNamesByID(file string) map[uint32]string {
	f, _, err := openRegular(file, os.O_RDONLY, 0)
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
