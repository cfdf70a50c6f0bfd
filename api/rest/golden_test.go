package rest_test

import (
	"flag"
	"net/http"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestTranscripts replays recorded client requests. See package transcript.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Serve: func(t *testing.T) string {
			_, srv := serve(t)
			return srv.URL
		},
		Do: func(t *testing.T, req *http.Request) (*http.Response, string) {
			if _, present := req.Header["Authorization"]; !present {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			resp, body := transcript.Fetch(t, req)
			if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: headers %v", req.Method, req.URL, resp.Header)
			}
			return resp, body
		},
		Headers: []string{"Allow", "Content-Type", "Location", "Retry-After", "Www-Authenticate"},
	})
}
