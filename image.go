package brig

import (
	"context"
	"io"
	"time"
)

// HostImage is the name of the image that is this machine's own user land.
const HostImage = "host"

// Image is a set of files from which sandboxes start, known by its digest.
type Image struct {
	// Digest is "sha256:" and 64 hex digits; for the host image it identifies
	// the synthetic part, since the rest is the machine's own.
	Digest string
	// Names are what else it is known by.
	Names   []string
	Size    int64 // bytes unpacked; 0 for the host image
	Files   int64
	Created time.Time
	Source  string // "host", "tarball", "debian"
}

// ImageBuild asks for an image made of Debian packages.
type ImageBuild struct {
	Name string
	// Packages are Debian package names, beside the few a system needs.
	Packages []string
	// Suite is the Debian release, for example "bookworm". Default: this
	// machine's own.
	Suite string
}

// Progress is one step of long work.
type Progress struct {
	Step string
	// Done and Total count bytes or items; Total is 0 when it is not known.
	Done, Total int64
}

// ImageStore keeps images. It decides nothing about who may use them.
type ImageStore interface {
	// Resolve finds an image by name or digest.
	Resolve(ctx context.Context, ref string) (*Image, error)
	List(ctx context.Context) ([]*Image, error)
	// Import unpacks a tar archive (plain, gzip or zstd) of a root file
	// system and names it. On an error nothing of it is left.
	Import(ctx context.Context, name string, r io.Reader, report func(Progress)) (*Image, error)
	Build(ctx context.Context, b ImageBuild, report func(Progress)) (*Image, error)
	// Remove removes one image by name or digest. The caller has made sure
	// that no sandbox uses it.
	Remove(ctx context.Context, ref string) error
}
