package image

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// archiveKind distinguishes an archive of images from a root file system. It
// returns sourceLayout, sourceDocker or "". An archive from docker save matches
// both kinds, and counts as a layout.
func archiveKind(root *os.Root) string {
	switch {
	case exists(root, "usr") || exists(root, "bin") || exists(root, "etc"):
		return ""
	case exists(root, "oci-layout") && exists(root, "index.json"):
		return sourceLayout
	case exists(root, "manifest.json"):
		return sourceDocker
	}
	return ""
}

// importImages imports the only image of an unpacked archive of images. It
// reads all files through root, so that no path can escape.
func (s *Store) importImages(ctx context.Context, name, kind string, root *os.Root, report func(brig.Progress)) (*brig.Image, error) {
	l := &layeredImage{name: name, source: kind}
	box := layoutReader{root}
	read := box.readLayout
	if kind == sourceDocker {
		read = box.readDocker
	}
	if err := read(l); err != nil {
		return nil, err
	}
	if a := l.file.Architecture; a != "" && a != thisPlatform().Architecture {
		return nil, archiveError("its image is for %s, and this machine is %s", l.config.Platform, thisPlatform())
	}
	if img, err := s.reuseStored(ctx, l, l.digest()); brig.KindOf(err) != brig.NotFound {
		return img, err
	}
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	return s.assemble(ctx, w, l, report)
}

// layoutReader is an unpacked archive of images.
type layoutReader struct{ root *os.Root }

// readSmall reads a file of the archive that is not a layer.
func (c layoutReader) readSmall(name string) ([]byte, error) {
	f, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = archiveError("entry %s: it is larger than %d bytes, the limit", quote(name), maxConfig)
	}
	return b, err
}

// open opens a file of the archive. Old versions of docker save wrote links
// between layers.
func (c layoutReader) open(name string) (*os.File, error) {
	clean, err := cleanName(name)
	if err != nil {
		return nil, err
	}
	f, err := c.root.Open(clean)
	if err != nil {
		return nil, archiveError("it is an archive of images, but %s is not in it", quote(name)).Because(err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, archiveError("entry %s: it is not a file", quote(name)).Because(err)
	}
	return f, nil
}

func blobName(d v1.Hash) string { return "blobs/" + d.Algorithm + "/" + d.Hex }

// readBlob reads a small blob of a layout and verifies its digest.
func (c layoutReader) readBlob(d v1.Hash) ([]byte, error) {
	if err := checkDigest(d.String()); err != nil {
		return nil, archiveError("%s is not a sha256 digest", quote(d.String()))
	}
	b, err := c.readSmall(blobName(d))
	if err == nil && digestOf(b) != d.String() {
		err = archiveError("entry %s: its digest is %s", quote(blobName(d)), digestOf(b))
	}
	return b, err
}

// readLayout reads an OCI layout.
func (c layoutReader) readLayout(l *layeredImage) error {
	b, err := c.readSmall("index.json")
	if err != nil {
		return err
	}
	list, err := v1.ParseIndexManifest(bytes.NewReader(b))
	if err != nil {
		return archiveError("its index.json is damaged").Because(err)
	}
	images := map[v1.Hash]bool{}
	var names []string
	var only v1.Descriptor
	for _, d := range list.Manifests {
		if d.Platform == nil || d.Platform.OS != "unknown" {
			names = append(names, nameIn(d))
			images[d.Digest] = true
			only = d
		}
	}
	d := only
	switch {
	case len(images) == 0:
		return archiveError("it is an archive of images, but there is no image in it")
	case len(images) > 1: // one image for several platforms, or several images
		if d, err = choosePlatform(b, thisPlatform()); err != nil || hasSeveralTags(list) {
			return severalImagesError(names)
		}
	}
	kind := d.MediaType
	for depth := 0; ; depth++ {
		if b, err = c.readBlob(d.Digest); err != nil {
			return err
		}
		if !isList(b, kind) {
			break
		}
		if depth > 2 {
			return archiveError("its index is a list of lists of lists")
		}
		l.also = append(l.also, d.Digest.String())
		if d, err = choosePlatform(b, thisPlatform()); err != nil {
			return err
		}
		kind = d.MediaType
	}
	m, err := readManifest(b, kind)
	if err != nil {
		return err
	}
	l.manifest = d.Digest.String()
	for _, part := range m.Layers {
		l.layers = append(l.layers, c.layer(blobName(part.Digest), part.Digest.String()))
	}
	config, err := c.readBlob(m.Config.Digest)
	if err != nil {
		return err
	}
	return l.setConfig(config)
}

// layer returns a layer that is a file of the archive. apply later checks its
// content against the digest in the configuration.
func (c layoutReader) layer(name, digest string) layer {
	return layer{digest: digest, open: func(context.Context) (io.ReadCloser, error) { return c.open(name) }}
}

// hasSeveralTags reports whether a list names several images by tags.
func hasSeveralTags(list *v1.IndexManifest) bool {
	names := map[string]bool{}
	for _, d := range list.Manifests {
		if n := d.Annotations[imageName]; n != "" {
			names[n] = true
		} else if n := d.Annotations[refName]; n != "" {
			names[n] = true
		}
	}
	return len(names) > 1
}

// These annotations contain the name of an image in a layout.
const (
	imageName = "io.containerd.image.name"
	refName   = "org.opencontainers.image.ref.name"
)

func nameIn(d v1.Descriptor) string {
	for _, a := range []string{imageName, refName} {
		if n := d.Annotations[a]; n != "" {
			return n
		}
	}
	return d.Digest.String()
}

// severalImagesError reports that an archive contains more than one image.
func severalImagesError(names []string) error {
	const maximum = 10
	list := ""
	for i, n := range names {
		if i == maximum {
			list += ", ..."
			break
		}
		list += ", " + quote(n)
	}
	return archiveError("there are %d images in it: %.500s", len(names), strings.TrimPrefix(list, ", ")).
		WithHint("make an archive of one image, for example docker save NAME:TAG")
}

// readDocker reads the format that docker save wrote before it used OCI layouts.
func (c layoutReader) readDocker(l *layeredImage) error {
	b, err := c.readSmall("manifest.json")
	if err != nil {
		return err
	}
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return archiveError("its manifest.json is damaged").Because(err)
	}
	if len(all) != 1 {
		var names []string
		for _, i := range all {
			names = append(names, append(i.RepoTags, i.Config)[0])
		}
		if len(all) == 0 {
			return archiveError("it is an archive of images, but there is no image in it")
		}
		return severalImagesError(names)
	}
	if n := len(all[0].Layers); n > maxLayers {
		return archiveError("it has %d layers, the most is %d", n, maxLayers)
	}
	for _, name := range all[0].Layers {
		l.layers = append(l.layers, c.layer(name, ""))
	}
	config, err := c.readSmall(all[0].Config)
	if err != nil {
		return err
	}
	return l.setConfig(config)
}
