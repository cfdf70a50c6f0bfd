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

// The limits of an image unless Options say otherwise.
const (
	DefaultMaxSize  = 20 << 30
	DefaultMaxFiles = 2_000_000
	DefaultMaxRatio = 200
)

// Where an image came from: brig.Image.Source.
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
	// Dir is the data folder; the store keeps to Dir/images.
	Dir string
	// MaxSize bounds the bytes of one image, unpacked. Default 20 GiB.
	MaxSize int64
	// MaxFiles bounds the entries of one image. Default 2 million.
	MaxFiles int64
	// MaxRatio bounds how many bytes come out of one byte of an archive, once
	// 128 MiB have come out. Default 200.
	MaxRatio int64
	// Quota bounds the bytes of all images together. Where one more would
	// exceed it, those that were not used for the longest time and that no
	// sandbox uses are removed. Default 0: no bound.
	Quota int64
	// Registries are those that images may be pulled from: "registry.example", or
	// "registry.example/owner". Empty is all.
	Registries []string
	// Mirrors are asked before the registry, in that order: of "docker.io" for
	// example "mirror.example:5000", or "http://mirror.example" for plain HTTP.
	Mirrors map[string][]string
	// PullMissing lets a sandbox's creation pull the image that it names, by
	// whoever may create one. Then only registries with a public address are
	// asked, and those that Registries and Mirrors name.
	PullMissing bool
	// DockerConfig has the credentials that `docker login` left for our user
	// used for registries that nobody gave others for.
	DockerConfig bool
	// BuildEnv is added to the environment of the builder of Debian images,
	// for example "http_proxy=...". Default: nothing of ours.
	BuildEnv []string
	// Now tells the time. Default time.Now.
	Now func() time.Time
	// HostAge is for how long the host image may be taken to be what it was
	// when it was last looked at; a look takes milliseconds. Default 0: it is
	// looked at every time.
	HostAge time.Duration
	// Log is the operator's. Default: nobody listens.
	Log *slog.Logger

	hostRoot   string                       // the machine's root; tests use another
	ratioFloor int64                        // bytes that may come out whatever the ratio
	lookPath   func(string) (string, error) // finds the builder of Debian images
	sync       func(dir string) error       // makes what is in dir survive a power cut
	retryWait  time.Duration                // before a registry is asked again, longer each time
}

// Store implements brig.ImageStore in a folder.
type Store struct {
	opts       Options
	dir        string // Dir/images
	privileged bool   // may give files away: we are root

	hostMu   sync.Mutex // guards the fields below
	seen     brig.Image // the host image at the last look
	seenAt   time.Time
	asked    time.Time // when somebody last wanted to know
	look     bool      // somebody is looking
	watching bool      // the next look comes by itself

	flights flights
	room    room
}

var _ brig.ImageStore = (*Store)(nil)

// Root is what a provider mounts: a directory to use read-only as the root,
// and read-only binds on top of it.
type Root struct {
	Dir   string
	Binds []Bind
}

// Bind shows the machine's Source at Target in the sandbox, read-only.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Open opens the store in o.Dir, makes it if there is none, and clears what a
// crash left there.
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
	if o.sync == nil {
		o.sync = syncFS
	}
	return o
}

// Root returns what to mount for the image of a digest.
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

// Resolve implements brig.ImageStore. The host image is made, or made anew
// when the machine has changed, by the first Resolve that wants it.
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
	digest := x.find(ref)
	if digest == "" {
		return nil, unknown(ref)
	}
	m, err := s.readMeta(digest)
	if brig.KindOf(err) == brig.NotFound {
		return nil, unknown(ref) // a name may outlive its files for a moment
	}
	if err != nil {
		return nil, err
	}
	s.touch(digest)
	return m.image(x), nil
}

// List implements brig.ImageStore: the host image first, then by name.
func (s *Store) List(ctx context.Context) ([]*brig.Image, error) {
	var images []*brig.Image
	host, err := s.host(ctx)
	switch {
	case err == nil:
		images = append(images, host)
	case ctx.Err() != nil:
		return nil, err
	default: // a machine without a usable user land still has other images
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
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		images = append(images, m.image(x))
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

// meta is what an image's meta.json says.
type meta struct {
	Version int       `json:"version"`
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"`
	Files   int64     `json:"files"`
	Skipped int64     `json:"skipped,omitempty"` // devices, fifos and sockets
	Created time.Time `json:"created"`
	Source  string    `json:"source"`
	Binds   []Bind    `json:"binds,omitempty"`
	// What follows is of images that have a configuration.
	Manifest string           `json:"manifest,omitempty"`
	Config   brig.ImageConfig `json:"config,omitzero"`
	Notes    []string         `json:"notes,omitempty"`
}

const metaVersion = 1

func (m *meta) image(x *index) *brig.Image {
	names := x.namesOf(m.Digest)
	if x.Host.Digest == m.Digest {
		names = append([]string{brig.HostImage}, names...)
	}
	return &brig.Image{
		Digest: m.Digest, Names: names, Size: m.Size, Files: m.Files,
		Created: m.Created, Source: m.Source, Manifest: m.Manifest, Config: m.Config, Notes: m.Notes,
	}
}

// readMeta reads the meta.json of an image, NotFound if there is none.
func (s *Store) readMeta(digest string) (*meta, error) {
	b, err := os.ReadFile(filepath.Join(s.imageDir(digest), "meta.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown(digest)
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
