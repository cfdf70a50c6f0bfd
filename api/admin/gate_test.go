package admin

import (
	"strings"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
)

// No route reads a body before its sender has been authorized.
func TestRoutesAuthorizeBeforeReading(t *testing.T) {
	var all []transcript.AuthorizedRequest
	for prefix, d := range map[string]dialect{shippedPrefix: &shipped{}, specPrefix: &spec{}} {
		for _, rt := range d.routes() {
			all = append(all, transcript.AuthorizedRequest{Method: rt.method, Path: prefix + strings.Replace(rt.path, "{id}", "x", 1), Role: rt.op.Role})
		}
	}
	transcript.CheckAuthorization(t, New(Options{Keys: transcript.RoleKeys{}, Hosts: []string{"example.com"}}), all)
}
