package rest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

var seeds = []struct{ path, kind, body string }{
	{"/v1/run", "application/json", `{"language":"python","code":"print(1)","arguments":{"a":[1,{"b":null}]},"env":{"K":"v"},"files":[{"path":"a","content":"x","mode":"0644"}],"limits":{"memory":"64MiB","cpus":0.5,"processes":32},"timeout_ms":1000,"labels":{"a":"b"},"stdin":"x","stream":false}`},
	{"/v1/run", "application/json", `{"command":["echo","a"],"files":{"a":"b"},"stdin_b64":"aGk=","stream":true}`},
	{"/v1/sandboxes", "application/json", `{"name":"web","image":"host","shell":"true","env":{"A":"b"},"labels":{"x":"y"},"limits":{"disk":1073741824,"open_files":64,"output":"1MiB"},"ttl_ms":60000,"user":"root","cwd":"/"}`},
	{"/v1/sandboxes/box/exec", "application/json", `{"command":["echo","hi"],"env":{"A":"b"},"timeout_ms":50,"survive":true}`},
	{"/v1/sandboxes/box/exec", "application/x-ndjson", "{\"command\":[\"cat\"]}\n{\"stdin\":\"a\"}\n{\"stdin_b64\":\"YQ==\"}\n{\"close_stdin\":true}\n"},
	{"/v1/sandboxes/box/stop", "application/json", `{"grace_ms":100}`},
	{"/v1/sandboxes/box/kill", "application/json", `{}`},
	{"/v1/sandboxes/box/extend", "application/json", `{"ttl_ms":1000}`},
	{"/v1/images/build", "application/json", `{"name":"py","packages":["python3"],"suite":"bookworm"}`},
	{"/v1/images/import?name=box", "application/x-tar", "not a tar"},
	{"/v1/sandboxes?label=a=b&state=running&limit=10&cursor=x", "", ""},
	{"/v1/sandboxes/box/logs?tail=5", "", ""},
	{"/v1/sandboxes/box/files/mkdir", "application/json", `{"path":"/w/d","user":"root"}`},
	{"/v1/sandboxes/box/files/move", "application/json", `{"from":"/w/a","to":"/w/b"}`},
	{"/v1/sandboxes/box/files/compose", "application/json", `{"source_paths":["/w/a","/w/b"],"destination":"/w/c"}`},
	{"/v1/sandboxes/box/files?path=/w&depth=2", "", ""},
	{"/v1/sandboxes/box/files/content?path=/w/f&offset=3&length=4", "", ""},
	{"/v1/sandboxes/box/files/watch?path=/w&recursive=true", "", ""},
	{"/v1/sandboxes/box/processes", "application/json", `{"command":["a"],"terminal":{"columns":80,"rows":24},"no_input":true,"tag":"t"}`},
	{"/v1/sandboxes/box/processes/7/output?offset=-1", "", ""},
	{"/v1/sandboxes/box/processes/7/input", "application/json", `{"data":"x"}`},
	{"/v1/sandboxes/box/processes/7/resize", "application/json", `{"columns":80,"rows":24}`},
	{"/v1/sandboxes/box/processes/7/signal", "application/json", `{"signal":"SIGTERM"}`},
	{"/v1/sandboxes/box/ports/7", "", ""},
	{"/v1/images/sha256:aa", "", ""},
}

var fragments = []string{
	`{`, `}`, `[`, `]`, `"`, `,`, `:`, `null`, `true`, `-1`, `1e999`, `NaN`, `99999999999999999999`, `-9223372036854775808`, `1.5`,
	`"\ud800"`, "\xff", "\x00", `\u0000`, `"a":1,"a":2`, `"imagee":1,`, `{"a":{"a":{"a":`, strings.Repeat("[", 100), strings.Repeat("9", 400),
	"\n", "\r\n", "../", "%2e%2e", "%00", "%zz", ";", "&", "=", "?", "#", "é", strings.Repeat("A", 300), "timeout_ms", "wait ",
}

// mutate changes s at random positions.
func mutate(r *rand.Rand, s string) string {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(s) + 1)
		end := min(len(s), at+r.IntN(6))
		switch r.IntN(4) {
		case 0:
			s = s[:at] + fragments[r.IntN(len(fragments))] + s[end:]
		case 1:
			s = s[:at] + fragments[r.IntN(len(fragments))] + s[at:]
		case 2:
			s = s[:at] + s[end:]
		default:
			s = s[:at] + string([]byte{byte(r.IntN(256))}) + s[end:]
		}
	}
	return s
}

// TestMalformed sends 10,000 randomly invalid requests. No request may cause a server error or
// leave a goroutine behind, and every rejection must have the API's format.
func TestMalformed(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 requests")
	}
	s, srv := serve(t)
	go func() { // drain the errors of "wait" and "flood"
		for range s.ended {
		}
	}()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 10 * time.Second}
	before := runtime.NumGoroutine()
	var counts [6]atomic.Int64
	var wg sync.WaitGroup
	const workers, each = 8, 1250
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 42))
			for range each {
				req, about := malformedRequest(r, srv.URL)
				if req == nil {
					continue
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("%s: %v", about, err)
					continue
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				counts[resp.StatusCode/100].Add(1)
				if reason := invalidResponse(resp, body); err != nil || reason != "" {
					t.Errorf("%s: %d %s %v: %s", about, resp.StatusCode, body, err, reason)
				}
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
	for _, seed := range seeds {
		attack.RecordCase("API-06", fmt.Sprintf("%s, mangled some 400 times: %.100s", seed.path, seed.body), t.Failed())
	}
	t.Logf("%d good, %d refused", counts[2].Load(), counts[4].Load())
	if counts[4].Load() < 5000 {
		t.Error("too few requests were wrong to mean anything")
	}
	for deadline := time.Now().Add(testTimeout); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// TestMalformedDetectsPoorValidation verifies that the checks of TestMalformed detect a server
// with poor validation, both by its server errors and by responses in another format.
func TestMalformedDetectsPoorValidation(t *testing.T) {
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		switch err := json.NewDecoder(r.Body).Decode(&v); {
		case err != nil && r.ContentLength%2 == 0:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	defer careless.Close()
	r, seen := rand.New(rand.NewPCG(1, 42)), map[string]bool{}
	for range 300 {
		req, _ := malformedRequest(r, careless.URL)
		if req == nil {
			continue
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		seen[invalidResponse(resp, body)] = true
	}
	for _, why := range []string{"the server's own fault", "not our shape"} {
		if !seen[why] {
			t.Errorf("%q is never seen", why)
		}
		attack.RecordMutant("API-06", why, "strict decoding", seen[why])
	}
}

// invalidResponse returns the faults of a response to an invalid request.
func invalidResponse(resp *http.Response, body []byte) string {
	switch {
	case resp.StatusCode >= 500:
		return "the server's own fault"
	case resp.StatusCode >= 400 && resp.Request.Method != http.MethodHead && !hasErrorFormat(body):
		return "not our shape"
	}
	return ""
}

// hasErrorFormat reports whether an error response has the API's format, or is
// net/http's own response to invalid HTTP.
func hasErrorFormat(body []byte) bool {
	if strings.HasPrefix(string(body), "400 Bad Request") {
		return true
	}
	var v struct {
		Error *struct{ Code, Kind, Message string }
	}
	return json.Unmarshal(body, &v) == nil && v.Error != nil && v.Error.Code != "" && v.Error.Kind != "" && v.Error.Message != ""
}

// malformedRequest creates a request. It returns nil if Go's client would not send it.
func malformedRequest(r *rand.Rand, base string) (*http.Request, string) {
	seed := seeds[r.IntN(len(seeds))]
	method, path, body := "POST", seed.path, seed.body
	if seed.kind == "" {
		method = "GET"
	}
	if r.IntN(8) == 0 {
		path = "/" + mutate(r, path[1:])
	}
	if r.IntN(20) == 0 {
		method = []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"}[r.IntN(7)]
	}
	if body != "" && r.IntN(10) != 0 {
		body = mutate(r, body)
	}
	about := fmt.Sprintf("%s %q %q", method, path, body)
	req, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		return nil, about
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if seed.kind != "" {
		req.Header.Set("Content-Type", seed.kind)
	}
	switch r.IntN(30) {
	case 0:
		req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", r.IntN(400)))
	case 1:
		req.Header.Set("Content-Type", fragments[r.IntN(8)])
	case 2:
		req.Header.Set("Accept", []string{"*/*", "application/x-ndjson", "text/event-stream", ";;", "text/"}[r.IntN(5)])
	case 3:
		req.Host = []string{"evil.test", "[::1", "localhost:x:y", "a b", ""}[r.IntN(5)]
	case 4:
		req.Header.Set("Origin", "http://evil.test")
	case 5:
		req.ContentLength = -1
	}
	return req, about
}
