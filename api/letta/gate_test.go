package letta

import (
	"strings"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
)

// No route reads a body before its sender has been authorized.
func TestRoutesAuthorizeBeforeReading(t *testing.T) {
	const id = "123e4567-e89b-42d3-8456-426614174000"
	d := New(Options{Keys: transcript.RoleKeys{}, Hosts: []string{"example.com"}})
	var all []transcript.AuthorizedRequest
	for _, rt := range d.routes() {
		path := strings.NewReplacer("{config}", id, "{variable}", id, "{agent_id}", "a", "{tool_name}", "t").Replace(rt.path)
		all = append(all, transcript.AuthorizedRequest{Method: rt.method, Path: path, Role: rt.op.Role})
	}
	transcript.CheckAuthorization(t, d, all)
}
