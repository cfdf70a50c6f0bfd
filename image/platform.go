package image

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// isList reports whether b is a list of manifests, and not a manifest. The
// registry's media type takes precedence over the content.
func isList(b []byte, kind types.MediaType) bool {
	if kind.IsIndex() || kind.IsImage() {
		return kind.IsIndex()
	}
	var in struct {
		MediaType types.MediaType `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
		Layers    json.RawMessage `json:"layers"`
	}
	return json.Unmarshal(b, &in) == nil && (in.MediaType.IsIndex() || in.Manifests != nil && in.Layers == nil)
}

// choosePlatform returns the entry of a list that matches a platform.
func choosePlatform(b []byte, want v1.Platform) (v1.Descriptor, error) {
	list, err := v1.ParseIndexManifest(bytes.NewReader(b))
	if err != nil {
		return v1.Descriptor{}, archiveError("its list of manifests is damaged").Because(err)
	}
	var available []string
	images := 0
	var only v1.Descriptor
	for _, d := range list.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() || checkDigest(d.Digest.String()) != nil {
			continue
		}
		switch {
		case d.Platform == nil:
			images, only = images+1, d
		case d.Platform.Satisfies(want):
			return d, nil
		case d.Platform.OS != "unknown": // attestations have this platform
			images = 2
			if s := clip(d.Platform.String()); len(available) < 50 && len(s) <= 80 && !slices.Contains(available, s) {
				available = append(available, s)
			}
		}
	}
	if images == 1 {
		return only, nil // its configuration determines the platform
	}
	return v1.Descriptor{}, platformError(want, available)
}

// platformError reports that an image does not support the requested platform.
func platformError(want v1.Platform, available []string) error {
	slices.Sort(available)
	list := strings.Join(available, ", ")
	if list == "" {
		list = "none"
	}
	return brig.InvalidField("platform", "there is no image for %s; there are: %s", want.String(), list).
		WithHint("choose another tag, or give the platform; only programs for %s run on this machine", thisPlatform())
}
