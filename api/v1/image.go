package v1

import (
	"reflect"
	"time"

	"github.com/brig-run/brig"
)

// Image is a set of files from which sandboxes start.
type Image struct {
	Digest  string    `json:"digest"`
	Names   []string  `json:"names" nullable:"false" doc:"names, including aliases"`
	Alias   string    `json:"alias,omitempty" doc:"the alias that the caller used"`
	Size    int64     `json:"size" doc:"unpacked size in bytes; 0 for the image host"`
	Files   int64     `json:"files"`
	Created time.Time `json:"created,omitzero"`
	Source  string    `json:"source" doc:"host, tarball, debian, registry, oci-layout or docker-archive"`
	// Manifest, Config and Notes are set only for images with a configuration.
	Manifest string       `json:"manifest,omitempty" doc:"digest of the manifest in the registry"`
	Config   *ImageConfig `json:"config,omitempty"`
	Notes    []string     `json:"notes,omitempty" doc:"notes about the image, such as ignored settings"`
}

// ImageConfig is the configuration in an image.
type ImageConfig struct {
	Env        map[string]string `json:"env,omitempty" doc:"environment variables of every sandbox of the image; the caller's override them"`
	User       string            `json:"user,omitempty" doc:"root or user, if the image has one; commands run as user by default"`
	Account    string            `json:"account,omitempty" doc:"uid:gid of the image's user, for its entrypoint"`
	WorkingDir string            `json:"working_dir,omitempty" doc:"default working directory of commands; / is ignored"`
	Entrypoint []string          `json:"entrypoint,omitempty" doc:"runs if the sandbox is created with entrypoint"`
	Command    []string          `json:"command,omitempty" doc:"default arguments of the entrypoint"`
	Labels     map[string]string `json:"labels,omitempty"`
	Platform   string            `json:"platform,omitempty" doc:"for example linux/amd64"`
}

// Images is the list of all images.
type Images struct {
	Images []Image `json:"images" nullable:"false"`
}

// BuildRequest is the request to build an image from Debian packages.
type BuildRequest struct {
	Name     string   `json:"name,omitempty" doc:"1 to 63 of a-z, 0-9 and -" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
	Packages []string `json:"packages,omitempty" doc:"in addition to the few that every system needs" items:"^[a-z0-9][a-z0-9+.-]+$"`
	Suite    string   `json:"suite,omitempty" doc:"the Debian release, for example bookworm" pattern:"^[a-z]+$" example:"bookworm"`
}

// TagRequest is the request to give an image another name.
type TagRequest struct {
	Image string `json:"image" doc:"name or digest of the image" minLength:"1" maxLength:"512" example:"host"`
	Name  string `json:"name" doc:"the alias: a name, or a reference with a tag" minLength:"1" maxLength:"512" pattern:"^[a-z0-9][A-Za-z0-9._:/-]*$" example:"python:3.11-slim"`
}

// PullRequest is the request to pull an image from a registry.
type PullRequest struct {
	Ref      string `json:"ref" doc:"for example python:3.11-slim or registry.example/owner/name@sha256:…" minLength:"1" maxLength:"512" pattern:"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$" example:"python:3.11-slim"`
	Platform string `json:"platform,omitempty" doc:"for example linux/arm64; default: the server's platform" pattern:"^[a-z0-9]+/[a-z0-9]+(?:/[a-z0-9]+)?$"`
	Username string `json:"username,omitempty" doc:"for the registry that ref names"`
	Password string `json:"password,omitempty" doc:"password, or a token without a username; not stored"`
	Insecure bool   `json:"insecure,omitempty" doc:"allow plain HTTP"`
}

// Progress is one step of a long operation.
type Progress struct {
	Step  string `json:"step"`
	Done  int64  `json:"done"`
	Total int64  `json:"total" doc:"0 if unknown"`
}

// Version is the response to GET /v1/version.
type Version struct {
	Version string `json:"version"`
}

// Health is the success response to GET /healthz and GET /readyz.
type Health struct {
	Status string `json:"status"`
}

// Domain converts r to its domain type.
func (r BuildRequest) Domain() brig.ImageBuild {
	return brig.ImageBuild{Name: r.Name, Packages: r.Packages, Suite: r.Suite}
}

// FromImage converts i to its wire type.
func FromImage(i *brig.Image) Image {
	names := i.Names
	if names == nil {
		names = []string{}
	}
	return Image{
		Digest: i.Digest, Names: names, Size: i.Size, Files: i.Files, Created: i.Created, Source: i.Source, Alias: i.Alias,
		Manifest: i.Manifest, Config: fromImageConfig(i.Config), Notes: i.Notes,
	}
}

// fromImageConfig returns nil for an empty configuration.
func fromImageConfig(c brig.ImageConfig) *ImageConfig {
	if reflect.ValueOf(c).IsZero() {
		return nil
	}
	out := ImageConfig(c)
	return &out
}

// Domain converts i to its domain type.
func (i Image) Domain() *brig.Image {
	out := &brig.Image{
		Digest: i.Digest, Names: i.Names, Size: i.Size, Files: i.Files, Created: i.Created, Source: i.Source,
		Manifest: i.Manifest, Notes: i.Notes, Alias: i.Alias,
	}
	if i.Config != nil {
		out.Config = brig.ImageConfig(*i.Config)
	}
	return out
}

// FromImages converts a list to its wire type.
func FromImages(list []*brig.Image) Images {
	out := Images{Images: []Image{}}
	for _, i := range list {
		out.Images = append(out.Images, FromImage(i))
	}
	return out
}
