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

// archiveKind tells an unpacked archive of images from a root file system:
// sourceLayout or sourceDocker, or empty. docker save makes what is both.
func archiveKind(root *os.Root) string {
	switch {
	case isThere(root, "usr") || isThere(root, "bin") || isThere(root, "etc"):
		return ""
	case isThere(root, "oci-layout") && isThere(root, "index.json"):
		return sourceLayout
	case isThere(root, "manifest.json"):
		return sourceDocker
	}
	return ""
}

// takeImages makes an image of the one that an unpacked archive of images
// holds. Whatever is in there is read through root, which nothing leaves.
func (s *Store) takeImages(ctx context.Context, name, kind string, root *os.Root, report func(brig.Progress)) (*brig.Image, error) {
	l := &layered{name: name, source: kind}
	box := crate{root}
	read := box.layout
	if kind == sourceDocker {
		read = box.docker
	}
	if err := read(l); err != nil {
		return nil, err
	}
	if a := l.file.Architecture; a != "" && a != thisPlatform().Architecture {
		return nil, refuse("its image is for %s, and this machine is %s", l.config.Platform, thisPlatform())
	}
	if img, err := s.known(ctx, l, l.digest()); brig.KindOf(err) != brig.NotFound {
		return img, err
	}
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	return s.assemble(ctx, w, l, report)
}

// crate is an unpacked archive of images.
type crate struct{ root *os.Root }

// small reads a file of the archive that is not a layer.
func (c crate) small(name string) ([]byte, error) {
	f, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = refuse("entry %s: it is larger than %d bytes, the limit", quote(name), maxConfig)
	}
	return b, err
}

// open opens a file of the archive. docker save had links between layers once.
func (c crate) open(name string) (*os.File, error) {
	clean, err := cleanName(name)
	if err != nil {
		return nil, err
	}
	f, err := c.root.Open(clean)
	if err != nil {
		return nil, refuse("it is an archive of images, but %s is not in it", quote(name)).Because(err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, refuse("entry %s: it is not a file", quote(name)).Because(err)
	}
	return f, nil
}

func blobName(d v1.Hash) string { return "blobs/" + d.Algorithm + "/" + d.Hex }

// blob reads a small blob of a layout, which has to have its digest.
func (c crate) blob(d v1.Hash) ([]byte, error) {
	if err := checkDigest(d.String()); err != nil {
		return nil, refuse("%s is not a sha256 digest", quote(d.String()))
	}
	b, err := c.small(blobName(d))
	if err == nil && digestOf(b) != d.String() {
		err = refuse("entry %s: its digest is %s", quote(blobName(d)), digestOf(b))
	}
	return b, err
}

// layout reads an OCI layout.
func (c crate) layout(l *layered) error {
	b, err := c.small("index.json")
	if err != nil {
		return err
	}
	list, err := v1.ParseIndexManifest(bytes.NewReader(b))
	if err != nil {
		return refuse("its index.json is damaged").Because(err)
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
		return refuse("it is an archive of images, but there is no image in it")
	case len(images) > 1: // one image for several platforms, or several images
		if d, err = choose(b, thisPlatform()); err != nil || tagged(list) {
			return several(names)
		}
	}
	kind := d.MediaType
	for depth := 0; ; depth++ {
		if b, err = c.blob(d.Digest); err != nil {
			return err
		}
		if !isList(b, kind) {
			break
		}
		if depth > 2 {
			return refuse("its index is a list of lists of lists")
		}
		l.also = append(l.also, d.Digest.String())
		if d, err = choose(b, thisPlatform()); err != nil {
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
	config, err := c.blob(m.Config.Digest)
	if err != nil {
		return err
	}
	return l.setConfig(config)
}

// layer is a layer that is a file of the archive. Its content has to have the
// digest that the configuration says, which is checked when it is applied.
func (c crate) layer(name, digest string) layer {
	return layer{digest: digest, open: func(context.Context) (io.ReadCloser, error) { return c.open(name) }}
}

// tagged reports whether a list names several images by tags.
func tagged(list *v1.IndexManifest) bool {
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

// The annotations by which an image in a layout is named.
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

// several says that it is not clear which image of an archive is meant.
func several(names []string) error {
	const most = 10
	list := ""
	for i, n := range names {
		if i == most {
			list += ", ..."
			break
		}
		list += ", " + quote(n)
	}
	return refuse("there are %d images in it: %.500s", len(names), strings.TrimPrefix(list, ", ")).
		WithHint("make an archive of one image, for example docker save NAME:TAG")
}

// docker reads what docker save made before it made layouts.
func (c crate) docker(l *layered) error {
	b, err := c.small("manifest.json")
	if err != nil {
		return err
	}
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return refuse("its manifest.json is damaged").Because(err)
	}
	if len(all) != 1 {
		var names []string
		for _, i := range all {
			names = append(names, append(i.RepoTags, i.Config)[0])
		}
		if len(all) == 0 {
			return refuse("it is an archive of images, but there is no image in it")
		}
		return several(names)
	}
	if n := len(all[0].Layers); n > maxLayers {
		return refuse("it has %d layers, the most is %d", n, maxLayers)
	}
	for _, name := range all[0].Layers {
		l.layers = append(l.layers, c.layer(name, ""))
	}
	config, err := c.small(all[0].Config)
	if err != nil {
		return err
	}
	return l.setConfig(config)
}
