package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// failure is the API's error for a failed request or program.
type failure struct {
	Code, Kind, Name, Message, Hint string
}

// sendFailing sends a request, and returns the response status and the error of the request or of its
// program.
func (s *server) sendFailing(method, path, body string) (int, failure) {
	s.t.Helper()
	status, text := s.do(method, path, body)
	var out struct{ Error *failure }
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.Error == nil {
		s.t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
	}
	return status, *out.Error
}

// breakEngine renames the engine's binary, so that no sandbox can be created until the returned
// function restores it.
func (s *server) breakEngine() (mend func()) {
	s.t.Helper()
	engines, err := filepath.Glob(filepath.Join(s.dir, "bin", "brig-engine*"))
	if err != nil || len(engines) == 0 {
		s.t.Fatalf("no engine in the data folder: %v", err)
	}
	for _, f := range engines {
		if err := os.Rename(f, f+".away"); err != nil {
			s.t.Fatal(err)
		}
	}
	return sync.OnceFunc(func() {
		for _, f := range engines {
			if err := os.Rename(f+".away", f); err != nil {
				s.t.Error(err)
			}
		}
	})
}

// startDroppingManager starts an executor manager that reports that it is
// healthy, but drops the connection when it receives a program.
func startDroppingManager(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.URL.Path != "/healthz" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestCodeNotInitialized verifies that the server rejects programs and new
// sandboxes with SB001 while no provider is active, and accepts them once one
// is active.
//
//suite:part core
func TestCodeNotInitialized(t *testing.T) {
	s := startServer(t, t.TempDir(), "--config", writeConfig(t, "pool: {size: -1}\nmetrics: {trial: 0s}\nproviders: {active: none}\n"))
	for path, body := range map[string]string{"/v1/run": `{"command":["true"]}`, "/v1/sandboxes": `{}`} {
		if status, f := s.sendFailing("POST", path, body); status != 503 || f.Code != "SB001" || f.Hint == "" {
			t.Errorf("%s: %d %+v", path, status, f)
		}
	}
	if status, body := s.do("POST", "/v1/providers/gvisor/activate", ""); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := s.do("POST", "/v1/run", `{"command":["true"]}`); status != 200 {
		t.Errorf("with an active one: %d %s", status, body)
	}
}

// TestEveryErrorCodeHasHint verifies that the API returns each required error code with a hint.
//
//suite:part core
func TestEveryErrorCodeHasHint(t *testing.T) {
	config := writeConfig(t, "pool: {size: -1}\nmetrics: {trial: 0s}\nscreening: {mode: deny, python: {calls: [eval]}, others: true}\nquota: {executions: 5}\n")
	// With this PATH, the server does not find the programs that build images.
	s := launchServer(t, bin(t, "brig"), []string{"PATH=/nonexistent"}, t.TempDir(), "--config", config)
	s.await()
	svc := s.client()
	if _, err := svc.CreateTenant(t.Context(), brig.Tenant{Name: "small", Quota: brig.Quota{ExecutionsPerDay: 1}}); err != nil {
		t.Fatal(err)
	}
	key, err := svc.CreateKey(t.Context(), brig.KeySpec{Name: "k", Tenant: "small", Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	small := *s
	small.key = key.Secret
	if status, body := small.do("POST", "/v1/run", `{"command":["true"]}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	at := func(id string) string {
		return `{"language":"python","code":"1","placement":{"provider":"` + id + `","only":true}}`
	}
	s.configure("self_managed", map[string]any{"endpoint": "http://127.0.0.1:1", "max_retries": 0})
	s.configure("self_managed@fleeting", map[string]any{"endpoint": startDroppingManager(t)})
	s.configure("docker", map[string]any{"host": "unix:///nonexistent/docker.sock", "image": "debian"})
	refused := map[string]float64{}
	for _, c := range []struct {
		code         string
		who          *server
		method, path string
		body         string
		status       int
		before       func() func()
	}{
		{"SB002", s, "PUT", "/v1/providers/self_managed", `{"config":{"endpoint":"nowhere","timeout":1000}}`, 422, nil},
		{"SB002", s, "PUT", "/v1/providers/nonsense", `{"config":{}}`, 422, nil},
		{"SB003", s, "POST", "/v1/run", at("self_managed"), 502, nil},
		{"SB003", s, "PUT", "/v1/providers/self_managed", `{"config":{"endpoint":"http://127.0.0.1:1"},"test":true}`, 502, nil},
		{"SB009", s, "POST", "/v1/run", at("self_managed@fleeting"), 503, nil},
		{"SB009", s, "POST", "/v1/run", at("docker"), 503, nil},
		{"SB003", s, "POST", "/v1/images/pull", `{"ref":"127.0.0.1:1/nothing","insecure":true}`, 502, nil},
		{"SB004", s, "POST", "/v1/run", `{"command":["true"]}`, 500, s.breakEngine},
		{"SB005", s, "POST", "/v1/run", `{"language":"python","code":"while True: pass","timeout_ms":300}`, 200, nil},
		{"SB006", s, "POST", "/v1/run", `{"language":"python","code":"x = bytearray(10**9)","limits":{"memory":67108864}}`, 200, nil},
		{"SB007", s, "POST", "/v1/run", `{"language":"python","code":"eval('1')"}`, 403, nil},
		{"SB008", &small, "POST", "/v1/run", `{"command":["true"]}`, 429, nil},
		{"SB009", s, "POST", "/v1/images/build", `{"name":"data","packages":["python3"]}`, 503, nil},
	} {
		after := func() {}
		if c.before != nil {
			after = c.before()
		}
		status, f := c.who.sendFailing(c.method, c.path, c.body)
		after()
		if status != c.status || f.Code != c.code || f.Hint == "" || f.Message == "" {
			t.Errorf("%s: %s %s: %d %+v", c.code, c.method, c.path, status, f)
		}
		if status != 200 {
			refused[c.code]++
		}
	}
	// The engine's binary has been restored, so the server recovers.
	if status, body := s.do("POST", "/v1/run", `{"command":["true"]}`); status != 200 {
		t.Errorf("after recovery: %d %s", status, body)
	}
	m := s.scrape()
	for code, want := range refused {
		if got := m.sum("brig_errors_total", `code="`+code+`"`); got != want {
			t.Errorf("brig_errors_total has %v of %s, want %v", got, code, want)
		}
	}
	if m.sum("brig_sandbox_failures_total", `provider="gvisor"`, `for="caller"`, `code="SB004"`) != 1 || m.sum("brig_attempts_total", `provider="gvisor"`, `result="failed"`) != 1 {
		t.Error("the sandbox that could not be made is not counted")
	}
}

// TestServerReportsFailureAndRecovery verifies that a server reports its failure, and later its
// recovery, to a webhook and in the list of alerts.
//
//suite:part core
func TestServerReportsFailureAndRecovery(t *testing.T) {
	var mu sync.Mutex
	reported := map[string][]string{} // reported states by name
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var m struct {
			Status      string
			GroupLabels map[string]string
		}
		if err := json.Unmarshal(b, &m); err != nil || r.Header.Get("Authorization") != "Bearer b-e-a-r" || r.Header.Get("X-Brig-Signature") == "" {
			t.Errorf("%v: %s", r.Header, b)
		}
		mu.Lock()
		defer mu.Unlock()
		reported[m.GroupLabels["alertname"]] = append(reported[m.GroupLabels["alertname"]], m.Status)
	}))
	defer hook.Close()
	wait := func(name, state string) {
		t.Helper()
		for range 600 {
			mu.Lock()
			states := reported[name]
			mu.Unlock()
			if len(states) > 0 && states[len(states)-1] == state {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("%s was not reported as %s; reported: %v", name, state, reported)
	}
	secrets := t.TempDir()
	for _, name := range []string{"bearer", "secret"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte("b-e-a-r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t, t.TempDir(), "--config", writeConfig(t, `
pool: {size: 1}
metrics: {trial: 500ms}
rates: {gvisor: {per_call: 1}}
alerts:
  every: 100ms
  webhook: {url: "`+hook.URL+`", bearer: `+filepath.Join(secrets, "bearer")+`, secret: `+filepath.Join(secrets, "secret")+`}
  rules:
    BrigAvailability: {window: 3s, for: 0s, least: 1}
    BrigErrorRate: {window: 3s, for: 0s, least: 1}
    BrigProviderDown: {for: 0s}
    BrigPoolExhausted: {for: 300ms}
    BrigMemoryHigh: {off: true}
`))
	s.awaitPool()
	svc := s.client()
	mend := s.breakEngine()
	defer mend()
	if status, body := s.do("POST", "/v1/run", `{"language":"python","code":"1"}`); status != 200 { // a pooled sandbox still works
		t.Errorf("%d %s", status, body)
	}
	if status, f := s.sendFailing("POST", "/v1/run", `{"command":["true"]}`); status != 500 || f.Code != "SB004" {
		t.Errorf("%d %+v", status, f)
	}
	for _, name := range []string{"BrigProviderDown", "BrigAvailability", "BrigErrorRate", "BrigPoolExhausted"} {
		wait(name, "firing")
	}
	alerts, err := svc.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	down := false
	for _, a := range alerts {
		if a.Name == "BrigProviderDown" {
			down = a.State == brig.AlertFiring && a.Severity == brig.Critical && a.Labels["provider"] == "gvisor" && a.Hint != ""
		}
	}
	if !down {
		t.Errorf("the API lists %+v", alerts)
	}
	out, err := exec.Command(bin(t, "brig"), "--url", s.url, "--key", s.key, "alerts").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "firing") || !strings.Contains(string(out), "provider=gvisor") {
		t.Errorf("brig alerts: %v %s", err, out)
	}
	if m := s.scrape(); m.sum("brig_alerts_firing", `alert="BrigProviderDown"`) != 1 || m.sum("brig_provider_up") != 0 {
		t.Error("the metrics do not say that the provider is down")
	}
	if m := s.scrape(); m.sum("brig_pool_ready") != 0 || m.sum("brig_pool_failures_total") < 1 || m.sum("brig_pool_utilisation_ratio") < 1 {
		t.Error("the metrics do not say that nothing waits, and why")
	}
	mend()
	for _, name := range []string{"BrigProviderDown", "BrigAvailability", "BrigErrorRate", "BrigPoolExhausted"} {
		wait(name, "resolved")
	}
	// The tenant has a budget of one and runs a program that costs one.
	if _, err := svc.CreateTenant(t.Context(), brig.Tenant{Name: "thrifty", Budget: 1}); err != nil {
		t.Fatal(err)
	}
	key, err := svc.CreateKey(t.Context(), brig.KeySpec{Name: "k", Tenant: "thrifty", Role: brig.Member})
	if err != nil {
		t.Fatal(err)
	}
	thrifty := *s
	thrifty.key = key.Secret
	for range 2 {
		if status, body := thrifty.do("POST", "/v1/run", `{"command":["true"]}`); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	wait("BrigBudgetSpent", "firing")
	if m := s.scrape(); m.sum("brig_tenant_cost_month", `tenant="thrifty"`) != 2 || m.sum("brig_tenant_budget", `tenant="thrifty"`) != 1 || m.hasSeries("brig_tenant_budget", `tenant="default"`) {
		t.Error("the metrics do not say what was spent, or say it of a tenant without a budget")
	}
	if _, err := svc.UpdateTenant(t.Context(), brig.Tenant{Name: "thrifty", Budget: 10}); err != nil {
		t.Fatal(err)
	}
	wait("BrigBudgetSpent", "resolved")
	if status, _ := thrifty.do("GET", "/v1/alerts", ""); status != 403 {
		t.Errorf("member of a tenant: status %d for the server's failures", status)
	}
}
