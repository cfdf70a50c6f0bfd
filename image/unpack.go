package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// unpacker writes the entries of an archive below root and nowhere else.
// os.Root prevents escapes. In addition, the unpacker never lets the kernel
// follow a link: it resolves the links of layers itself, from one real
// directory to the next (walk.go).
type unpacker struct {
	root  *os.Root
	a     *archive
	layer *layerState // nil unless this is one layer of several
	chown bool        // keep owners; otherwise the server's user owns all files

	maxSize, maxFiles    int64
	size, files, skipped int64

	// parent is the directory of the previous entry, which is usually also the directory of the
	// current entry. It cannot become stale: to replace a directory, the unpacker must open that
	// directory's parent, which then replaces this field.
	parent     *os.Root
	parentName string
	parentReal string // parentName without links
	buf        []byte
}

func (u *unpacker) close() {
	if u.parent != nil {
		_ = u.parent.Close()
		u.parent = nil
	}
}

// unpackEntry unpacks one entry.
func (u *unpacker) unpackEntry(h *tar.Header, content io.Reader) error {
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if u.files++; u.files > u.maxFiles {
		return archiveError("entry %s: the archive has more than %d entries, the limit", quote(name), u.maxFiles)
	}
	if h.Size < 0 || h.Size > u.maxSize-u.size {
		return archiveError("entry %s: with it the archive unpacks to more than %d bytes, the limit", quote(name), u.maxSize)
	}
	base := path.Base(name)
	switch {
	case strings.HasPrefix(base, whiteoutPrefix) && u.layer != nil:
		return u.applyWhiteout(name)
	case strings.HasPrefix(base, whiteoutPrefix):
		return archiveError("entry %s: it is a whiteout, so this is one layer of an image and not a root file system", quote(name)).
			WithHint("flatten the image first, for example with docker export")
	case h.Typeflag == tar.TypeXGlobalHeader:
		return nil
	case name == "." && h.Typeflag != tar.TypeDir:
		return archiveError("entry %s: the root is not a directory", quote(h.Name))
	case name == ".":
		return nil // the image's root belongs to the server's user and has mode 0755
	}
	if u.chown && (h.Uid < 0 || h.Gid < 0 || h.Uid > 1<<31 || h.Gid > 1<<31) {
		return archiveError("entry %s: its owner %d:%d is out of range", quote(name), h.Uid, h.Gid)
	}
	return u.unpackCheckedEntry(h, name, base, content)
}

// unpackCheckedEntry unpacks an entry that has passed the general checks.
func (u *unpacker) unpackCheckedEntry(h *tar.Header, name, base string, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		u.skipped++
		return nil
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeGNUSparse, tar.TypeCont:
	default:
		return archiveError("entry %s: entries of type %q are not supported", quote(name), h.Typeflag)
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.createDirectory(h, name, base)
	case tar.TypeSymlink:
		err = u.createSymlink(h, name, base)
	case tar.TypeLink:
		err = u.createHardLink(h, name, base)
	default:
		err = u.createFile(h, name, base, content)
	}
	switch {
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EMLINK):
		return archiveError("entry %s: this file system cannot hold it", quote(name)).Because(err)
	case err != nil:
		return fmt.Errorf("unpack %s: %w", quote(name), err)
	}
	u.layer.add(path.Join(u.parentReal, base))
	return nil
}

// clear removes an existing file with the entry's name, as tar does. The
// unpacker never overwrites the content of a file, which may have another hard
// link.
func (u *unpacker) clear(name, base string) error {
	err := u.parent.Remove(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
		if u.layer != nil {
			return u.parent.RemoveAll(base) // a directory of a lower layer
		}
		return archiveError("entry %s: it would replace a directory that is not empty", quote(name))
	}
	return err
}

func (u *unpacker) createDirectory(h *tar.Header, name, base string) error {
	fi, err := u.parent.Lstat(base)
	if err != nil || !fi.IsDir() {
		if err == nil {
			if err := u.clear(name, base); err != nil {
				return err
			}
		}
		if err := u.parent.Mkdir(base, 0o700); err != nil {
			return err
		}
	}
	if u.chown {
		if err := u.parent.Lchown(base, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode & 0o777)
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if !u.chown {
		mode |= 0o700 // the server is not root, and must be able to enter and remove it
	}
	return u.parent.Chmod(base, mode)
}

func (u *unpacker) createSymlink(h *tar.Header, name, base string) error {
	switch {
	case h.Linkname == "" || strings.Contains(h.Linkname, "\x00"):
		return archiveError("entry %s: it is a link to %s", quote(name), quote(h.Linkname))
	case len(h.Linkname) > maxPath:
		return archiveError("entry %s: what it links to is longer than %d bytes", quote(name), maxPath)
	}
	if err := u.clear(name, base); err != nil {
		return err
	}
	if err := u.parent.Symlink(h.Linkname, base); err != nil {
		return err
	}
	if u.chown {
		return u.parent.Lchown(base, h.Uid, h.Gid)
	}
	return nil
}

// createHardLink adds another name to a file that the archive already contains.
func (u *unpacker) createHardLink(h *tar.Header, name, base string) error {
	target, err := cleanName(h.Linkname)
	if err != nil {
		return archiveError("entry %s: it is a hard link to %s, which cannot be a name", quote(name), quote(h.Linkname)).Because(err)
	}
	if target == name {
		return archiveError("entry %s: it is a hard link to itself", quote(name))
	}
	// Walk both paths without following links, so that the link system call
	// resolves none.
	if err := u.enter(path.Dir(target)); err != nil {
		return err
	}
	fi, err := u.parent.Lstat(path.Base(target))
	if errors.Is(err, fs.ErrNotExist) {
		return archiveError("entry %s: it is a hard link to %s, which is not in the archive before it", quote(name), quote(target))
	}
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() && fi.Mode().Type() != fs.ModeSymlink {
		return archiveError("entry %s: it is a hard link to %s, which is not a file", quote(name), quote(target))
	}
	target = path.Join(u.parentReal, path.Base(target))
	if err := u.enter(path.Dir(name)); err != nil {
		return err
	}
	if name = path.Join(u.parentReal, base); target == name {
		return archiveError("entry %s: it is a hard link to itself", quote(name))
	}
	if err := u.clear(name, base); err != nil {
		return err
	}
	return u.root.Link(target, name)
}

func (u *unpacker) createFile(h *tar.Header, name, base string, content io.Reader) error {
	if err := u.a.checkLimits(u.size + h.Size); err != nil {
		return wrapEntryError(name, err)
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := u.parent.OpenFile(base, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := u.clear(name, base); err != nil {
			return err
		}
		f, err = u.parent.OpenFile(base, flags, 0o600)
	}
	if err != nil {
		return err
	}
	err = u.fill(f, h, name, content)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return u.parent.Chtimes(base, time.Time{}, clampTime(h.ModTime))
}

func (u *unpacker) fill(f *os.File, h *tar.Header, name string, content io.Reader) error {
	n, err := u.copy(f, content)
	u.size += n
	if err != nil {
		return wrapEntryError(name, err)
	}
	if u.chown {
		if err := f.Chown(h.Uid, h.Gid); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode & 0o777) // without set-user-ID, set-group-ID and sticky
	if !u.chown {
		mode |= 0o400 // the server is not root, and must be able to read it for the sandbox
	}
	return f.Chmod(mode)
}

// copy separates errors of the archive, from errors of the disk, and explains the former.
func (u *unpacker) copy(f *os.File, content io.Reader) (written int64, err error) {
	if u.buf == nil {
		u.buf = make([]byte, 128<<10)
	}
	for {
		n, rerr := content.Read(u.buf)
		if n > 0 {
			if _, err := f.Write(u.buf[:n]); err != nil {
				return written, err
			}
			written += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			return written, nil
		}
		if rerr != nil {
			return written, u.a.explain(rerr)
		}
	}
}

// clampTime limits a time to the range that every file system can store.
func clampTime(t time.Time) time.Time {
	if s := t.Unix(); s < 0 || s > 1<<33 {
		return time.Unix(0, 0)
	}
	return t
}
