package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/mcp"
)

const (
	testTimeout = 5 * time.Second
	newest      = "2026-07-28"
)

// receive receives from a channel and fails the test after a timeout.
func receive[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(testTimeout):
		t.Fatalf("%s does not come", what)
	}
	return v
}

func callParams(v any) *sdk.CallToolParams {
	return &sdk.CallToolParams{Name: "run_code", Arguments: v}
}

func blockingCall() *sdk.CallToolParams { return callParams(map[string]any{"code": "wait"}) }

// In both kinds of protocol, a call belongs to its caller. The call ends when the caller
// cancels it or disconnects, and the client can make other calls afterwards.
func TestCanceledCallEnds(t *testing.T) {
	for _, old := range []bool{true, false} {
		for _, how := range []string{"cancelled", "gone", "revoked"} {
			t.Run(fmt.Sprintf("%s old %v", how, old), func(t *testing.T) {
				s := newStub()
				srv, keys := serve(t, s, nil)
				c := connect(t, srv.URL, annsKey, old)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				over := make(chan bool, 1)
				go func() { res, err := c.CallTool(ctx, blockingCall()); over <- err == nil && !res.IsError }()
				if caller := receive(t, s.begun, "its begin"); caller != "ann" {
					t.Errorf("it is called as %q", caller)
				}
				switch how {
				case "cancelled":
					cancel()
				case "gone":
					srv.CloseClientConnections()
				case "revoked":
					keys.revoked.Store(true)
				}
				receive(t, s.ended, "its end")
				if receive(t, over, "its answer") {
					t.Error("it was answered as if nothing had been")
				}
				if how != "cancelled" {
					return
				}
				if _, err := c.CallTool(t.Context(), callParams(map[string]any{"code": "1"})); err != nil {
					t.Errorf("the client goes on: %v", err)
				}
			})
		}
	}
}

// A session uses the sandboxes of its calls until the session or its credential ends. Control:
// another session with its own sandbox continues.
func TestSessionKeepsItsSandboxesInUse(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, url, session string, k *keys){
		"ended": func(t *testing.T, url, session string, _ *keys) {
			if code, _ := post(t, url, http.MethodDelete, annsKey, session, "", ""); code != http.StatusNoContent {
				t.Errorf("it is ended with %d", code)
			}
		},
		"revoked": func(_ *testing.T, _, _ string, k *keys) { k.revoked.Store(true) },
	} {
		t.Run(how, func(t *testing.T) {
			s, control := newStub(), newStub()
			srv, k := serve(t, s, nil)
			other, _ := serve(t, control, nil)
			c := connect(t, srv.URL, annsKey, true)
			for _, c := range []*sdk.ClientSession{c, connect(t, other.URL, annsKey, true)} {
				for range 2 {
					if r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "create_sandbox", Arguments: map[string]any{}}); err != nil || r.IsError {
						t.Fatalf("%+v, %v", r, err)
					}
				}
			}
			select {
			case <-s.released:
				t.Error("the session holds nothing after its call")
			default:
			}
			end(t, srv.URL, c.ID(), k)
			receive(t, s.released, "the end of its use")
			select {
			case <-control.released:
				t.Error("control: another session holds nothing any more")
			default:
			}
		})
	}
}

// When a session ends, its calls end.
func TestSessionEndStopsCalls(t *testing.T) {
	s := newStub()
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, true)
	go func() { _, _ = c.CallTool(t.Context(), blockingCall()) }()
	receive(t, s.begun, "its begin")
	code, _ := post(t, srv.URL, http.MethodDelete, annsKey, c.ID(), "", "")
	if code != http.StatusNoContent {
		t.Errorf("it is ended with %d", code)
	}
	receive(t, s.ended, "its end")
	if code, body := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "", list); code != http.StatusNotFound {
		t.Errorf("it is still there: %d %s", code, body)
	}
}

const list = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`

// post sends one request and returns the status and the body of the response.
func post(t *testing.T, url, method, key, session, version, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+mcp.Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": version} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, body := transcript.Fetch(t, req)
	return resp.StatusCode, body
}

// A session belongs to its owner. For every other caller of any tenant, the
// session does not exist. Control: the owner can use it.
func TestSessionBelongsToOwner(t *testing.T) {
	srv, _ := serve(t, newStub(), nil)
	c := connect(t, srv.URL, annsKey, true)
	never := strings.Repeat("A", len(c.ID()))
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for _, key := range []string{bobsKey, rivalKey} {
			code, body := post(t, srv.URL, method, key, c.ID(), "2025-11-25", list)
			was, none := post(t, srv.URL, method, key, never, "2025-11-25", list)
			if code != http.StatusNotFound || code != was || body != none {
				t.Errorf("%s: %d %s, and what never was %d %s", method, code, body, was, none)
			}
		}
	}
	if code, body := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "2025-11-25", list); code != http.StatusOK || !strings.Contains(body, "run_code") {
		t.Errorf("the owner received %d %s", code, body)
	}
}

// Requests without a key, from another site or for a foreign host name are
// rejected.
func TestRejectsUnauthorizedRequests(t *testing.T) {
	srv, _ := serve(t, newStub(), func(o *mcp.Options) { o.Hosts = []string{"brig.example"} })
	for name, c := range map[string]struct {
		set  func(*http.Request)
		want int
	}{
		"a key":             {func(*http.Request) {}, 200},
		"no key":            {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"a wrong key":       {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+annsKey[:49]+"x") }, 401},
		"a rebound name":    {func(r *http.Request) { r.Host = "evil.example" }, 421},
		"another page":      {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"a page, by fetch":  {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a name of ours":    {func(r *http.Request) { r.Host = "brig.example" }, 200},
		"our page":          {func(r *http.Request) { r.Header.Set("Origin", "http://"+r.Host) }, 200},
		"a form":            {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"a forged visit":    {func(r *http.Request) { r.Header.Set("Brig-Visit", "x") }, 200},
		"an unheard method": {func(r *http.Request) { r.Method = http.MethodPut }, 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+mcp.Path, strings.NewReader(statelessRequest("tools/list", "")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Protocol-Version", newest)
		req.Header.Set("Mcp-Method", "tools/list")
		req.Header.Set("Authorization", "Bearer "+annsKey)
		req.Host = strings.TrimPrefix(srv.URL, "http://")
		c.set(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
}

// statelessRequest returns a request of the newest protocol version.
func statelessRequest(method, params string) string {
	if params != "" {
		params = "," + params
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}%s}}`, method, newest, params)
}

// The number of sessions is limited per tenant and per key. A new session replaces the least
// recently used session of its own key, unless all sessions of the key are busy. It never
// replaces a session of a key with fewer sessions. Another tenant has its own limit.
func TestNumberOfSessionsIsLimited(t *testing.T) {
	s := newStub()
	srv, _ := serve(t, s, func(o *mcp.Options) { o.Sessions = 4 })
	bobs := connect(t, srv.URL, bobsKey, true) // the least recently used session
	first, second := connect(t, srv.URL, annsKey, true), connect(t, srv.URL, annsKey, true)
	alive := func(c *sdk.ClientSession, key string) bool {
		code, _ := post(t, srv.URL, http.MethodPost, key, c.ID(), "2025-11-25", list)
		return code == http.StatusOK
	}
	if !alive(first, annsKey) {
		t.Fatal("the first session has ended")
	}
	third := connect(t, srv.URL, annsKey, true)
	if alive(second, annsKey) || !alive(first, annsKey) || !alive(third, annsKey) {
		t.Error("another session than the holder's least recently used one has ended")
	}
	if !alive(bobs, bobsKey) {
		t.Error("another holder's session has ended")
	}
	for _, c := range []*sdk.ClientSession{first, third} {
		go func() { _, _ = c.CallTool(t.Context(), blockingCall()) }()
		receive(t, s.begun, "a call's begin")
	}
	_, body := post(t, srv.URL, http.MethodPost, annsKey, "", "2025-11-25", initialize)
	if !strings.Contains(body, "SB008") {
		t.Errorf("one session too many is answered with %s", body)
	}
	if more := connect(t, srv.URL, bobsKey, true); !alive(more, bobsKey) || !alive(bobs, bobsKey) {
		t.Error("another holder cannot begin one")
	}
	if rival := connect(t, srv.URL, rivalKey, true); !alive(rival, rivalKey) {
		t.Error("another tenant cannot begin one")
	}
	close(s.release)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// An unused session ends automatically.
func TestIdleSessionEnds(t *testing.T) {
	srv, _ := serve(t, newStub(), func(o *mcp.Options) { o.Idle = 50 * time.Millisecond })
	c := connect(t, srv.URL, annsKey, true)
	for end := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		if code, _ := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "2025-11-25", list); code == http.StatusNotFound {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it is still there")
		}
	}
}

// The concurrent calls of a session are limited, even within a batch.
func TestConcurrentCallsAreLimited(t *testing.T) {
	s := newStub()
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, true)
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"wait"}}}`, i+10))
	}
	done := make(chan string, 1)
	go func() {
		_, body := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "2025-03-26", "["+strings.Join(all, ",")+"]")
		done <- body
	}()
	for range 32 {
		receive(t, s.begun, "one that may")
	}
	select {
	case <-s.begun:
		t.Error("more than may go on at once")
	case <-time.After(200 * time.Millisecond):
	}
	close(s.release)
	if body := receive(t, done, "the answers"); strings.Count(body, "SB008") < 8 {
		t.Errorf("the calls beyond the limit received %s", body)
	}
}

// A session can be initialized only once. A second initialize does not change the count of the
// session's calls, and the calls end with the session.
func TestSecondInitializeIsRejected(t *testing.T) {
	s := newStub()
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, true)
	over := make(chan bool, 1)
	go func() { res, err := c.CallTool(t.Context(), blockingCall()); over <- err == nil && !res.IsError }()
	receive(t, s.begun, "its begin")
	again := `{"jsonrpc":"2.0","id":"again","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	if _, body := post(t, srv.URL, http.MethodPost, annsKey, c.ID(), "2025-11-25", again); !strings.Contains(body, `"error"`) {
		t.Errorf("it begins once more: %s", body)
	}
	if code, body := post(t, srv.URL, http.MethodDelete, annsKey, c.ID(), "2025-11-25", ""); code >= 300 {
		t.Errorf("%d %s", code, body)
	}
	if receive(t, over, "the end of the call") {
		t.Error("a call of a session that has ended came to something")
	}
}

// A handler that panics sends one error response and does not stop the server.
func TestPanicSendsOneErrorResponse(t *testing.T) {
	srv, _ := serve(t, newStub(), nil)
	for _, old := range []bool{true, false} {
		c := connect(t, srv.URL, annsKey, old)
		if _, err := c.CallTool(t.Context(), callParams(map[string]any{"code": "panic"})); err == nil || !strings.Contains(err.Error(), "internal error") || strings.Contains(err.Error(), "a panic") {
			t.Errorf("error: %v", err)
		}
		if _, err := c.CallTool(t.Context(), callParams(map[string]any{"code": "1"})); err != nil {
			t.Errorf("afterwards %v", err)
		}
	}
}

// A client that requests progress receives notifications with increasing times.
func TestProgressIsReportedOnRequest(t *testing.T) {
	srv, _ := serve(t, newStub(), nil)
	var mu sync.Mutex
	var progress []*sdk.ProgressNotificationParams
	c := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			progress = append(progress, r.Params)
		},
	})
	cs, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: srv.URL + mcp.Path, HTTPClient: &http.Client{Transport: withKey(annsKey)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	p := callParams(map[string]any{"code": "talk"})
	p.SetProgressToken("token")
	if _, err := cs.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(progress) < 2 {
		t.Fatalf("got %d notifications", len(progress))
	}
	for i, p := range progress {
		if p.ProgressToken != "token" || !strings.HasPrefix(p.Message, "said\n") || i > 0 && p.Progress <= progress[i-1].Progress {
			t.Errorf("unexpected notification %+v", p)
		}
	}
}

// A pair of streams serves one client. When the client's stream ends, its calls end.
func TestCallsEndWithStream(t *testing.T) {
	s := newStub()
	in, write := io.Pipe()
	read, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(t.Context(), mcp.Options{Service: s, Version: "1"}, in, out) }()
	c := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: read, Writer: write}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := cs.CallTool(t.Context(), callParams(map[string]any{"code": "1"}))
	if err != nil || !strings.Contains(fmt.Sprint(res.StructuredContent), "python for ") {
		t.Errorf("%v, %v", res, err)
	}
	go func() { _, _ = cs.CallTool(t.Context(), blockingCall()) }()
	receive(t, s.begun, "its begin")
	write.Close()
	receive(t, s.ended, "its end")
	if err := receive(t, served, "the end"); err != nil {
		t.Error(err)
	}
}

// An invalid line gets an error response, and the following lines are served.
func TestServeContinuesAfterInvalidLine(t *testing.T) {
	in, write := io.Pipe()
	read, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(t.Context(), mcp.Options{Service: newStub(), Version: "1"}, in, out) }()
	answers := bufio.NewScanner(read)
	for _, c := range []struct{ line, want string }{
		{"nonsense", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"{", `"code":-32700,`},
		{"\n \r\n5", `"code":-32600,`},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"code":-32600,`},
		{"[]", `"code":-32600,`},
		{"[7]", `"code":-32600,`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} x`, `"code":-32700,`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, `"code":-32700,`},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}`, `"id":1,"result":`},
		{strings.Repeat("x", 1<<20), `"code":-32700,`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"code":-32600,`}, // this version has no batches
		{`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `"id":2,"result":`},
	} {
		if _, err := io.WriteString(write, c.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() || !strings.Contains(answers.Text(), c.want) {
			t.Fatalf("%.80q is answered with %q", c.line, answers.Text())
		}
	}
	write.Close()
	if err := receive(t, served, "the end"); err != nil {
		t.Error(err)
	}
}

// A batch is forwarded unchanged and answered in one line.
func TestBatchIsAnsweredInOneLine(t *testing.T) {
	const file = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
[{"jsonrpc":"2.0","id":"first","method":"ping"},{"jsonrpc":"2.0","id":"second","method":"tools/list"}]
{"jsonrpc":"2.0","id":"last","method":"ping"}`
	read, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- mcp.Serve(t.Context(), mcp.Options{Service: newStub(), Version: "1"}, io.NopCloser(strings.NewReader(file)), out)
		out.Close()
	}()
	output, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"first", "second", "last"} {
		if !strings.Contains(string(output), `"id":"`+id+`","result":`) {
			t.Errorf("%s is not answered:\n%.500s", id, output)
		}
	}
	if err := receive(t, served, "the end"); err != nil {
		t.Error(err)
	}
}

// Requests immediately before the end of a stream are answered.
func TestServeRespondsBeforeEOF(t *testing.T) {
	file := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"list","method":"tools/list"}
{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"run_code","arguments":{"code":"1"}}}
{"jsonrpc":"2.0","id":"last","method":"ping"}`
	read, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- mcp.Serve(t.Context(), mcp.Options{Service: newStub(), Version: "1"}, io.NopCloser(strings.NewReader(file)), out)
		out.Close()
	}()
	output, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{`1`, `"list"`, `"call"`, `"last"`} {
		if !strings.Contains(string(output), `"id":`+id+`,"result":`) {
			t.Errorf("%s is not answered:\n%.500s", id, output)
		}
	}
	if err := receive(t, served, "the end"); err != nil {
		t.Error(err)
	}
}

// When the server shuts down, the calls on its streams end.
func TestShutdownEndsCallsOfStreams(t *testing.T) {
	s := newStub()
	in, write := io.Pipe()
	read, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(ctx, mcp.Options{Service: s, Version: "1"}, in, out) }()
	c := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: read, Writer: write}, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = cs.CallTool(t.Context(), blockingCall()) }()
	receive(t, s.begun, "its begin")
	cancel()
	receive(t, s.ended, "its end")
	if err := receive(t, served, "the end"); err != nil {
		t.Error(err)
	}
}

// The length of a message is limited.
func TestMessageSizeIsLimited(t *testing.T) {
	srv, _ := serve(t, newStub(), nil)
	long := strings.Repeat("x", 16<<20)
	code, body := post(t, srv.URL, http.MethodPost, annsKey, "", newest, statelessRequest("tools/call", fmt.Sprintf(`"name":"run_code","arguments":{"code":%q}`, long)))
	if code != http.StatusRequestEntityTooLarge || !strings.Contains(body, "SB010") {
		t.Errorf("%d %.200s", code, body)
	}
}

// FuzzMessage verifies that the server responds to every input and keeps running.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		initialize, "[" + initialize + "," + list + "]", list, statelessRequest("tools/list", ""), statelessRequest("tools/call", `"name":"run_code","arguments":{"code":"1"}`),
		statelessRequest("tools/call", `"name":"run_code","arguments":{"code":7,"code":8}`), statelessRequest("tools/call", `"name":"read_file","arguments":{"sandbox":"box","path":"/workspace/a.txt","offset":-1}`),
		statelessRequest("resources/read", `"uri":"brig://sandboxes/box/files/workspace/a%20b%25.bin"`), statelessRequest("resources/read", `"uri":"x:\u0001"`), statelessRequest("resources/read", `"uri":"brig://sandboxes/\"/log"`),
		statelessRequest("tools/call", `"name":"http_request","arguments":{"sandbox":"box","port":80,"path":"/x?y","headers":{"A b":"c"}}`),
		statelessRequest("tools/call", `"name":"nothing"`), `[]`, `[[]]`, `null`, `{"jsonrpc":"2.0","id":{},"method":1}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, "",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	s := newStub()
	close(s.release)
	d, err := mcp.New(f.Context(), mcp.Options{Service: s, Keys: &keys{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, old bool) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+mcp.Path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+annsKey)
		if !old {
			// Headers repeat some values for proxies and must match the body.
			var m struct {
				Method string
				Params struct{ Name, URI string }
			}
			_ = json.Unmarshal(body, &m)
			r.Header.Set("Mcp-Protocol-Version", newest)
			r.Header.Set("Mcp-Method", m.Method)
			r.Header.Set("Mcp-Name", m.Params.Name+m.Params.URI)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if ctx.Err() != nil {
			t.Fatalf("%q is not answered", body)
		}
		if w.Code == 0 || w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
