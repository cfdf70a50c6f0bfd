package brig

import (
	"context"
	"io"
	"time"
)

// HostImage is the name of the image that consists of the host's own userland.
const HostImage = "host"

// Image is a set of files from which sandboxes start, identified by its digest.
type Image struct {
	// Digest is "sha256:" and 64 hex digits. For the host image it covers only
	// the synthetic part, because the other files belong to the host.
	Digest string
	// Names are the names of the image.
	Names   []string
	Size    int64 // bytes unpacked; 0 for the host image
	Files   int64
	Created time.Time
	// Source is "host", "tarball", "debian", "registry", "oci-layout" or
	// "docker-archive".
	Source string
	// Manifest is the digest of the image's manifest in a registry or a layout;
	// empty for other images.
	Manifest string
	// Config is the image's own configuration.
	Config ImageConfig
	// Alias is the alias that resolved to the image, if any. A store does not
	// persist it.
	Alias string `json:",omitempty"`
	// Notes are remarks about the image for the caller, for example ignored parts
	// of its configuration.
	Notes []string
}

// ImageConfig is the part of an OCI image's configuration that Brig uses.
type ImageConfig struct {
	// Env is set in every sandbox of the image; the caller's variables override
	// it.
	Env map[string]string `json:",omitempty"`
	// User is "root" if the image declares user ID 0, "user" if it declares another
	// ID, and empty if it declares none. Commands run as "user" unless their caller
	// sets a user.
	User string `json:",omitempty"`
	// Account is "UID:GID" if User is one of the image's accounts. Only the
	// image's entrypoint runs with it.
	Account string `json:",omitempty"`
	// WorkingDir is the default working directory of commands, or empty. "/"
	// counts as empty, because many images declare it without a purpose.
	WorkingDir string `json:",omitempty"`
	// Entrypoint and Command run if Spec.Entrypoint is set.
	Entrypoint []string `json:",omitempty"`
	Command    []string `json:",omitempty"`
	// Labels are the first hundred labels of the image.
	Labels map[string]string `json:",omitempty"`
	// Platform is the platform of the image, for example "linux/amd64".
	Platform string `json:",omitempty"`
}

// ImagePull is a request for an image from a registry.
type ImagePull struct {
	// Ref is a reference in docker's syntax: "python:3.11-slim",
	// "registry.example/a/b@sha256:…", "localhost:5000/x:tag".
	Ref string
	// Platform is the platform of the image, such as "linux/arm64/v8". Default: the host's
	// platform.
	Platform string
	// Username and Password are the credentials for the registry in Ref. A
	// Password without a Username is a token.
	Username, Password string
	// Insecure allows plain HTTP. A registry on the loopback interface may use it
	// in any case.
	Insecure bool
}

// ImageBuild is a request to build an image from Debian packages. The image keeps the package sources
// of the server's machine, except those with credentials.
type ImageBuild struct {
	Name string
	// Packages are the names of Debian packages, in addition to the minimal
	// system.
	Packages []string
	// Suite is the Debian release, for example "bookworm". Default: the host's
	// release.
	Suite string
}

// Progress is a progress report of a long operation.
type Progress struct {
	Step string
	// Done and Total count bytes or items. Total is 0 if unknown.
	Done, Total int64
}

// ImageStore stores images. It does not control access to them.
type ImageStore interface {
	// Resolve returns the image with the given name or digest.
	Resolve(ctx context.Context, ref string) (*Image, error)
	List(ctx context.Context) ([]*Image, error)
	// Import unpacks a tar archive (plain, gzip or zstd) of a root file system,
	// an OCI layout or the output of docker save, and names the image. It
	// leaves no files after an error.
	Import(ctx context.Context, name string, r io.Reader, report func(Progress)) (*Image, error)
	Build(ctx context.Context, b ImageBuild, report func(Progress)) (*Image, error)
	// Pull fetches an image from a registry and names it by its reference. It
	// leaves no files after an error.
	Pull(ctx context.Context, p ImagePull, report func(Progress)) (*Image, error)
	// Remove removes one image by name or digest. The caller ensures that no
	// sandbox uses it.
	Remove(ctx context.Context, ref string) error
}

// ImagePuller is an ImageStore that can pull a missing image when a sandbox
// needs it.
type ImagePuller interface {
	// PullMissing pulls an image that Resolve does not find. It returns NotFound
	// if pulling the image is not allowed.
	PullMissing(ctx context.Context, ref string) (*Image, error)
}

// ImageTagger is an ImageStore with support for aliases.
type ImageTagger interface {
	// Tag makes name an alias of the image in ref. Resolve finds the image by the
	// alias until an image with that name exists or the alias is removed.
	Tag(ctx context.Context, ref, name string) (*Image, error)
}

// ImageEvictor is an ImageStore that evicts images to free disk space. It evicts only
// images that it can pull again.
type ImageEvictor interface {
	// EvictFor permits the eviction of images that users does not report as used.
	EvictFor(users ImageUsers)
	// Wait waits until the files of removed images are deleted.
	Wait()
}

// ImageUsers reports the images of a store that are in use.
type ImageUsers interface {
	// UsedImages returns the digests of the images that must not be evicted.
	UsedImages(ctx context.Context) (map[string]bool, error)
	// RemoveUnused calls remove if no sandbox uses the image, and otherwise returns
	// FailedPrecondition.
	RemoveUnused(ctx context.Context, digest string, remove func() error) error
}
