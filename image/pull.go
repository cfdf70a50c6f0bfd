package image

import (
	"bytes"
	"context"
	"errors"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Pull implements brig.ImageStore. Concurrent requests for the same image share
// one pull.
func (s *Store) Pull(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	return s.pullOnce(ctx, p, false, serializeReports(report))
}

// PullMissing implements brig.ImagePuller.
func (s *Store) PullMissing(ctx context.Context, ref string) (*brig.Image, error) {
	if _, err := parseReference(ref); err != nil || !s.opts.PullMissing || isDigest(ref) {
		return nil, unknownImageError(ref)
	}
	return s.pullOnce(ctx, brig.ImagePull{Ref: ref}, true, func(brig.Progress) {})
}

// pullTarget is the target of a pull.
type pullTarget struct {
	ref      reference
	platform v1.Platform
	pull     brig.ImagePull
}

func (s *Store) pullOnce(ctx context.Context, p brig.ImagePull, missing bool, report func(brig.Progress)) (*brig.Image, error) {
	if isDigest(p.Ref) {
		return nil, brig.InvalidField("ref", "a digest without a repository does not identify a registry").
			WithHint("for example python@%s", p.Ref[:min(len(p.Ref), 80)])
	}
	ref, err := parseReference(p.Ref)
	if err != nil {
		return nil, err
	}
	platform, err := parsePlatform(p.Platform)
	if err != nil {
		return nil, err
	}
	if err := s.checkAllowed(ref); err != nil {
		return nil, err
	}
	key := flightKey{pull: p, missing: missing}
	key.pull.Ref, key.pull.Platform = ref.shortName(), platform.String()
	return s.flights.do(ctx, key, report, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return s.pull(ctx, pullTarget{ref, platform, p}, missing, report)
	})
}

// pull tries the sources in order.
func (s *Store) pull(ctx context.Context, want pullTarget, missing bool, report func(brig.Progress)) (*brig.Image, error) {
	sources, err := s.sources(want.ref, want.pull, missing)
	for _, reg := range sources {
		if reg != nil {
			defer reg.close()
		}
	}
	if err != nil {
		return nil, err
	}
	for i, reg := range sources {
		img, perr := s.pullFrom(ctx, reg, want, report)
		if perr == nil {
			return img, nil
		}
		err = explainPull(ctx, want.ref, reg, want.pull, perr)
		if ctx.Err() != nil || i == len(sources)-1 || brig.KindOf(err) == brig.FailedPrecondition {
			break
		}
		s.opts.Log.Warn("a mirror does not have an image", "mirror", reg.repo.String(), "error", perr)
	}
	return nil, err
}

func (s *Store) pullFrom(ctx context.Context, reg *registry, want pullTarget, report func(brig.Progress)) (*brig.Image, error) {
	report(brig.Progress{Step: "ask " + registryName(reg.repo.RegistryStr())})
	m, also, err := reg.fetchManifest(ctx, want)
	if err != nil {
		return nil, err
	}
	l := &layeredImage{name: want.ref.shortName(), source: sourcePull, manifest: m.digest, also: also}
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	if here := x.Manifests[m.digest]; here != "" {
		img, err := s.reuseStored(ctx, l, here)
		if brig.KindOf(err) != brig.NotFound {
			return img, err
		}
	}
	var config memory
	if err := reg.fetch(ctx, "the configuration", m.Config, &config, func(int64) {}); err != nil {
		return nil, err
	}
	l.layers = make([]layer, len(m.Layers)) // setConfig needs only the number of layers
	if err := l.setConfig(config.b); err != nil {
		return nil, err
	}
	if a := l.file.Architecture; a != "" && a != want.platform.Architecture {
		return nil, platformError(want.platform, []string{l.config.Platform})
	}
	// The content may already be stored under another manifest.
	if img, err := s.reuseStored(ctx, l, l.digest()); brig.KindOf(err) != brig.NotFound {
		return img, err
	}
	if err := s.checkSize(m.Layers); err != nil {
		return nil, err
	}
	return s.download(ctx, reg, l, m.Layers, report)
}

// checkSize refuses an image whose compressed size exceeds the limit for
// unpacked data, before it downloads any layer.
func (s *Store) checkSize(layers []v1.Descriptor) error {
	remaining := s.maxImageSize()
	for i, d := range layers {
		if remaining -= d.Size; remaining < 0 {
			return archiveError("layer %d of %d: packed it is already above the limit of %d bytes", i+1, len(layers), s.maxImageSize())
		}
	}
	return nil
}

// download fetches layers and concurrently applies those that have arrived.
func (s *Store) download(ctx context.Context, reg *registry, l *layeredImage, layers []v1.Descriptor, report func(brig.Progress)) (*brig.Image, error) {
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	ctx, cancel := context.WithCancel(ctx)
	d := &downloads{r: reg, dir: w.dir, report: report, slots: make(chan struct{}, concurrentDownloads)}
	defer d.work.Wait()
	defer cancel()
	l.layers = d.start(ctx, layers)
	return s.assemble(ctx, w, l, report)
}

// manifest is the parsed manifest of an image with its digest.
type manifest struct {
	*v1.Manifest
	digest string
}

// fetchManifest finds the manifest for a platform. It also returns the digests of
// the lists that contain it.
func (r *registry) fetchManifest(ctx context.Context, want pullTarget) (*manifest, []string, error) {
	b, kind, err := r.fetchDocument(ctx, want.ref.Identifier())
	if err != nil {
		return nil, nil, err
	}
	if d := want.ref.digest(); d != "" && digestOf(b) != d {
		return nil, nil, &wrongContent{"its manifest", d, digestOf(b)}
	}
	var also []string
	for depth := 0; isList(b, kind); depth++ {
		if depth > 2 {
			return nil, nil, archiveError("its manifest is a list of lists of lists")
		}
		also = append(also, digestOf(b))
		d, err := choosePlatform(b, want.platform)
		if err != nil {
			return nil, nil, err
		}
		if b, kind, err = r.fetchDocument(ctx, d.Digest.String()); err != nil {
			return nil, nil, err
		}
		if digestOf(b) != d.Digest.String() {
			return nil, nil, &wrongContent{"its manifest", d.Digest.String(), digestOf(b)}
		}
	}
	m, err := readManifest(b, kind)
	return &manifest{m, digestOf(b)}, also, err
}

// fetchDocument fetches a manifest or a list of them.
func (r *registry) fetchDocument(ctx context.Context, tagOrDigest string) ([]byte, types.MediaType, error) {
	var b []byte
	var kind types.MediaType
	err := r.retry(ctx, func() error {
		ref := reference{r.repo.Tag(tagOrDigest)}
		if isDigest(tagOrDigest) {
			ref = reference{r.repo.Digest(tagOrDigest)}
		}
		d, err := r.puller.Get(ctx, ref.Reference)
		if err != nil {
			return err
		}
		b, kind = d.Manifest, d.MediaType
		return nil
	})
	if err == nil && len(b) > maxConfig {
		err = errLarge
	}
	return b, kind, err
}

// readManifest reads the manifest of an image.
func readManifest(b []byte, kind types.MediaType) (*v1.Manifest, error) {
	switch {
	case kind == types.DockerManifestSchema1 || kind == types.DockerManifestSchema1Signed:
		return nil, archiveError("its manifest has an old format (schema 1)").
			WithHint("push it again with a current version of Docker")
	case kind != "" && !kind.IsImage():
		return nil, archiveError("it is not an image but %s", quote(string(kind)))
	}
	m, err := v1.ParseManifest(bytes.NewReader(b))
	if err != nil || m.SchemaVersion != 2 {
		return nil, archiveError("its manifest is damaged").Because(err)
	}
	if len(m.Layers) > maxLayers {
		return nil, archiveError("it has %d layers, the most is %d", len(m.Layers), maxLayers)
	}
	if k := m.Config.MediaType; k != "" && !k.IsConfig() {
		return nil, archiveError("it is not an image but %s", quote(string(k)))
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return nil, archiveError("its configuration is larger than %d bytes", maxConfig)
	}
	for i, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if i > 0 && !d.MediaType.IsLayer() {
			return nil, archiveError("layer %d is of a kind that is not understood, %s", i, quote(string(d.MediaType)))
		}
		if err := checkDigest(d.Digest.String()); err != nil || d.Size < 0 {
			return nil, archiveError("its manifest has no sha256 digest and size for each part").Because(errors.Join(err))
		}
	}
	return m, nil
}
