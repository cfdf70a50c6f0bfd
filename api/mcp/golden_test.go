package mcp_test

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig/api/httpapi/transcript"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestResponsesMatchTranscripts replays client requests. A body "METHOD PARAMS" is an
// abbreviation for a request of the newest protocol version, including its
// headers.
func TestResponsesMatchTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Serve: func(t *testing.T) string {
			srv, _ := serve(t, newStub(), nil)
			return srv.URL
		},
		Do: func(t *testing.T, req *http.Request) (*http.Response, string) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := string(body)
			if method, params, _ := strings.Cut(text, " "); text != "" && !strings.ContainsAny(text[:1], "{[") {
				inner := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
				text = statelessRequest(method, inner)
				var p struct{ Name, URI string }
				if params != "" && json.Unmarshal([]byte(params), &p) != nil {
					t.Fatalf("%s is no JSON", params)
				}
				for k, v := range map[string]string{"Mcp-Protocol-Version": newest, "Mcp-Method": method, "Mcp-Name": p.Name + p.URI} {
					if v != "" && req.Header.Get(k) == "" {
						req.Header.Set(k, v)
					}
				}
			}
			for k, v := range map[string]string{"Authorization": "Bearer " + annsKey, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
				if _, present := req.Header[k]; !present {
					req.Header.Set(k, v)
				}
			}
			again, err := http.NewRequestWithContext(t.Context(), req.Method, req.URL.String(), strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			again.Header, again.Host = req.Header, req.Host
			resp, answer := transcript.Fetch(t, again)
			if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: headers %v", req.Method, req.URL, resp.Header)
			}
			return resp, answer
		},
		Headers: []string{"Allow", "Content-Type", "Retry-After", "Www-Authenticate"},
	})
}
