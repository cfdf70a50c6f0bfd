package dockerfile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/brig-run/brig"
)

// Folder is the folder from which COPY takes its files. Links that lead out of it are not followed.
type Folder struct {
	root   *os.Root
	ignore []string // the patterns of .dockerignore
}

// OpenFolder opens a folder. dockerfile is the name of the Dockerfile, whose own list of ignored files has
// precedence over .dockerignore. The caller closes the Folder.
func OpenFolder(dir, dockerfile string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{root: root}
	if f.ignore, err = readIgnored(dockerfile+".dockerignore", os.Open); errors.Is(err, fs.ErrNotExist) {
		f.ignore, err = readIgnored(".dockerignore", root.Open)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		root.Close()
		return nil, fmt.Errorf("read the list of ignored files: %w", err)
	}
	return f, nil
}

// Close closes the folder.
func (f *Folder) Close() { _ = f.root.Close() } // nothing was written

func readIgnored(name string, open func(string) (*os.File, error)) ([]string, error) {
	r, err := open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ignorefile.ReadAll(r)
}

// Archive has the files of one copy step.
type Archive struct {
	folder  *Folder
	entries []entry
	single  bool // the only source is a file, which may get another name
}

// entry is a file, a directory or a link of an archive.
type entry struct {
	name     string // in the archive
	path     string // in the folder; empty for a file with content
	mode     fs.FileMode
	size     int64
	modified time.Time
	link     string
	content  []byte
}

// archive returns the files that the sources of a COPY select.
func (f *Folder) archive(verb string, sources, exclude []string) (*Archive, error) {
	matcher, err := patternmatcher.New(append(slices.Clone(f.ignore), exclude...))
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the list of ignored files: %s", err)
	}
	a := &Archive{folder: f, single: len(sources) == 1}
	for _, source := range sources {
		// Like Docker, paths begin at the folder, and .. does not leave it.
		pattern := strings.TrimPrefix(path.Clean("/"+source), "/")
		if pattern == "" {
			pattern = "."
		}
		found, err := fs.Glob(f.root.FS(), pattern)
		if err != nil {
			return nil, brig.Errorf(brig.InvalidArgument, "%s: %q is not a pattern", verb, brig.Clip(source, 200))
		}
		selected := false
		for _, name := range found {
			before := len(a.entries)
			isDir, err := a.add(name, matcher)
			if err != nil {
				return nil, err
			}
			selected = selected || isDir || len(a.entries) > before
			a.single = a.single && !isDir && len(found) == 1
		}
		if !selected {
			return nil, brig.Errorf(brig.InvalidArgument, "%s: no file matches %q", verb, brig.Clip(source, 200)).
				WithHint("paths begin at the folder of the build; .dockerignore may exclude the file")
		}
	}
	return a, nil
}

// add adds a file, or the content of a directory, and reports which.
func (a *Archive) add(name string, matcher *patternmatcher.PatternMatcher) (isDir bool, err error) {
	err = fs.WalkDir(a.folder.root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == name {
			isDir = d.IsDir()
		}
		ignored := false
		if p != "." {
			if ignored, err = matcher.MatchesOrParentMatches(p); err != nil {
				return err
			}
		}
		if ignored {
			if d.IsDir() && !matcher.Exclusions() {
				return fs.SkipDir
			}
			return nil // a file below may be excepted
		}
		in := strings.TrimPrefix(p, name+"/")
		if name == "." {
			in = p
		}
		if p == name {
			if isDir {
				return nil // only its content is copied
			}
			in = path.Base(p)
		}
		return a.addEntry(in, p, d)
	})
	if err != nil {
		err = readError(err)
	}
	return isDir, err
}

// readError returns the error for a file that cannot be read.
func readError(err error) error {
	if e, ok := errors.AsType[*brig.Error](err); ok {
		return e
	}
	return brig.Errorf(brig.InvalidArgument, "a file cannot be read: %s", err)
}

func (a *Archive) addEntry(in, p string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	e := entry{name: in, path: p, mode: info.Mode(), modified: info.ModTime()}
	switch info.Mode().Type() {
	case 0:
		e.size = info.Size()
	case fs.ModeDir:
	case fs.ModeSymlink:
		if e.link, err = a.folder.root.Readlink(p); err != nil {
			return err
		}
	default:
		return brig.Errorf(brig.InvalidArgument, "%q is neither a file, nor a directory or a link", brig.Clip(p, 200)).WithHint("exclude it in .dockerignore")
	}
	a.entries = append(a.entries, e)
	return nil
}

// digest returns the digest of the names, modes, links and contents of the files. Owners and times do
// not change it.
func (a *Archive) digest() (string, error) {
	slices.SortStableFunc(a.entries, func(x, y entry) int { return strings.Compare(x.name, y.name) })
	sum := sha256.New()
	for _, e := range a.entries {
		fmt.Fprintf(sum, "%q %o %q %d\n", e.name, e.mode, e.link, e.size)
		if err := a.writeContent(sum, e); err != nil {
			return "", readError(err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeContent writes the content of a file. It writes nothing for others.
func (a *Archive) writeContent(w io.Writer, e entry) error {
	if !e.mode.IsRegular() {
		return nil
	}
	var r io.Reader = bytes.NewReader(e.content)
	if e.path != "" {
		f, err := a.folder.root.Open(e.path)
		if err != nil {
			return err
		}
		defer f.Close()
		r = f
	}
	n, err := io.Copy(w, io.LimitReader(r, e.size))
	if err == nil && n < e.size {
		err = brig.Errorf(brig.InvalidArgument, "%q became shorter while it was read", brig.Clip(e.path, 200))
	}
	return err
}

// Write writes the files as a tar archive that is compressed with gzip.
func (a *Archive) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, e := range a.entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: e.size, ModTime: e.modified, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch e.mode.Type() {
		case fs.ModeDir:
			h.Name, h.Typeflag = e.name+"/", tar.TypeDir
		case fs.ModeSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := t.WriteHeader(h); err != nil {
			return readError(err)
		}
		if err := a.writeContent(t, e); err != nil {
			return readError(err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}
