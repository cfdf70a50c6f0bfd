package workspace_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig/workspace"
)

// TestCheckConditionalRejectsUnconditionalS3 checks that CheckConditional rejects a server
// that ignores If-None-Match. The control is a server that supports it.
func TestCheckConditionalRejectsUnconditionalS3(t *testing.T) {
	removed := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.Method {
		case http.MethodPut:
			w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
		case http.MethodDelete:
			removed++
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer srv.Close()
	o, err := workspace.OpenS3(t.Context(), workspace.S3Options{
		Endpoint: srv.Listener.Addr().String(), Insecure: true, Region: "x", Bucket: "bucket", AccessKey: "a", SecretKey: "s",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.CheckConditional(t.Context()); err == nil || !strings.Contains(err.Error(), "If-None-Match") || removed != 1 {
		t.Errorf("a server that overwrites: %v, %d objects removed", err, removed)
	}
	good, err := workspace.OpenS3(t.Context(), startGateway(t).o)
	if err != nil {
		t.Fatal(err)
	}
	if err := good.CheckConditional(t.Context()); err != nil || len(listKeys(t, good, "probe/")) != 0 {
		t.Errorf("a server that does not: %v", err)
	}
}
