package execman_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/execman"
	"github.com/brig-run/brig/schema"
)

func openProvider(t *testing.T, url string, change func(*execman.Config), log io.Writer) *execman.Provider {
	t.Helper()
	c := execman.Config{Endpoint: url, Timeout: 30, MaxRetries: 3, PoolSize: 2, AllowPrivate: true}
	if change != nil {
		change(&c)
	}
	p, err := execman.Open(brig.ProviderEnv{ID: execman.Name, Log: slog.New(slog.NewTextHandler(log, nil)), Called: func(brig.Call) {}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// service starts a server that handles each request with the next of the given
// handlers, and repeats the last one.
func service(t *testing.T, answers ...func(w http.ResponseWriter, r *http.Request)) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1))
		answers[min(n, len(answers))-1](w, r)
	}))
	t.Cleanup(srv.Close)
	return srv, &calls
}

func respondWith(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func cut(w http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}

var hello = brig.Program{SandboxName: "py-1", Language: brig.Python, Code: "def main(**given):\n    return given\n", Arguments: json.RawMessage(`{"a":1}`), Timeout: 20 * time.Second}

const success = `{"status":"success","stdout":"out\n","stderr":"warn\n","exit_code":0,"artifacts":[{"name":"a.csv","mime_type":"text/csv","size":3,"content_b64":"YSxi"},{"name":"../b.csv","content_b64":"YQ=="},{"name":"c.exe","content_b64":"YQ=="}],"result":{"present":true,"value":{"n":12345678901234567890},"type":"json"}}`

// TestRequestAndResponse verifies that requests follow the protocol, and that
// the response is passed on completely.
func TestRequestAndResponse(t *testing.T) {
	var got map[string]any
	srv, _ := service(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/base/run" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		respondWith(200, success)(w, r)
	})
	var stdout, stderr bytes.Buffer
	id := ""
	o, err := openProvider(t, srv.URL+"/base/", nil, io.Discard).Run(t.Context(), "x", hello, brig.IO{Stdout: &stdout, Stderr: &stderr, Started: func(s string) { id = s }})
	if err != nil {
		t.Fatal(err)
	}
	code, _ := base64.StdEncoding.DecodeString(fmt.Sprint(got["code_b64"]))
	if string(code) != hello.Code || got["language"] != "python" || fmt.Sprint(got["arguments"]) != "map[a:1]" {
		t.Errorf("sent %v with code %q", got, code)
	}
	if string(o.Value) != `{"n":12345678901234567890}` || o.ExitCode != 0 || o.Error != nil || !o.Done || o.ExecID == "" || o.ExecID != id || o.Sandbox != "py-1" {
		t.Errorf("Run = %+v", o)
	}
	if stdout.String() != "out\n" || stderr.String() != "warn\n" || string(o.Stdout.Head) != "out\n" || o.Stderr.Total != 5 {
		t.Errorf("wrote %q and %q, kept %+v", stdout.String(), stderr.String(), o.Stdout)
	}
	if len(o.Artifacts) != 1 || o.Artifacts[0].Path != "a.csv" || string(o.Artifacts[0].Data) != "a,b" || len(o.Skipped) != 2 {
		t.Errorf("artifacts %+v, skipped %v", o.Artifacts, o.Skipped)
	}
}

// TestOutcomes verifies the outcome of every result in the protocol's table.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name, body string
		exit       int
		timedOut   bool
		oom        bool
		code, what string // of the error
	}{
		{"time, and deaf", `{"status":"program_runner_error","exit_code":-3,"detail":"internal_error","stderr":"Command timed out"}`, 124, true, false, "SB005", "timeout"},
		{"time", `{"status":"resource_limit_exceeded","exit_code":-124,"resource_limit_type":"time","stderr":"Execution timeout"}`, 124, true, false, "SB005", "timeout"},
		{"memory", `{"status":"resource_limit_exceeded","exit_code":-137,"resource_limit_type":"memory"}`, 137, false, true, "SB006", "out_of_memory"},
		{"MemoryError", `{"status":"resource_limit_exceeded","exit_code":1,"resource_limit_type":"memory","stderr":"MemoryError"}`, 137, false, true, "SB006", "out_of_memory"},
		{"output", `{"status":"resource_limit_exceeded","exit_code":1,"resource_limit_type":"output"}`, 1, false, false, "", "resource_limit_exceeded"},
		{"a file", `{"status":"unauthorized_access","exit_code":1,"unauthorized_access_type":"file_access","stderr":"Permission denied"}`, 1, false, false, "SB007", "blocked_by_policy"},
		{"the network", `{"status":"unauthorized_access","exit_code":1,"unauthorized_access_type":"network_access"}`, 1, false, false, "SB007", "blocked_by_policy"},
		{"an exit code", `{"status":"program_error","exit_code":3,"runtime_error_type":"nonzero_exit"}`, 3, false, false, "", ""},
		{"an exception", `{"status":"program_error","exit_code":1,"stderr":"Traceback (most recent call last):\n  File \"main.py\", line 2, in main\nbrig.errors.ValueError: no good\n"}`, 1, false, false, "", "ValueError"},
		{"a signal", `{"status":"runtime_error","exit_code":139,"runtime_error_type":"signalled"}`, 139, false, false, "", ""},
		{"an invalid exit code", `{"status":"program_error","exit_code":-5}`, 1, false, false, "", ""},
		{"a status that nobody knows", `{"status":"melted","exit_code":0}`, 1, false, false, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, calls := service(t, respondWith(200, c.body))
			o, err := openProvider(t, srv.URL, nil, io.Discard).Run(t.Context(), "x", hello, brig.IO{})
			if err != nil {
				t.Fatal(err)
			}
			if o.ExitCode != c.exit || o.TimedOut != c.timedOut || o.OOMKilled != c.oom || !o.Done || o.Value != nil || calls.Load() != 1 {
				t.Errorf("Run = %+v after %d calls", o, calls.Load())
			}
			switch {
			case (o.Error == nil) != (c.what == ""):
				t.Errorf("the error is %+v, want %q", o.Error, c.what)
			case o.Error != nil && (o.Error.Code != c.code || o.Error.Name != c.what):
				t.Errorf("the error is %+v, want %s %s", o.Error, c.code, c.what)
			}
		})
	}
}

const busy = `{"status":"program_runner_error","exit_code":-10,"detail":"no_available_container","stderr":"Container pool is busy"}`

// TestServiceErrors verifies that a failure of the service is an error, and that the
// error indicates whether another provider may run the program.
func TestServiceErrors(t *testing.T) {
	for _, c := range []struct {
		name      string
		respond   func(http.ResponseWriter, *http.Request)
		kind      brig.Kind
		elsewhere bool
		began     bool
		calls     int64
	}{
		{"none free", respondWith(200, busy), brig.RateLimited, true, false, 2},
		{"too many", respondWith(200, `{"status":"program_runner_error","exit_code":-429,"detail":"Too many requests, please try again later"}`), brig.RateLimited, true, false, 2},
		{"too many of HTTP", respondWith(429, ``), brig.RateLimited, true, false, 2},
		{"unavailable", respondWith(503, ``), brig.Unavailable, true, false, 2},
		{"unsafe code", respondWith(200, `{"status":"program_runner_error","exit_code":-999,"detail":"Code is unsafe","stderr":"Line 1: Import: os"}`), brig.PolicyBlocked, false, false, 1},
		{"something unforeseen", respondWith(200, `{"status":"program_runner_error","exit_code":-999,"detail":"unhandled_exception"}`), brig.Unavailable, true, true, 1},
		{"an internal error", respondWith(200, `{"status":"program_runner_error","exit_code":-3,"detail":"internal_error"}`), brig.Unavailable, true, true, 1},
		{"a failure", respondWith(500, ``), brig.Unavailable, true, true, 1},
		{"a gateway's failure", respondWith(502, ``), brig.Unavailable, true, true, 1},
		{"an end in the middle", cut, brig.Unavailable, true, true, 1},
		{"not JSON", respondWith(200, `<html>`), brig.ConnectionFailed, true, true, 1},
		{"another service", respondWith(200, `{}`), brig.ConnectionFailed, true, true, 1},
		{"refused", respondWith(422, `{}`), brig.InvalidArgument, false, false, 1},
		{"not let in", respondWith(403, `{}`), brig.ConnectionFailed, true, false, 2},
		{"not there", respondWith(404, ``), brig.ConnectionFailed, true, false, 2},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://127.0.0.1:1/run", 307) }, brig.ConnectionFailed, true, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv, calls := service(t, c.respond)
			_, err := openProvider(t, srv.URL, func(c *execman.Config) { c.MaxRetries = 1 }, io.Discard).Run(t.Context(), "x", hello, brig.IO{})
			if brig.KindOf(err) != c.kind || brig.CanRetryElsewhere(err) != c.elsewhere || (brig.RetryOf(err) == brig.RetryContained) != c.began || brig.AsError(err).Hint == "" {
				t.Errorf("%v: %s, elsewhere %v, retry %v, hint %q", err, brig.KindOf(err), brig.CanRetryElsewhere(err), brig.RetryOf(err), brig.AsError(err).Hint)
			}
			if calls.Load() != c.calls {
				t.Errorf("there were %d calls, want %d", calls.Load(), c.calls)
			}
		})
	}
	p := openProvider(t, "http://127.0.0.1:1", func(c *execman.Config) { c.MaxRetries = 0 }, io.Discard)
	if _, err := p.Run(t.Context(), "x", hello, brig.IO{}); brig.KindOf(err) != brig.ConnectionFailed || brig.RetryOf(err) == brig.RetryContained {
		t.Errorf("nobody there: %v", err)
	}
	if err := p.Check(t.Context()); brig.KindOf(err) != brig.ConnectionFailed {
		t.Errorf("Check of nobody: %v", err)
	}
}

// TestTooManyArtifactsAreRejected verifies that a response with very many artifacts is
// rejected before the artifacts use memory. The control has at most
// maxArtifacts.
func TestTooManyArtifactsAreRejected(t *testing.T) {
	for n, want := range map[int]brig.Kind{1000: "", 1 << 20: brig.ConnectionFailed} {
		srv, _ := service(t, respondWith(http.StatusOK, `{"status": "success", "result": {}, "artifacts": [{}`+strings.Repeat(",{}", n-1)+`]}`))
		p := openProvider(t, srv.URL, nil, io.Discard)
		o, err := p.Run(t.Context(), "x", hello, brig.IO{})
		if brig.KindOf(err) != want || err == nil && len(o.Skipped) > 100 {
			t.Errorf("%d artifacts: %v", n, err)
		}
	}
}

// TestRetries verifies retries: the first two calls fail, the third succeeds,
// and all three attempts are logged.
func TestRetries(t *testing.T) {
	srv, calls := service(t, respondWith(503, ``), respondWith(200, busy), respondWith(200, success))
	var log bytes.Buffer
	o, err := openProvider(t, srv.URL, nil, &log).Run(t.Context(), "x", hello, brig.IO{})
	if err != nil || o.ExitCode != 0 || calls.Load() != 3 {
		t.Fatalf("Run = %+v, %v after %d calls", o, err, calls.Load())
	}
	for _, want := range []string{"attempt=1", "attempt=2", "attempts=3"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	srv, calls = service(t, respondWith(503, ``))
	if _, err := openProvider(t, srv.URL, nil, io.Discard).Run(t.Context(), "x", hello, brig.IO{}); brig.KindOf(err) != brig.Unavailable || calls.Load() != 4 {
		t.Errorf("one that stays unavailable: %v after %d calls, want 4", err, calls.Load())
	}
}

// TestTimeoutAndDisconnect verifies that a program that exceeds its timeout has the same
// outcome as with other providers, and that the call ends if the caller
// disconnects.
func TestTimeoutAndDisconnect(t *testing.T) {
	stuck, _ := service(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() })
	p := hello
	p.Timeout = 200 * time.Millisecond
	o, err := openProvider(t, stuck.URL, nil, io.Discard).Run(t.Context(), "x", p, brig.IO{})
	if err != nil || !o.TimedOut || o.ExitCode != 124 || o.Error == nil || o.Error.Code != "SB005" {
		t.Errorf("Run = %+v, %v", o, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := openProvider(t, stuck.URL, nil, io.Discard).Run(ctx, "x", hello, brig.IO{}); brig.KindOf(err) != brig.Canceled {
		t.Errorf("Run of a caller who went away: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for body, good := range map[string]bool{`{"status":"ok"}`: true, `{"status":"sick"}`: false, `ok`: false} {
		srv, _ := service(t, respondWith(200, body))
		if err := openProvider(t, srv.URL, nil, io.Discard).Check(t.Context()); (err == nil) != good {
			t.Errorf("Check of %s: %v", body, err)
		}
	}
}

// TestProgramsWithoutMain verifies that programs without a callable main
// function run as with other providers.
func TestProgramsWithoutMain(t *testing.T) {
	for _, c := range []struct {
		language     brig.Language
		code, suffix string
		arguments    string
	}{
		{brig.Python, "print(1)", "def main():\n    return None\n", ""},
		{brig.Python, "def main():\n    return 1\n", "return 1\n", ""},
		{brig.Python, "def main():\n    return 1\nmain()\n", "def main():\n    return None\n", ""},
		{brig.Python, "print(1)", "print(1)", `{}`},
		{brig.JavaScript, "console.log(1)", "\nreturn;", ""},
		{brig.JavaScript, "function main() { return 1 }", "[v]; } };\nreturn;", ""},
	} {
		var got struct {
			Code []byte `json:"code_b64"`
		}
		srv, _ := service(t, func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			respondWith(200, success)(w, r)
		})
		p := brig.Program{Language: c.language, Code: c.code}
		if c.arguments != "" {
			p.Arguments = json.RawMessage(c.arguments)
		}
		if _, err := openProvider(t, srv.URL, nil, io.Discard).Run(t.Context(), "x", p, brig.IO{}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got.Code), c.code) || !strings.HasSuffix(string(got.Code), c.suffix) {
			t.Errorf("%q is sent as %q", c.code, got.Code)
		}
	}
}

func TestUnsupportedProgramIsRejected(t *testing.T) {
	srv, calls := service(t, respondWith(200, success))
	p := openProvider(t, srv.URL, nil, io.Discard)
	for field, prog := range map[string]brig.Program{
		"command":   {Command: []string{"ls"}},
		"language":  {Language: brig.TypeScript, Code: "1"},
		"files":     {Language: brig.Python, Code: "1", Files: []brig.File{{Path: "a"}}},
		"env":       {Language: brig.Python, Code: "1", Env: map[string]string{"A": "b"}},
		"egress":    {Language: brig.Python, Code: "1", Egress: brig.Egress{Bandwidth: 4096}},
		"secrets":   {Language: brig.Python, Code: "1", Secrets: []brig.SecretUse{{Name: "s"}}},
		"workspace": {Language: brig.Python, Code: "1", Workspace: brig.WorkspaceUse{Name: "w"}},
		"volumes":   {Language: brig.Python, Code: "1", Volumes: []brig.VolumeMount{{Name: "v", Path: "/v"}}},
	} {
		_, err := p.Run(t.Context(), "x", prog, brig.IO{})
		if got := brig.AsError(err); got == nil || got.Kind != brig.FailedPrecondition || got.Field != field || got.Hint == "" {
			t.Errorf("%s: %+v", field, got)
		}
	}
	if _, err := p.Run(t.Context(), "x", hello, brig.IO{Stdin: strings.NewReader("")}); brig.AsError(err).Field != "stdin" {
		t.Errorf("stdin: %v", err)
	}
	if calls.Load() != 0 {
		t.Error("the service was called all the same")
	}
	c := p.Capabilities()
	if !c.RunsOnly || c.Uplinks || c.Enforces[brig.AreaEgress].Level != brig.LevelNone || c.Enforces[brig.AreaIsolation].Level == brig.LevelBoundary {
		t.Errorf("Capabilities = %+v", c)
	}
	if _, err := p.Create(t.Context(), "x", brig.Spec{}, time.Now()); brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("Create: %v", err)
	}
}

func TestConfigRules(t *testing.T) {
	good := execman.Config{Endpoint: "http://localhost:9385", Timeout: 30, MaxRetries: 3, PoolSize: 10, AllowPrivate: true}
	if invalid := good.Validate(); len(invalid) != 0 {
		t.Errorf("a good one is wrong: %+v", invalid)
	}
	for _, c := range []struct {
		change func(*execman.Config)
		field  string
	}{
		{func(c *execman.Config) { c.Endpoint = "not a url" }, "endpoint"},
		{func(c *execman.Config) { c.Endpoint = "ftp://localhost" }, "endpoint"},
		{func(c *execman.Config) { c.Endpoint = "" }, "endpoint"},
		{func(c *execman.Config) { c.Endpoint = "http://169.254.169.254/" }, "endpoint"},
		{func(c *execman.Config) { c.AllowPrivate = false }, "endpoint"},
		{func(c *execman.Config) { c.Timeout = 0 }, "timeout"},
		{func(c *execman.Config) { c.Timeout = 601 }, "timeout"},
		{func(c *execman.Config) { c.MaxRetries = -1 }, "max_retries"},
		{func(c *execman.Config) { c.MaxRetries = 11 }, "max_retries"},
		{func(c *execman.Config) { c.PoolSize = 0 }, "pool_size"},
		{func(c *execman.Config) { c.PinSHA256 = "abc" }, "pin_sha256"},
		{func(c *execman.Config) { c.Authority = "abc" }, "authority"},
	} {
		config := good
		c.change(&config)
		if invalid := config.Validate(); len(invalid) != 1 || invalid[0].Field != c.field || invalid[0].Message == "" {
			t.Errorf("%s: %+v", c.field, invalid)
		}
	}
}

// TestDriverFormFields verifies that the form contains the fields of RAGFlow's
// administration.
func TestDriverFormFields(t *testing.T) {
	vars := map[string]string{"SANDBOX_EXECUTOR_MANAGER_POOL_SIZE": "5", "SANDBOX_TIMEOUT": "90s", "SANDBOX_ENABLE_SECCOMP": "true"}
	d := execman.Driver(func(name string) string { return vars[name] })
	if d.Name != "self_managed" || d.Title != "Self-Managed" {
		t.Errorf("the driver is %+v", d)
	}
	byName := map[string]brig.ConfigField{}
	for _, f := range schema.Fields(d.Config()) {
		byName[f.Name] = f
	}
	for name, want := range map[string]any{
		"timeout": 30, "max_retries": 3, "pool_size": 10, "max_memory": "256m",
		"executor_manager_pool_size": 5, "sandbox_timeout": "90s", "enable_seccomp": true, "executor_manager_port": 9385,
	} {
		f, ok := byName[name]
		if !ok || f.Default != want {
			t.Errorf("%s is %v by default, want %v", name, f.Default, want)
		}
		if deployed := strings.HasPrefix(name, "executor_") || name == "sandbox_timeout" || name == "enable_seccomp"; f.ReadOnly != deployed {
			t.Errorf("%s is read-only: %v", name, f.ReadOnly)
		}
	}
	for raw, want := range map[string]string{
		`{"endpoint":"http://localhost:9385"}`: "",
		`{}`:                                   "Required field 'endpoint' is missing",
		`{"endpoint":"http://localhost:9385","timeout":4}`:    "Field 'timeout' must be >= 5",
		`{"endpoint":"http://localhost:9385","timeout":"x"}`:  "Field 'timeout' must be an integer",
		`{"endpoint":"http://localhost:9385","pool_size":0}`:  "Field 'pool_size' must be >= 1",
		`{"endpoint":"http://localhost:9385","max_memory":1}`: "Field 'max_memory' must be a string",
	} {
		wrong := schema.Decode([]byte(raw), d.Config())
		if got := fmt.Sprint(wrong); (want == "") != (len(wrong) == 0) || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", raw, got, want)
		}
	}
}
