package e2b_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// run starts code and returns its answer, whose body the caller reads.
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

// A stream shows that it lives, also before the code's turn has come.
func TestKeepalive(t *testing.T) {
	_, d, srv := serve(t)
	d.SetSilence(10 * time.Millisecond)
	made(t, srv.URL, `{"templateID":"base"}`)
	var kinds []string
	for sc := bufio.NewScanner(run(t, t.Context(), srv.URL, "queue").Body); sc.Scan(); {
		_, rest, _ := strings.Cut(sc.Text(), `{"type":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		kinds = append(kinds, kind)
	}
	if all := strings.Join(kinds, " "); kinds[0] != "keepalive" || !strings.Contains(all, "number_of_executions keepalive") || !strings.HasSuffix(all, "end_of_execution") {
		t.Errorf("%s", all)
	}
}

// Output is told of while the code runs, what came at once in one message.
func TestGather(t *testing.T) {
	_, d, srv := serve(t)
	d.SetGather(100 * time.Millisecond)
	made(t, srv.URL, `{"templateID":"base"}`)
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

// Code is interrupted when nobody listens any more.
func TestClientGone(t *testing.T) {
	s, _, srv := serve(t)
	made(t, srv.URL, `{"templateID":"base"}`)
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

// Code without a context runs in the user's home, with the sandbox's id, in a
// context that stays the same for whoever serves the door.
func TestDefaultContexts(t *testing.T) {
	s, d, srv := serve(t)
	made(t, srv.URL, `{"templateID":"base"}`)
	for range 2 {
		run(t, t.Context(), srv.URL, "x")
	}
	other := httptest.NewServer(e2b.New(d.Options)) // as after a restart
	defer other.Close()
	run(t, t.Context(), other.URL, "x")
	all, err := s.Contexts(t.Context(), "sb1")
	if err != nil || len(all) != 1 || all[0].Spec.Dir != "/home/user" || all[0].Spec.Env["E2B_SANDBOX_ID"] != "sb1" {
		t.Errorf("%v %+v", err, all)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.codes {
		if c.Context != "cx1" || c.Language != "" || c.Timeout != brig.DefaultBounds().MaxTimeout {
			t.Errorf("%+v", c)
		}
	}
}
