package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// tree implements brig.Files with the files of an instance. An empty directory
// is a name that ends with a slash. The other attributes of a file are stored
// as JSON under the file's name followed by a NUL. Links are not supported.
type tree struct{ in *instance }

// fileAttrs are the attributes of a file other than its content.
type fileAttrs struct {
	Mode     uint32
	Root     bool
	Modified int64 // Unix time in nanoseconds
	Metadata map[string]string
}

// fixedDirs are the directories that always exist.
var fixedDirs = []string{"/", "/root", "/home/user", "/workspace", "/tmp"}

// Files implements brig.Instance.
func (in *instance) Files() brig.Files { return tree{in} }

// locate makes a path absolute.
func locate(p brig.Path) (string, error) {
	home, name := "/home/user", p.Name
	if p.User == "root" {
		home = "/root"
	}
	switch {
	case name == "~", strings.HasPrefix(name, "~/"):
		name = home + name[1:]
	case strings.HasPrefix(name, "~"):
		return "", brig.InvalidField("path", "path '%s' is in somebody else's home", name)
	case !path.IsAbs(name):
		name = path.Join(home, name)
	}
	return path.Clean(name), nil
}

func pathErrorf(k brig.Kind, format string, args ...any) error {
	err := brig.Errorf(k, format, args...)
	err.Field = "path"
	return err
}

// isWithin reports whether a name is below a directory.
func isWithin(dir, name string) bool {
	return strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// entryAt returns the entry at a path, or nil if none exists. The caller holds
// in.mu.
func (t tree) entryAt(name string) *brig.Entry {
	e := &brig.Entry{Name: path.Base(name), Path: name, Type: brig.RegularFile, Mode: 0o644, Owner: "user", Group: "user", Modified: time.Unix(0, 0).UTC()}
	if data, ok := t.in.files[name]; ok && name != "/" {
		e.Size = int64(len(data))
	} else if t.isDir(name) {
		e.Type, e.Mode = brig.Directory, 0o755
	} else {
		return nil
	}
	var k fileAttrs
	if json.Unmarshal(t.in.files[name+"\x00"], &k) == nil {
		e.Mode, e.Modified, e.Metadata = k.Mode, time.Unix(0, k.Modified).UTC(), k.Metadata
		if k.Root {
			e.Owner, e.Group = "root", "root"
		}
	}
	return e
}

func (t tree) isDir(name string) bool {
	for _, d := range fixedDirs {
		if name == d || isWithin(name, d) {
			return true
		}
	}
	for f := range t.in.files {
		if isWithin(name, f) {
			return true
		}
	}
	return false
}

// requireEntry is like entryAt, but returns an error unless the path exists and is
// a directory, or a file if dir is false.
func (t tree) requireEntry(name string, dir bool) (*brig.Entry, error) {
	e := t.entryAt(name)
	switch {
	case e == nil:
		return nil, pathErrorf(brig.NotFound, "path '%s' does not exist", name)
	case dir && e.Type != brig.Directory:
		return nil, pathErrorf(brig.InvalidArgument, "path '%s' is not a directory", name)
	case !dir && e.Type == brig.Directory:
		return nil, pathErrorf(brig.InvalidArgument, "path '%s' is a directory", name)
	}
	return e, nil
}

// checkParents returns an error if a parent of name is a file.
func (t tree) checkParents(name string) error {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, file := t.in.files[dir]; file {
			return pathErrorf(brig.InvalidArgument, "path '%s' is not a directory", dir)
		}
	}
	return nil
}

// withPath locates a path and calls f with the instance locked.
func (t tree) withPath(p brig.Path, f func(name string) error) error {
	name, err := locate(p)
	if err != nil {
		return err
	}
	t.in.mu.Lock()
	defer t.in.mu.Unlock()
	return f(name)
}

// Stat implements brig.Files.
func (t tree) Stat(_ context.Context, p brig.Path) (e *brig.Entry, err error) {
	err = t.withPath(p, func(name string) error {
		if e = t.entryAt(name); e == nil {
			return pathErrorf(brig.NotFound, "path '%s' does not exist", name)
		}
		return nil
	})
	return e, err
}

// List implements brig.Files.
func (t tree) List(_ context.Context, p brig.Path, depth int) (out []*brig.Entry, err error) {
	err = t.withPath(p, func(name string) error {
		if _, err := t.requireEntry(name, true); err != nil {
			return err
		}
		found := map[string]bool{}
		for _, f := range slices.Concat(slices.Collect(maps.Keys(t.in.files)), fixedDirs) {
			for f = path.Clean(strings.TrimSuffix(f, "\x00")); isWithin(name, f) && f != name; f = path.Dir(f) {
				if strings.Count(strings.TrimPrefix(f, strings.TrimSuffix(name, "/")), "/") <= depth {
					found[f] = true
				}
			}
		}
		for _, f := range slices.Sorted(maps.Keys(found)) {
			out = append(out, t.entryAt(f))
		}
		return nil
	})
	return out, err
}

// MakeDir implements brig.Files.
func (t tree) MakeDir(_ context.Context, p brig.Path) (e *brig.Entry, err error) {
	err = t.withPath(p, func(name string) error {
		if err := t.checkParents(name + "/x"); err != nil {
			return err
		}
		if t.entryAt(name) != nil {
			return pathErrorf(brig.AlreadyExists, "path '%s' already exists", name)
		}
		t.in.files[name+"/"] = nil
		t.setKnown(name, fileAttrs{Mode: 0o755, Root: p.User == "root"})
		e = t.entryAt(name)
		return nil
	})
	return e, err
}

func (t tree) setKnown(name string, k fileAttrs) {
	k.Modified = time.Now().UnixNano()
	if b, err := json.Marshal(k); err == nil {
		t.in.files[name+"\x00"] = b
	}
}

// Move implements brig.Files.
func (t tree) Move(_ context.Context, from, to brig.Path) (e *brig.Entry, err error) {
	target, err := locate(to)
	if err != nil {
		return nil, err
	}
	err = t.withPath(from, func(name string) error {
		src, dst := t.entryAt(name), t.entryAt(target)
		if src == nil {
			return pathErrorf(brig.NotFound, "path '%s' does not exist", name)
		}
		if err := t.checkParents(target); err != nil {
			return err
		}
		switch isDir := src.Type == brig.Directory; {
		case name == target:
		case isDir && isWithin(name, target):
			return pathErrorf(brig.InvalidArgument, "path '%s' cannot be moved into itself", name)
		case dst != nil && !isDir && dst.Type == brig.Directory:
			return pathErrorf(brig.InvalidArgument, "path '%s' is a directory", target)
		case dst != nil && isDir && dst.Type != brig.Directory:
			return pathErrorf(brig.InvalidArgument, "path '%s' is not a directory", target)
		default:
			delete(t.in.files, target+"\x00")
			for f, data := range maps.Clone(t.in.files) {
				if f == name || f == name+"\x00" || isWithin(name, f) {
					delete(t.in.files, f)
					t.in.files[target+strings.TrimPrefix(f, name)] = data
				}
			}
		}
		e = t.entryAt(target)
		return nil
	})
	return e, err
}

// Remove implements brig.Files.
func (t tree) Remove(_ context.Context, p brig.Path) error {
	return t.withPath(p, func(name string) error {
		if name == "/" {
			return pathErrorf(brig.InvalidArgument, "path '/' cannot be removed")
		}
		maps.DeleteFunc(t.in.files, func(f string, _ []byte) bool {
			return f == name || f == name+"\x00" || isWithin(name, f)
		})
		return nil
	})
}

// Read implements brig.Files.
func (t tree) Read(_ context.Context, p brig.Path, from, n int64) (e *brig.Entry, r io.ReadCloser, err error) {
	err = t.withPath(p, func(name string) error {
		if e, err = t.requireEntry(name, false); err != nil {
			return err
		}
		data := t.in.files[name]
		data = data[min(from, int64(len(data))):]
		if n >= 0 {
			data = data[:min(n, int64(len(data)))]
		}
		r = io.NopCloser(bytes.NewReader(data))
		return nil
	})
	return e, r, err
}

// Write implements brig.Files.
func (t tree) Write(_ context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (e *brig.Entry, err error) {
	data, broken := io.ReadAll(r)
	err = t.withPath(p, func(name string) error {
		if err := t.checkParents(name); err != nil {
			return err
		}
		k := fileAttrs{Mode: 0o644, Root: p.User == "root", Metadata: w.Metadata}
		if existing := t.entryAt(name); existing != nil {
			if _, err := t.requireEntry(name, false); err != nil {
				return err
			}
			k.Mode, k.Root = existing.Mode, existing.Owner == "root"
		}
		if w.Mode != 0 {
			k.Mode = w.Mode
		}
		t.in.files[name] = data
		t.setKnown(name, k)
		e = t.entryAt(name)
		return broken
	})
	return e, err
}

// Compose implements brig.Files.
func (t tree) Compose(_ context.Context, from []brig.Path, to brig.Path) (e *brig.Entry, err error) {
	var sources []string
	for _, p := range from {
		name, err := locate(p)
		if err != nil {
			return nil, err
		}
		sources = append(sources, name)
	}
	err = t.withPath(to, func(name string) error {
		if err := t.checkParents(name); err != nil {
			return err
		}
		if t.entryAt(name) != nil {
			if _, err := t.requireEntry(name, false); err != nil {
				return err
			}
		}
		var all []byte
		for _, s := range sources {
			if _, err := t.requireEntry(s, false); err != nil {
				return err
			}
			if s == name {
				return pathErrorf(brig.InvalidArgument, "path '%s' cannot be composed of itself", name)
			}
			all = append(all, t.in.files[s]...)
		}
		for _, s := range sources {
			delete(t.in.files, s)
			delete(t.in.files, s+"\x00")
		}
		t.in.files[name] = all
		t.setKnown(name, fileAttrs{Mode: 0o644, Root: to.User == "root"})
		e = t.entryAt(name)
		return nil
	})
	return e, err
}

// Watch implements brig.Files.
func (t tree) Watch(context.Context, brig.Path, bool, func(brig.FileChange) error) error {
	return brig.Errorf(brig.Unimplemented, "the fake provider does not watch files")
}

// Dial implements brig.Instance.
func (in *instance) Dial(_ context.Context, port int) (net.Conn, error) {
	return nil, brig.Errorf(brig.ConnectionFailed, "no program listens on port %d of the sandbox", port)
}

// Usage implements brig.Instance.
func (in *instance) Usage(context.Context) (*brig.Usage, error) {
	return nil, brig.Errorf(brig.Unimplemented, "usage is not measured for fake machines")
}
