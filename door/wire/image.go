package wire

import "time"

// Image is a set of files from which sandboxes start.
type Image struct {
	Digest  string    `json:"digest"`
	Names   []string  `json:"names" nullable:"false"`
	Size    int64     `json:"size" doc:"bytes unpacked; 0 for the host image"`
	Files   int64     `json:"files"`
	Created time.Time `json:"created,omitzero"`
	Source  string    `json:"source" doc:"host, tarball or debian"`
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
