package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestE2BPause runs the pause tests with the newest and an older version of E2B's JavaScript SDK.
//
//suite:part clients full
func TestE2BPause(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2B(t).checks(t, 5, "pause.mjs", "E2B_MODULE="+module) })
	}
}

// TestE2BSnapshots runs the tests of snapshots and forks with the newest and an older version of
// E2B's JavaScript SDK.
//
//suite:part clients full
func TestE2BSnapshots(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2B(t).checks(t, 3, "snapshot.mjs", "E2B_MODULE="+module) })
	}
}

// TestE2BPausePython runs the pause tests with E2B's Python SDK.
//
//suite:part clients full
func TestE2BPausePython(t *testing.T) {
	startE2B(t).pythonChecks(t, 4, "pause.py")
}

// status sends a request to E2B's control plane, and returns the status and the body of the
// response.
func (s *e2bServer) status(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := strings.CutPrefix(s.env[0], "E2B_API_KEY="); ok && len(headers) == 0 {
		req.Header.Set("X-API-Key", key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// TestE2BPauseProtocol verifies the parts of E2B's protocol for paused sandboxes that its SDKs do not
// use, and that a request without the sandbox's token does not resume the sandbox.
//
//suite:part core
func TestE2BPauseProtocol(t *testing.T) {
	s := startE2B(t)
	create := func(body string) (id, token string) {
		t.Helper()
		code, out := s.status(t, "POST", "/v2/sandboxes", body)
		var made struct{ SandboxID, EnvdAccessToken string }
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != http.StatusCreated {
			t.Fatalf("create: %d %s", code, out)
		}
		return made.SandboxID, made.EnvdAccessToken
	}
	want := func(status int, method, path, body string, headers ...string) string {
		t.Helper()
		code, out := s.status(t, method, path, body, headers...)
		if code != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, code, out, status)
		}
		return out
	}
	state := func(id string) string {
		t.Helper()
		var got struct{ State string }
		if err := json.Unmarshal([]byte(want(200, "GET", "/sandboxes/"+id, "")), &got); err != nil {
			t.Error(err)
		}
		return got.State
	}
	id, token := create(`{"templateID":"base","timeout":600,"autoPause":true,"autoResume":{"enabled":true}}`)
	path := "/sandboxes/" + id
	envd := []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"}
	want(400, "POST", "/v2/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`)
	want(204, "POST", path+"/pause", `{"memory":false}`)
	want(502, "GET", "/files?path=/etc/hostname&username=user", "", append(envd, "X-Access-Token", token)...) // as in E2B, traffic does not resume the sandbox
	want(201, "POST", path+"/connect", `{"timeout":600,"memory":false}`)
	want(200, "GET", "/files?path=/etc/hostname&username=user", "", append(envd, "X-Access-Token", token)...)
	want(409, "POST", path+"/resume", `{}`)
	want(200, "POST", path+"/connect", `{"timeout":60}`)
	want(204, "POST", path+"/pause", "")
	if got := want(409, "POST", path+"/pause", ""); !strings.Contains(got, "already paused") {
		t.Errorf("a second pause: %s", got)
	}
	want(200, "GET", path+"/metrics", "")
	want(200, "GET", path+"/logs", "")
	want(200, "GET", "/sandboxes/metrics?sandbox_ids="+id, "")
	want(404, "POST", path+"/timeout", `{"timeout":60}`)
	want(404, "PUT", path+"/network", `{}`)
	want(401, "GET", "/files?path=/etc/hostname&username=user", "", append(envd, "X-Access-Token", "wrong")...)
	if got := state(id); got != "paused" {
		t.Errorf("after a request without a token it is %s", got)
	}
	want(200, "GET", "/files?path=/etc/hostname&username=user", "", append(envd, "X-Access-Token", token)...)
	if got := state(id); got != "running" {
		t.Errorf("control: after a request with its token it is %s", got)
	}
	want(204, "POST", path+"/timeout", `{"timeout":0}`) // pauses, as at the end of the lease
	if got := state(id); got != "paused" {
		t.Errorf("after the timeout it is %s", got)
	}
	want(502, "GET", "/health", "", envd...) // needs no token, so it does not resume the sandbox
	if got := state(id); got != "paused" {
		t.Errorf("after a health check without a token it is %s", got)
	}
	want(204, "GET", "/health", "", append(envd, "X-Access-Token", token)...)
	if got := state(id); got != "running" {
		t.Errorf("control: after a health check with its token it is %s", got)
	}
	want(204, "POST", path+"/timeout", `{"timeout":0}`)
	want(201, "POST", path+"/resume", `{"timeout":600}`)

	// A command that is started over REST uses streams of the host.
	svc := s.client()
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := svc.Exec(t.Context(), id, brig.Command{Argv: []string{"sleep", "1000"}}, brig.IO{Started: func(string) { close(began) }})
		ended <- err
	}()
	<-began
	if got := want(400, "POST", path+"/pause", ""); !strings.Contains(got, "in use") {
		t.Errorf("a pause while a command runs: %s", got)
	}
	want(204, "DELETE", path, "")
	<-ended
	want(404, "POST", path+"/pause", "")
	want(404, "POST", path+"/resume", "")

	closed, token := create(`{"templateID":"base","timeout":600}`)
	envd = []string{"E2b-Sandbox-Id", closed, "E2b-Sandbox-Port", "49983", "X-Access-Token", token}
	want(204, "POST", "/sandboxes/"+closed+"/pause", "")
	want(401, "GET", "/files?path=/etc/hostname&username=user", "", envd[:4]...)
	want(502, "GET", "/files?path=/etc/hostname&username=user", "", envd...)
	if got := state(closed); got != "paused" {
		t.Errorf("a sandbox without autoResume is %s after traffic", got)
	}
	want(201, "POST", "/sandboxes/"+closed+"/connect", `{"timeout":60}`)
	want(200, "GET", "/files?path=/etc/hostname&username=user", "", envd...)

	// Requests that arrive during the pause do not resume the sandbox either.
	stop := make(chan struct{})
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if code, out := s.status(t, "GET", "/files?path=/etc/hostname&username=user", "", envd...); code != 200 && code != 502 {
					t.Errorf("a request during a pause: %d %s", code, out)
				}
			}
		})
	}
	eventually(t, "the pause finds no request in use", func() bool {
		code, _ := s.status(t, "POST", "/sandboxes/"+closed+"/pause", "")
		return code == 204
	})
	close(stop)
	requests.Wait()
	if got := state(closed); got != "paused" {
		t.Errorf("after requests during the pause it is %s", got)
	}
}

// TestPauseAtEnd verifies over REST that a sandbox with pause_at_end is paused when its lease
// ends, even if the server is down at that time, and that its egress rules and environment still
// apply after the pause.
//
//suite:part crash
func TestPauseAtEnd(t *testing.T) {
	needRoot(t)
	ctx, dir := t.Context(), t.TempDir()
	s := startServer(t, dir)
	svc := s.client()
	await := func(svc brig.Service) *brig.Sandbox {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			now, err := svc.Get(ctx, "one")
			if err != nil || now.State == brig.Ended || time.Now().After(end) {
				t.Fatalf("it is %+v, %v", now, err)
			}
			if now.State == brig.Paused {
				return now
			}
		}
	}
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "example.com"}}}
	if _, err := svc.Create(ctx, brig.Spec{Name: "one", TTL: 2 * time.Second, FixedLease: true, PauseAtEnd: true, Env: map[string]string{"MARK": "m"}, Egress: rules}); err != nil {
		t.Fatal(err)
	}
	cx, err := svc.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, svc, "one", cx.ID, "x = 41")
	await(svc)
	if got := runCell(t, ctx, svc, "one", cx.ID, "x += 1\nprint(x)"); got != "42" {
		t.Errorf("after the end of the lease the context printed %q", got)
	}
	s.kill()
	time.Sleep(2 * time.Second) // the lease ends while no server runs
	svc = startServer(t, dir).client()
	now := await(svc)
	if got := fmt.Sprint(now.Spec.Egress.Rules); got != fmt.Sprint(rules.Rules) {
		t.Errorf("its rules are %s", got)
	}
	if got := runCell(t, ctx, svc, "one", cx.ID, "import os\nprint(x + 1, os.environ['MARK'])"); got != "43 m" {
		t.Errorf("after the next server the context printed %q", got)
	}
	if err := svc.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
}
