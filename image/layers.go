package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// layeredImage is an image as stored in a registry or an archive of images.
type layeredImage struct {
	name, source string
	manifest     string   // the digest of its manifest, if known
	also         []string // digests of the lists that contained the manifest
	raw          []byte   // its configuration
	file         *v1.ConfigFile
	config       brig.ImageConfig
	notes        []string
	layers       []layer // lowest first
}

// layer is one archive of changes to the layers below it.
type layer struct {
	digest string // of the stored form; empty if unknown
	// open returns the layer in its stored form, usually compressed. Its digest
	// was verified before, or the caller verifies the digest of its content.
	open func(context.Context) (io.ReadCloser, error)
}

// digest returns the digest of the configuration, which docker calls the image
// ID. The configuration lists the content of every layer, so the digest does
// not depend on the image's source.
func (l *layeredImage) digest() string { return digestOf(l.raw) }

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// setConfig parses the configuration and checks it against the layers.
func (l *layeredImage) setConfig(raw []byte) (err error) {
	l.raw = raw
	if l.file, l.config, l.notes, err = readConfig(raw); err != nil {
		return err
	}
	if want, have := len(l.file.RootFS.DiffIDs), len(l.layers); want != have {
		return archiveError("its manifest has %d layers and its configuration %d", have, want)
	}
	return nil
}

// reuseStored returns the stored image for l, if it exists, under its new name.
func (s *Store) reuseStored(ctx context.Context, l *layeredImage, digest string) (*brig.Image, error) {
	if _, err := s.readMeta(digest); err != nil {
		return nil, err
	}
	var img *brig.Image
	err := s.updateIndex(ctx, func(x *index) error {
		m, err := s.readMeta(digest)
		if err != nil {
			return err
		}
		l.addTo(x, digest)
		img = m.toImage(x)
		return nil
	})
	return img, err
}

// addTo adds the names and manifests of the image to the index.
func (l *layeredImage) addTo(x *index, digest string) {
	if l.name != "" {
		x.Names[l.name] = digest
	}
	for _, m := range append([]string{l.manifest}, l.also...) {
		if m != "" {
			x.Manifests[m] = digest
		}
	}
}

// assemble applies the layers in order and creates an image from them. If assemble fails, it leaves
// no files.
func (s *Store) assemble(ctx context.Context, w *scratch, l *layeredImage, report func(brig.Progress)) (*brig.Image, error) {
	root, err := w.makeRoot()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	u := &unpacker{root: root, chown: s.privileged, maxSize: s.maxImageSize(), maxFiles: s.opts.MaxFiles}
	defer u.close()
	for i, part := range l.layers {
		step := fmt.Sprintf("unpack layer %d of %d", i+1, len(l.layers))
		err := s.apply(ctx, u, part, l.file.RootFS.DiffIDs[i].String(), func() {
			report(brig.Progress{Step: step, Done: u.size})
		})
		if err != nil {
			return nil, wrapLayerError(i, len(l.layers), part.digest, err)
		}
	}
	if u.skipped > 0 {
		l.notes = append(l.notes, fmt.Sprintf("%d devices and fifos of the image were left out", u.skipped))
	}
	report(brig.Progress{Step: "finish", Done: u.size})
	f := &finisher{root: root, chown: s.privileged}
	if err := f.finish(); err != nil {
		return nil, err
	}
	notes, err := f.resolveConfig(&l.config, l.file.Config.User)
	if err != nil {
		return nil, err
	}
	l.notes = append(l.notes, notes...)
	digest := l.digest()
	img, err := s.publish(ctx, w, &meta{
		Version: metaVersion, Digest: digest, Size: u.size, Files: u.files, Skipped: u.skipped,
		Created: s.opts.Now().UTC(), Source: l.source, Manifest: l.manifest, Config: l.config, Notes: l.notes,
	}, func(x *index) { l.addTo(x, digest) })
	if err != nil {
		return nil, err
	}
	s.opts.Log.Info("image is ready", "name", l.name, "digest", digest, "source", l.source,
		"manifest", l.manifest, "layers", len(l.layers), "bytes", u.size, "files", u.files, "left_out", u.skipped)
	return img, nil
}

// apply applies one layer, whose content must have the digest diffID.
func (s *Store) apply(ctx context.Context, u *unpacker, l layer, diffID string, report func()) error {
	in, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	a, err := openArchive(ctx, in, &s.opts)
	if err != nil {
		return err
	}
	defer a.closeOut()
	if u.a != nil { // limits apply to the whole image
		a.taken, a.given = a.taken+u.a.taken, u.a.given
	}
	u.close()
	u.a, u.layer = a, newLayerState()
	if err := u.unpackLayer(report); err != nil {
		return err
	}
	if got := a.digest(); got != diffID {
		return archiveError("its content has the digest %s, and the configuration says %s", got, quote(diffID))
	}
	return nil
}

// unpackLayer unpacks every entry of a layer. It reads and discards the bytes after
// the end mark, because the layer's digest covers them.
func (u *unpacker) unpackLayer(report func()) error {
	if err := u.unpackEntries(report); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, u.a); err != nil {
		return u.a.explain(err)
	}
	report()
	return nil
}

// wrapLayerError adds the number and the digest of the rejected layer to an error.
func wrapLayerError(i, of int, digest string, err error) error {
	if brig.KindOf(err) != brig.InvalidArgument {
		return err
	}
	e := *brig.AsError(err)
	if len(digest) > 19 {
		digest = digest[:19]
	}
	e.Message = fmt.Sprintf("layer %d of %d (%s): %s", i+1, of, digest, e.Message)
	return &e
}
