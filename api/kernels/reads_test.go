package kernels_test

import (
	"net/http"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/kernels"
)

// The body of a request to create a kernel is read only after its sender has
// been authorized. No other route reads a body.
func TestRoutesAuthorizeBeforeReading(t *testing.T) {
	d := kernels.New(kernels.Options{Keys: transcript.RoleKeys{}, Hosts: []string{"example.com"}})
	defer d.Close()
	transcript.CheckAuthorization(t, d, []transcript.AuthorizedRequest{{Method: http.MethodPost, Path: "/api/kernels", Role: brig.Member}})
}
