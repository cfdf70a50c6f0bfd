package e2b_test

import (
	"flag"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

// timestamps matches the times in responses, which differ in every run.
var timestamps = regexp.MustCompile(`"timestamp":"20[0-9]{2}-[^"]*\+00:00"`)

// TestTranscripts replays recorded client requests. See package transcript.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Serve: func(t *testing.T) string {
			_, _, srv := serve(t)
			return srv.URL
		},
		Do:        func(t *testing.T, req *http.Request) (*http.Response, string) { return send(t, req) },
		Headers:   []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Allow", "Content-Type", "Retry-After", "X-Next-Token", "X-Total-Running"},
		Normalize: func(s string) string { return timestamps.ReplaceAllString(s, `"timestamp":"NOW"`) },
	})
}

// send sends a request with the test key, unless the request has its own key or
// an empty header.
func send(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	if _, given := req.Header["X-Api-Key"]; !given {
		req.Header.Set("X-API-KEY", key)
	}
	if req.ContentLength == 0 {
		req.Body = nil
	} else {
		req.ContentLength = -1 // the length is unknown, as in requests of E2B's clients
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, "\nbroken off"...)
	}
	return resp, string(b)
}
