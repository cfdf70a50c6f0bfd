package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/brig-run/brig"
)

// Import implements brig.ImageStore. The contents of the archive determine its kind. Import skips
// devices, FIFOs and sockets; the last reported step includes their number.
func (s *Store) Import(ctx context.Context, name string, r io.Reader, report func(brig.Progress)) (*brig.Image, error) {
	if err := checkNewName(name); err != nil {
		return nil, err
	}
	return s.createFromArchive(ctx, importJob{name: name, source: sourceTarball, tar: r}, report)
}

// importJob is an archive that becomes an image.
type importJob struct {
	name, source string
	tar          io.Reader
	// arrived is called after the archive was read to its end. If it returns an
	// error, the archive is discarded. It may be nil.
	arrived func() error
	// edit changes the unpacked files before they become an image. It may be nil.
	edit func(*finisher) error
}

// createFromArchive unpacks an archive and creates an image from it. If it fails, it leaves no files.
func (s *Store) createFromArchive(ctx context.Context, d importJob, report func(brig.Progress)) (*brig.Image, error) {
	if report == nil {
		report = func(brig.Progress) {}
	}
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	root, err := w.makeRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()

	a, err := openArchive(ctx, d.tar, &s.opts)
	if err != nil {
		return nil, err
	}
	defer a.closeOut()
	u := &unpacker{
		root: root, a: a, chown: s.privileged,
		maxSize: s.maxImageSize(), maxFiles: s.opts.MaxFiles,
	}
	defer u.close()
	if err := u.unpackAll(report); err != nil {
		return nil, err
	}
	if d.arrived != nil {
		if err := d.arrived(); err != nil {
			return nil, err
		}
	}
	if u.skipped > 0 {
		report(brig.Progress{Step: fmt.Sprintf("left out %d devices and fifos", u.skipped), Done: u.size})
	}
	if kind := archiveKind(root); kind != "" && d.source == sourceTarball {
		return s.importImages(ctx, d.name, kind, root, report)
	}
	report(brig.Progress{Step: "finish", Done: u.size})
	f := &finisher{root: root, chown: s.privileged}
	if err := f.finish(); err != nil {
		return nil, err
	}
	if d.edit != nil {
		if err := d.edit(f); err != nil {
			return nil, err
		}
	}
	digest := a.digest()
	img, err := s.publish(ctx, w, &meta{
		Version: metaVersion, Digest: digest, Size: u.size, Files: u.files, Skipped: u.skipped,
		Created: s.opts.Now().UTC(), Source: d.source,
	}, func(x *index) { x.Names[d.name] = digest })
	if err != nil {
		return nil, err
	}
	s.opts.Log.Info("image is ready", "name", d.name, "digest", digest, "source", d.source,
		"bytes", u.size, "files", u.files, "left_out", u.skipped)
	return img, nil
}

// unpackAll unpacks the whole archive and checks that only padding follows it.
func (u *unpacker) unpackAll(report func(brig.Progress)) error {
	err := u.unpackEntries(func() { report(brig.Progress{Step: "unpack", Done: u.size}) })
	if err != nil {
		return err
	}
	if err := u.a.drain(); err != nil {
		return err
	}
	if u.files == 0 {
		return archiveError("there is nothing in it")
	}
	return nil
}

// unpackEntries unpacks every entry up to the end mark and reports progress
// regularly.
func (u *unpacker) unpackEntries(report func()) error {
	const step = 16 << 20
	next := u.a.given
	last := "" // the previous entry, to locate damage in the archive
	t := tar.NewReader(u.a)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if err = u.a.explain(err); last != "" {
				return wrapEntryError(last, err)
			}
			return err
		}
		last = h.Name
		if err := u.unpackEntry(h, t); err != nil {
			return err
		}
		if u.a.given >= next {
			next = u.a.given + step
			report()
		}
	}
}

// exists reports whether name exists in root. It does not follow links.
func exists(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}
