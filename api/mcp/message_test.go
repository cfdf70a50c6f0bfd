package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/mcp"
)

// The operation of a message is known only after the message has been read. Therefore, a caller
// that may not run code can send only a small body. A body with too many values, levels or
// messages is rejected before it is decoded.
func TestMessageSizeLimitDependsOnRole(t *testing.T) {
	srv, _ := serve(t, newStub(), func(o *mcp.Options) { o.Keys = transcript.RoleKeys{} })
	ping := func(padding int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"pad":"` + strings.Repeat("x", padding) + `"}}}`
	}
	values := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":[` + strings.Repeat("0,", 300_000) + `0]}}}`
	for what, c := range map[string]struct {
		role   brig.Role
		body   string
		status int // 0 if the protocol's handler responds
	}{
		"a viewer's small one":      {brig.Viewer, ping(10), 0},
		"a viewer's large one":      {brig.Viewer, ping(70_000), http.StatusRequestEntityTooLarge},
		"a member's large one":      {brig.Member, ping(70_000), 0},
		"a member's that is larger": {brig.Member, ping(17 << 20), http.StatusRequestEntityTooLarge},
		"too many values":           {brig.Member, values, http.StatusBadRequest},
		"too many levels":           {brig.Member, strings.Repeat("[", 200), http.StatusBadRequest},
		"too many messages":         {brig.Member, "[" + strings.Repeat(ping(0)+",", 64) + ping(0) + "]", http.StatusBadRequest},
	} {
		if status, body := post(t, srv.URL, "POST", transcript.KeyOf(c.role), "", "2026-07-28", c.body); status != c.status && (c.status != 0 || !strings.Contains(body, "jsonrpc")) {
			t.Errorf("%s: %d %.300s, want %d", what, status, body, c.status)
		}
	}
	w, read := transcript.SendLong(srv.Config.Handler, http.MethodPost, "http://127.0.0.1"+mcp.Path)
	if read || w.Code != http.StatusUnauthorized {
		t.Errorf("without a key: %d, the body was read: %v", w.Code, read)
	}
}
