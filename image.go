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
	// Source is "host", "tarball", "debian", "registry", "oci-layout" or
	// "docker-archive".
	Source string
	// Manifest is the digest of the manifest by which a registry or a layout
	// knows the image; empty for others.
	Manifest string
	// Config is what the image says about how to use it.
	Config ImageConfig
	// Notes are facts about the image that a caller should know, for example
	// what of its configuration is not honoured.
	Notes []string
}

// ImageConfig is what is kept of an OCI image's configuration.
type ImageConfig struct {
	// Env is set in every sandbox of the image, under what the caller sets.
	Env map[string]string `json:",omitempty"`
	// User is "root" if the image asks for user ID 0, "user" if it asks for
	// another, empty if it does not say. Commands run as "user" all the same,
	// unless their caller says otherwise.
	User string `json:",omitempty"`
	// Account is "UID:GID" if User is one of the image's own: as that its
	// entrypoint runs, and nothing else.
	Account string `json:",omitempty"`
	// WorkingDir is a directory of the image in which commands run that do not
	// say, or empty. "/" is what many images say without meaning anything by
	// it, and is not used.
	WorkingDir string `json:",omitempty"`
	// Entrypoint and Command are run when Spec.Entrypoint asks for it.
	Entrypoint []string `json:",omitempty"`
	Command    []string `json:",omitempty"`
	// Labels are the image's own, the first hundred of them.
	Labels map[string]string `json:",omitempty"`
	// Platform is what the image was made for, for example "linux/amd64".
	Platform string `json:",omitempty"`
}

// ImagePull asks for an image from a registry.
type ImagePull struct {
	// Ref is a reference as docker has them: "python:3.11-slim",
	// "registry.example/a/b@sha256:…", "localhost:5000/x:tag".
	Ref string
	// Platform is for example "linux/arm64/v8". Default: this machine's.
	Platform string
	// Username and Password are for the registry that Ref names. A Password
	// without a Username is a token.
	Username, Password string
	// Insecure admits plain HTTP. Registries on the loopback may have it in
	// any case.
	Insecure bool
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
	// system, an OCI layout or what docker save makes, and names it. On an error nothing of it is left.
	Import(ctx context.Context, name string, r io.Reader, report func(Progress)) (*Image, error)
	Build(ctx context.Context, b ImageBuild, report func(Progress)) (*Image, error)
	// Pull fetches an image from a registry and names it by its reference. On
	// an error nothing of it is left.
	Pull(ctx context.Context, p ImagePull, report func(Progress)) (*Image, error)
	// Remove removes one image by name or digest. The caller has made sure
	// that no sandbox uses it.
	Remove(ctx context.Context, ref string) error
}

// ImagePuller is an ImageStore that may pull what a sandbox is to start from.
type ImagePuller interface {
	// PullMissing pulls an image that Resolve does not find. It is NotFound
	// where that is not allowed.
	PullMissing(ctx context.Context, ref string) (*Image, error)
}

// ImageEvictor is an ImageStore that makes room by removing images.
type ImageEvictor interface {
	// EvictThrough has f decide about every removal: f calls remove if no
	// sandbox uses the image, and else returns FailedPrecondition.
	EvictThrough(f func(ctx context.Context, digest string, remove func() error) error)
}
