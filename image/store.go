package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// These are the default limits of an image.
const (
	DefaultMaxSize  = 20 << 30
	DefaultMaxFiles = 2_000_000
	DefaultMaxRatio = 200
)

// These are the origins of an image, the values of brig.Image.Source.
const (
	sourceHost    = "host"
	sourceTarball = "tarball"
	sourceDebian  = "debian"
	sourcePull    = "registry"
	sourceLayout  = "oci-layout"
	sourceDocker  = "docker-archive"
)

// Options configure a Store.
type Options struct {
	// Dir is the data folder. The store only uses Dir/images.
	Dir string
	// MaxSize bounds the unpacked bytes of one image. The default is 20 GiB.
	MaxSize int64
	// MaxFiles bounds the entries of one image. The default is 2 million.
	MaxFiles int64
	// MaxRatio bounds the compression ratio of an archive. It applies after 128 MiB of output. The
	// default is 200.
	MaxRatio int64
	// Quota bounds the bytes of all images together. When a new image would exceed it, the store
	// removes the least recently used images that no sandbox uses. The default, 0, means no limit.
	Quota int64
	// Registries lists the registries from which images may be pulled, for example
	// "registry.example" or "registry.example/owner". An empty list allows all registries.
	Registries []string
	// Mirrors are tried before the registry, in order. The key is a registry such
	// as "docker.io"; a mirror is "mirror.example:5000", or
	// "http://mirror.example" for plain HTTP.
	Mirrors map[string][]string
	// PullMissing allows every client that may create a sandbox to pull the
	// image for it. The store then uses only registries with a public address,
	// and those in Registries and Mirrors.
	PullMissing bool
	// DockerConfig enables the credentials that `docker login` stored for the
	// server's user. They apply to registries for which the caller gave none.
	DockerConfig bool
	// BuildEnv is added to the environment of the builder of Debian images, for
	// example "http_proxy=...". By default, the builder inherits no
	// environment.
	BuildEnv []string
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
	// HostAge is how long the result of a check of the host image remains valid. A check takes
	// milliseconds. With the default, 0, the store checks on every request.
	HostAge time.Duration
	// Log is the operator's log. By default, messages are discarded.
	Log *slog.Logger

	hostRoot   string                       // the host's root; tests use another
	ratioFloor int64                        // output bytes that are allowed at any ratio
	lookPath   func(string) (string, error) // finds the builder of Debian images
	sync       func(dir string) error       // makes the contents of dir durable
	retryWait  time.Duration                // before a retry of a registry, longer each time
	stall      time.Duration                // in which a registry must send slowest
	removeAll  func(dir string) error       // deletes the files of an image
}

// Store implements brig.ImageStore in a directory.
type Store struct {
	opts       Options
	dir        string // Dir/images
	privileged bool   // the server is root and can change file owners

	hostMu      sync.Mutex // guards the fields below
	seen        brig.Image // the host image at the last check
	seenAt      time.Time
	lastRequest time.Time // when a caller last requested the image
	checking    bool      // a check is running
	watching    bool      // the next check is scheduled

	removals   sync.WaitGroup // deletions of removed images
	flights    flights
	quotaState quotaState
}

var _ brig.ImageStore = (*Store)(nil)

// Root is the part of an image that a provider mounts: a directory to use as
// the read-only root, and read-only binds on top of it.
type Root struct {
	Dir   string
	Binds []Bind
}

// Bind mounts Source of the host read-only at Target in the sandbox.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Open opens the store in o.Dir, creates it if it does not exist, and removes
// the leftovers of a crash.
func Open(o Options) (*Store, error) {
	if o.Dir == "" {
		e := brig.Errorf(brig.InvalidConfig, "the image store has no data folder")
		e.Field = "dir"
		return nil, e
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find data folder %s: %w", o.Dir, err)
	}
	s := &Store{opts: o.withDefaults(), dir: filepath.Join(dir, "images"), privileged: os.Geteuid() == 0}
	if err := os.MkdirAll(s.path("tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("make image store: %w", err)
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("close image store to others: %w", err)
	}
	s.clearLeftovers()
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.MaxSize <= 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	if o.MaxRatio <= 0 {
		o.MaxRatio = DefaultMaxRatio
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.hostRoot == "" {
		o.hostRoot = "/"
	}
	if o.ratioFloor <= 0 {
		o.ratioFloor = 128 << 20
	}
	if o.lookPath == nil {
		o.lookPath = exec.LookPath
	}
	if o.retryWait <= 0 {
		o.retryWait = time.Second
	}
	if o.stall <= 0 {
		o.stall = stall
	}
	if o.removeAll == nil {
		o.removeAll = os.RemoveAll
	}
	if o.sync == nil {
		o.sync = syncFS
	}
	return o
}

// Root returns the mounts for the image with the digest.
func (s *Store) Root(digest string) (Root, error) {
	if err := checkDigest(digest); err != nil {
		return Root{}, err
	}
	m, err := s.readMeta(digest)
	if err != nil {
		return Root{}, err
	}
	return Root{Dir: filepath.Join(s.imageDir(digest), "root"), Binds: m.Binds}, nil
}

// Resolve implements brig.ImageStore. The first Resolve of the host image
// builds it, and rebuilds it after the host has changed.
func (s *Store) Resolve(ctx context.Context, ref string) (*brig.Image, error) {
	if ref == brig.HostImage {
		return s.recentHost(ctx)
	}
	if err := checkRef(ref); err != nil {
		return nil, err
	}
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	if alias, target := x.aliasOf(ref); target != "" {
		img, err := s.Resolve(ctx, target) // target is not an alias
		if err != nil {
			return nil, err
		}
		named := *img
		named.Alias = alias
		return &named, nil
	}
	digest := x.find(ref)
	if digest == "" {
		return nil, unknownImageError(ref)
	}
	m, err := s.readMeta(digest)
	if brig.KindOf(err) == brig.NotFound {
		return nil, unknownImageError(ref) // a name can briefly outlive its files
	}
	if err != nil {
		return nil, err
	}
	s.touch(digest)
	return m.toImage(x), nil
}

// List implements brig.ImageStore. The host image comes first, then the others
// by name.
func (s *Store) List(ctx context.Context) ([]*brig.Image, error) {
	var images []*brig.Image
	host, err := s.ensureHost(ctx)
	switch {
	case err == nil:
		images = append(images, host)
	case ctx.Err() != nil:
		return nil, err
	default: // other images are available even if the host has no usable user land
		s.opts.Log.Warn("host image is not available", "error", err)
	}
	x, err := s.readIndex()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	for _, e := range entries {
		hex, ok := strings.CutPrefix(e.Name(), "sha256-")
		if !ok || (host != nil && "sha256:"+hex == host.Digest) {
			continue
		}
		m, err := s.readMeta("sha256:" + hex)
		if brig.KindOf(err) == brig.NotFound {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		images = append(images, m.toImage(x))
	}
	slices.SortStableFunc(images, func(a, b *brig.Image) int {
		return strings.Compare(sortKey(a), sortKey(b))
	})
	return images, nil
}

// sortKey puts the host image first and images without a name last.
func sortKey(m *brig.Image) string {
	switch {
	case slices.Contains(m.Names, brig.HostImage):
		return ""
	case len(m.Names) == 0:
		return "~" + m.Digest
	}
	return m.Names[0]
}

// meta is the content of an image's meta.json.
type meta struct {
	Version int       `json:"version"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Files   int64     `json:"files"`
	Skipped int64     `json:"skipped,omitempty"` // devices, FIFOs and sockets
	Created time.Time `json:"created"`
	Source  string    `json:"source"`
	Binds   []Bind    `json:"binds,omitempty"`
	// The fields below are only set for images with a configuration.
	Manifest string           `json:"manifest,omitempty"`
	Config   brig.ImageConfig `json:"config,omitzero"`
	Notes    []string         `json:"notes,omitempty"`
}

const metaVersion = 1

func (m *meta) toImage(x *index) *brig.Image {
	names := x.namesOf(m.Digest)
	if x.Host.Digest == m.Digest {
		names = append([]string{brig.HostImage}, names...)
	}
	return &brig.Image{
		Digest: m.Digest, Names: names, Size: m.Size, Files: m.Files,
		Created: m.Created, Source: m.Source, Manifest: m.Manifest, Config: m.Config, Notes: m.Notes,
	}
}

// readMeta reads the meta.json of an image. It returns NotFound if the image
// does not exist.
func (s *Store) readMeta(digest string) (*meta, error) {
	b, err := os.ReadFile(filepath.Join(s.imageDir(digest), "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknownImageError(digest)
	}
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", digest, err)
	}
	m := new(meta)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("read image %s: %w", digest, err)
	}
	if m.Version != metaVersion || m.Digest != digest {
		return nil, fmt.Errorf("read image %s: its meta.json is of version %d and of %s", digest, m.Version, m.Digest)
	}
	return m, nil
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *Store) imageDir(digest string) string {
	return s.path(strings.Replace(digest, ":", "-", 1))
}
