package e2e

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// tracesReceiver receives traces with OTLP over HTTP, like a collector.
type tracesReceiver struct {
	url string

	mu    sync.Mutex // guards the fields below
	spans []*tracepb.Span
	names []string // service names
}

func newTracesReceiver(t *testing.T) *tracesReceiver {
	t.Helper()
	c := &tracesReceiver{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &in)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Team") != "brig" {
			t.Errorf("%s %s: %v", r.URL.Path, r.Header, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, res := range in.GetResourceSpans() {
			for _, a := range res.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					c.names = append(c.names, a.GetValue().GetStringValue())
				}
			}
			for _, scope := range res.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

// trace waits until a trace has a span with the given name, and returns all
// spans of the trace.
func (c *tracesReceiver) trace(t *testing.T, id, last string) map[string]*tracepb.Span {
	t.Helper()
	deadline := time.Now().Add(promptTimeout)
	for {
		out := map[string]*tracepb.Span{}
		c.mu.Lock()
		for _, s := range c.spans {
			if hex.EncodeToString(s.GetTraceId()) == id {
				out[s.GetName()] = s
			}
		}
		c.mu.Unlock()
		if out[last] != nil {
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("no span %q in trace %s; there are %v", last, id, namesOf(out))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func namesOf(spans map[string]*tracepb.Span) (out []string) {
	for name := range spans {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if v := a.GetValue().GetStringValue(); v != "" {
				return v
			}
			return a.GetValue().String()
		}
	}
	return ""
}

// traced sends a request that is part of a trace.
func (s *server) traced(t *testing.T, parent, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	if parent != "" {
		req.Header.Set("Traceparent", parent)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// wantTree fails the test unless spans have the given parents, by name.
func wantTree(t *testing.T, spans map[string]*tracepb.Span, parents map[string]string, outside string) {
	t.Helper()
	for name, parent := range parents {
		s := spans[name]
		if s == nil {
			t.Errorf("no span %q; there are %v", name, namesOf(spans))
			continue
		}
		got := hex.EncodeToString(s.GetParentSpanId())
		want := outside
		if parent != "" {
			want = hex.EncodeToString(spans[parent].GetSpanId())
		}
		if got != want {
			t.Errorf("%q is not a part of %q", name, parent)
		}
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%q ends before it begins", name)
		}
	}
}

// TestRequestIsOneTrace verifies that a request is one trace, from the client's own span
// through API, engine, provider and guest, and that the trace contains no code,
// arguments or keys.
//
//suite:part core
func TestRequestIsOneTrace(t *testing.T) {
	c := newTracesReceiver(t)
	s := startServer(t, t.TempDir(), "--config", writeConfig(t, `
pool: {size: 1}
metrics: {trial: 0s}
otel: {endpoint: "`+c.url+`", headers: {X-Team: brig}, service: brig-test, sample: 0}
`))
	const parent = "00f067aa0ba902b7"
	for i, q := range []struct {
		id, path, body string
		last           string
		tree           map[string]string
	}{
		{"0af7651916cd43dd8448eb211c80319c", "/v1/run", `{"command":["echo","s3cr3t-argument"]}`, "discard", map[string]string{
			"POST /v1/run": "", "gate": "POST /v1/run", "obtain": "POST /v1/run", "claim": "obtain", "create": "obtain", "gvisor.boot": "create",
			"run": "POST /v1/run", "guest.exec": "run", "collect": "run", "guest.collect": "collect", "discard": "POST /v1/run",
		}},
		{"1af7651916cd43dd8448eb211c80319c", "/v1/run", `{"language":"python","code":"import os; os.makedirs('artifacts'); open('artifacts/a.csv','w').write('1'); print('s3cr3t-argument')"}`, "discard", map[string]string{
			"POST /v1/run": "", "gate": "POST /v1/run", "obtain": "POST /v1/run", "claim": "obtain", "bind": "obtain",
			"run": "POST /v1/run", "guest.program": "run", "collect": "run", "guest.collect": "collect", "discard": "POST /v1/run",
		}},
		{"2af7651916cd43dd8448eb211c80319c", "/v1/sandboxes", `{"name":"box"}`, "POST /v1/sandboxes", map[string]string{
			"POST /v1/sandboxes": "", "gate": "POST /v1/sandboxes", "obtain": "POST /v1/sandboxes", "claim": "obtain",
		}},
		{"3af7651916cd43dd8448eb211c80319c", "/v1/sandboxes/box/exec", `{"command":["true"]}`, "POST /v1/sandboxes/{name}/exec", map[string]string{
			"POST /v1/sandboxes/{name}/exec": "", "gate": "POST /v1/sandboxes/{name}/exec", "exec": "POST /v1/sandboxes/{name}/exec", "guest.exec": "exec",
		}},
		{"4af7651916cd43dd8448eb211c80319c", "/v1/sandboxes/box/code", `{"code":"1+1"}`, "POST /v1/sandboxes/{name}/code", map[string]string{
			"POST /v1/sandboxes/{name}/code": "", "code": "POST /v1/sandboxes/{name}/code", "guest.program": "code",
		}},
	} {
		if i == 1 { // use a sandbox that is ready in the pool
			s.awaitPool()
		}
		if status := s.traced(t, "00-"+q.id+"-"+parent+"-01", q.path, q.body); status/100 != 2 {
			t.Fatalf("%s: %d", q.path, status)
		}
		spans := c.trace(t, q.id, q.last)
		if q.last == "discard" {
			c.trace(t, q.id, "POST /v1/run")
		}
		wantTree(t, spans, q.tree, parent)
		root := spans["POST "+strings.Replace(q.path, "/box/", "/{name}/", 1)]
		if attribute(root, "http.route") == "" || attribute(root, "brig.request") == "" || !strings.Contains(attribute(root, "http.response.status_code"), "20") {
			t.Errorf("%s has the attributes %v", root.GetName(), root.GetAttributes())
		}
	}
	// The span of a failed request must contain the error's code, but no part of the request.
	const bad = "5af7651916cd43dd8448eb211c80319c"
	s.traced(t, "00-"+bad+"-"+parent+"-01", "/v1/sandboxes/s3cr3t-argument/exec", `{"command":["true"]}`)
	spans := c.trace(t, bad, "POST /v1/sandboxes/{name}/exec")
	if gate := spans["gate"]; gate.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || gate.GetStatus().GetMessage() != "SB013" {
		t.Errorf("the gate says %v", gate.GetStatus())
	}
	// With sample 0, the server traces only requests whose callers set the sampled flag.
	s.traced(t, "", "/v1/run", `{"command":["true"]}`)
	s.traced(t, "00-6af7651916cd43dd8448eb211c80319c-"+parent+"-00", "/v1/run", `{"command":["true"]}`)
	s.traced(t, "00-7af7651916cd43dd8448eb211c80319c-"+parent+"-01", "/v1/run", `{"command":["true"]}`)
	c.trace(t, "7af7651916cd43dd8448eb211c80319c", "discard")                   // earlier traces would have arrived before this trace
	if status, body := s.do("DELETE", "/v1/sandboxes/box", ""); status >= 300 { // otherwise the sandbox would outlive its server
		t.Errorf("DELETE: %d %s", status, body)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spans {
		switch id := hex.EncodeToString(sp.GetTraceId()); {
		case id[0] > '7' || id[1:] != "af7651916cd43dd8448eb211c80319c" || id[0] == '6':
			t.Errorf("a span %q of a trace that nobody asked for: %s", sp.GetName(), id)
		}
		if text := sp.String(); strings.Contains(text, "s3cr3t") || strings.Contains(text, s.key) {
			t.Errorf("a span tells too much: %s", text)
		}
	}
	if len(c.names) == 0 || c.names[0] != "brig-test" {
		t.Errorf("the service is %v", c.names)
	}
}

// awaitPool waits until the pool has a sandbox with a Python interpreter: a
// pooled sandbox for commands cannot run the program.
func (s *server) awaitPool() {
	s.t.Helper()
	for range 200 {
		if s.scrape().sum("brig_pool_ready", `language="python"`) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatal("no sandbox waits")
}
