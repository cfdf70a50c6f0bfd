package wire

import "time"

// Image is a set of files from which sandboxes start.
type Image struct {
	Digest  string    `json:"digest"`
	Names   []string  `json:"names" nullable:"false"`
	Size    int64     `json:"size" doc:"bytes unpacked; 0 for the host image"`
	Files   int64     `json:"files"`
	Created time.Time `json:"created,omitzero"`
	Source  string    `json:"source" doc:"host, tarball, debian, registry, oci-layout or docker-archive"`
	// Manifest, Config and Notes are of images that have a configuration.
	Manifest string       `json:"manifest,omitempty" doc:"the digest by which a registry knows it"`
	Config   *ImageConfig `json:"config,omitempty"`
	Notes    []string     `json:"notes,omitempty" doc:"what a caller should know of it"`
}

// ImageConfig is what an image says about how to use it.
type ImageConfig struct {
	Env        map[string]string `json:"env,omitempty" doc:"set in every sandbox of the image, under what the caller sets"`
	User       string            `json:"user,omitempty" doc:"root or user, if the image says; commands run as user unless they say otherwise"`
	Account    string            `json:"account,omitempty" doc:"uid:gid of the image's own user, as which its entrypoint runs"`
	WorkingDir string            `json:"working_dir,omitempty" doc:"where commands run that do not say; / is not used"`
	Entrypoint []string          `json:"entrypoint,omitempty" doc:"run when a sandbox is asked for with entrypoint"`
	Command    []string          `json:"command,omitempty" doc:"its arguments, unless there are others"`
	Labels     map[string]string `json:"labels,omitempty"`
	Platform   string            `json:"platform,omitempty" doc:"for example linux/amd64"`
}

// Images is every image.
type Images struct {
	Images []Image `json:"images" nullable:"false"`
}

// BuildRequest asks for an image made of Debian packages.
type BuildRequest struct {
	Name     string   `json:"name,omitempty" doc:"1 to 63 of a-z, 0-9 and -"`
	Packages []string `json:"packages,omitempty" doc:"beside the few that a system needs"`
	Suite    string   `json:"suite,omitempty" doc:"the Debian release, for example bookworm"`
}

// PullRequest asks for an image from a registry.
type PullRequest struct {
	Ref      string `json:"ref,omitempty" doc:"for example python:3.11-slim or registry.example/owner/name@sha256:…"`
	Platform string `json:"platform,omitempty" doc:"for example linux/arm64; the server's own by default"`
	Username string `json:"username,omitempty" doc:"for the registry that ref names"`
	Password string `json:"password,omitempty" doc:"or a token, without a username; it is not kept"`
	Insecure bool   `json:"insecure,omitempty" doc:"admits plain HTTP"`
}

// Progress is one step of long work.
type Progress struct {
	Step  string `json:"step"`
	Done  int64  `json:"done"`
	Total int64  `json:"total" doc:"0 when it is not known"`
}

// Version is what GET /v1/version answers.
type Version struct {
	Version string `json:"version"`
}

// Health is what GET /healthz and GET /readyz answer when all is well.
type Health struct {
	Status string `json:"status"`
}
