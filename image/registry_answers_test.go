package image

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/brig-run/brig/internal/testenv"
)

// TestMemoryForRegistryResponsesIsLimited checks that endless responses of a registry use a bounded
// amount of memory in every call. The control is a client without limits.
func TestMemoryForRegistryResponsesIsLimited(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	manifest := `{"schemaVersion":2,"mediaType":"` + string(types.OCIManifestSchema1) + `","config":{"mediaType":"` + string(types.OCIConfigJSON) + `","size":5,"digest":"` + digest + `"},"layers":[]}`
	for title, c := range map[string]struct {
		part         string // of the path
		status       int
		first, again string
		header       string
		control      func(name.Reference) error
	}{
		"a manifest": {part: "/manifests/", status: 200, first: `{"schemaVersion":2,"a":"`, again: "x", control: func(r name.Reference) error { _, err := remote.Get(r); return err }},
		"many layers": {part: "/manifests/", status: 200, first: `{"schemaVersion":2,"mediaType":"` + string(types.OCIManifestSchema1) + `","layers":[{}`, again: ",{}", control: func(r name.Reference) error {
			img, err := remote.Image(r)
			if err == nil {
				_, err = img.Layers()
			}
			return err
		}},
		"the welcome": {part: "/v2/", status: 401, first: "", again: "x"},
		// The limit of the client library.
		"a refused manifest": {part: "/manifests/", status: 500, first: "", again: "x"},
		"a refused blob":     {part: "/blobs/", status: 403, first: "", again: "x"},
		"a configuration":    {part: "/blobs/", status: 200, first: `{"a":"`, again: "x"},
	} {
		t.Run(title, func(t *testing.T) {
			a, h := newArena(t), newHub(t)
			h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case strings.Contains(r.URL.Path, c.part) && (c.part != "/v2/" || r.URL.Path == "/v2/"):
					w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
					w.WriteHeader(c.status)
					testenv.WriteEndless(w, c.first, c.again, 192<<20)
				case strings.Contains(r.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
					_, _ = w.Write([]byte(manifest))
				default:
					return false
				}
				return true
			})
			ref, err := name.ParseReference(h.host + "/x:1")
			if err != nil {
				t.Fatal(err)
			}
			var open func() error
			if c.control != nil {
				open = func() error { return c.control(ref) }
			}
			testenv.CheckEndlessResponse(t, 96<<20, func() error { _, err := a.pull(t, ref.String()); return err }, open)
		})
	}
}
