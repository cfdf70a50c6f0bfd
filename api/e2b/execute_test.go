package e2b_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// run starts code and returns the response. The caller must read the body.
func run(t *testing.T, ctx context.Context, url, code string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/execute", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"E2b-Sandbox-Id": "sb1", "E2b-Sandbox-Port": "49999", "X-Access-Token": token1} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A stream sends keepalives, even before the code begins to run.
func TestKeepalive(t *testing.T) {
	s, d, srv := serve(t)
	d.SetKeepaliveInterval(10 * time.Millisecond)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	var kinds []string
	begun := false
	for sc := bufio.NewScanner(run(t, t.Context(), srv.URL, "queue").Body); sc.Scan(); {
		_, rest, _ := strings.Cut(sc.Text(), `{"type":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		kinds = append(kinds, kind)
		if n := len(kinds); kind == "keepalive" && (n == 1 || !begun && kinds[n-2] == "number_of_executions") {
			begun = n > 1
			s.proceed <- struct{}{}
		}
	}
	if all := strings.Join(kinds, " "); kinds[0] != "keepalive" || !strings.Contains(all, "number_of_executions keepalive") || !strings.HasSuffix(all, "end_of_execution") {
		t.Errorf("%s", all)
	}
}

// The server sends the response header before the code begins to run, because clients time out
// if they receive no header. If the sandbox is killed while the code waits, the server aborts
// the response to report the kill to the client.
func TestHeaderPrecedesExecution(t *testing.T) {
	s, d, srv := serve(t)
	d.SetKeepaliveInterval(time.Hour)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	resp := run(t, t.Context(), srv.URL, "stuck") // this code never begins to run
	<-s.ended
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	s.end("sb1")
	if b, err := io.ReadAll(resp.Body); err == nil || len(b) > 0 {
		t.Errorf("after the kill: %q, %v", b, err)
	}
}

// If the sandbox ends while code runs, the client receives the output of the code and then
// loses the connection, or gets status 502 if the response had not begun. A stream with a
// normal end would indicate that the code had finished.
func TestSandboxEndAbortsExecution(t *testing.T) {
	_, d, srv := serve(t)
	d.SetFlushDelay(time.Hour)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	if resp := run(t, t.Context(), srv.URL, "expired early"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("before the first event: %s", resp.Status)
	}
	b, err := io.ReadAll(run(t, t.Context(), srv.URL, "expired").Body)
	if got := string(b); err == nil || !strings.Contains(got, "so far") || strings.Contains(got, `"error"`) || strings.Contains(got, "end_of_execution") {
		t.Errorf("%s %v", got, err)
	}
}

// Output is sent while the code runs. Writes in short succession are combined into one message.
func TestOutputIsBuffered(t *testing.T) {
	_, d, srv := serve(t)
	d.SetFlushDelay(100 * time.Millisecond)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := ""
	for sc := bufio.NewScanner(run(t, ctx, srv.URL, "talk").Body); !strings.Contains(said, "two") && sc.Scan(); {
		said += sc.Text()
	}
	if !strings.Contains(said, `"one\ntwo\n"`) {
		t.Errorf("%s", said)
	}
}

// Code is interrupted when the client disconnects.
func TestDisconnectInterruptsCode(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	for _, code := range []string{"wait", "flood"} {
		ctx, cancel := context.WithCancel(t.Context())
		resp := run(t, ctx, srv.URL, code)
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); !strings.Contains(line, "number_of_executions") {
			t.Errorf("%q %v", line, err)
		}
		cancel()
		select {
		case err := <-s.ended:
			if err == nil {
				t.Errorf("%s: ended without an error", code)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was not interrupted", code)
		}
	}
}

// Code without a context runs in the user's home directory, with the sandbox's ID in its
// environment. A server uses the context that another server created.
func TestDefaultContexts(t *testing.T) {
	s, d, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	for range 2 {
		run(t, t.Context(), srv.URL, "x")
	}
	other := httptest.NewServer(e2b.New(d.Options)) // represents the server after a restart
	defer other.Close()
	run(t, t.Context(), other.URL, "x")
	all, err := s.Contexts(t.Context(), "sb1")
	if err != nil || len(all) != 1 || all[0].Spec.Dir != "/home/user" || all[0].Spec.Env["E2B_SANDBOX_ID"] != "sb1" {
		t.Errorf("%v %+v", err, all)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.codes {
		if c.Context != "cx1" || c.Language != "" || c.Timeout != brig.DefaultLimitRange().MaxTimeout {
			t.Errorf("%+v", c)
		}
	}
}

// If the sandbox's image lacks a language, both routes respond with the status of E2B's server,
// even if the check takes long. Control: a language that the image contains.
func TestUnknownLanguage(t *testing.T) {
	s, d, srv := serve(t)
	s.slow = 400 * time.Millisecond // longer than the time until the header of running code
	d.SetKeepaliveInterval(10 * time.Millisecond)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	for language, want := range map[string]int{"cobol": http.StatusInternalServerError, "no language": http.StatusInternalServerError, "python": http.StatusOK} {
		for _, path := range []string{"/execute", "/contexts"} {
			resp, body := doRequest(t, http.MethodPost, srv.URL+path, `{"code":"1","language":"`+language+`"}`,
				"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49999", "X-Access-Token", token1)
			if resp.StatusCode != want || want != http.StatusOK && !strings.Contains(body, language) {
				t.Errorf("%s %s: %s %s", path, language, resp.Status, body)
			}
		}
	}
}
