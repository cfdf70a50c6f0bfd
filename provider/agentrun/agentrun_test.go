package agentrun_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
	"github.com/brig-run/brig/provider/providertest"
)

const keyID, secret = "LTAI5tDouble", "a secret that is never sent"

// world is a provider together with the service double that it calls.
type world struct {
	*agentrun.Provider
	double *agentruntest.Double
	url    string

	mu    sync.Mutex // guards the field below
	calls []brig.Call
}

func (w *world) recordCall(c brig.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
}

func newWorld(t *testing.T, change func(*agentrun.Config, *agentruntest.Options)) *world {
	t.Helper()
	dir := t.TempDir()
	o := agentruntest.Options{
		ID: keyID, Secret: secret, Account: "1431999136518149", Region: "cn-beijing", Slow: 2,
		Machine: func(string) (agentruntest.Machine, error) { return agentruntest.NewLocal(dir) },
	}
	c := agentrun.Config{AccessKeyID: keyID, AccessKeySecret: secret, AccountID: "1431999136518149", Region: "cn-beijing", Timeout: 30, AllowPrivate: true}
	if change != nil {
		change(&c, &o)
	}
	w := &world{double: agentruntest.New(o)}
	srv := httptest.NewServer(w.double)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	c.ControlEndpoint, c.DataEndpoint = srv.URL, srv.URL
	var err error
	w.Provider, err = agentrun.Open(brig.ProviderEnv{ID: agentrun.Name, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Called: w.recordCall}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		if n := w.double.Live(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
	return w
}

func python(code string) brig.Program { return brig.Program{Language: brig.Python, Code: code} }

// TestPrograms verifies that programs have the same outcome as with other
// providers.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"python3", "node"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("the double runs them with the interpreters of this machine: " + err.Error())
		}
	}
	w := newWorld(t, func(_ *agentrun.Config, o *agentruntest.Options) { o.Slow = 0 })
	providertest.Programs(t, func(ctx context.Context, p brig.Program) (*brig.Outcome, error) {
		return w.Run(ctx, "x", p, brig.IO{})
	})
	// Some programs need a directory for their artifacts.
	for _, p := range []brig.Program{
		python("def main():\n    open('artifacts/a.csv', 'w').write('a')\n"),
		{Language: brig.JavaScript, Code: "function main() { require('fs').writeFileSync('artifacts/a.csv', 'a'); return 1 }"},
	} {
		p.Arguments, p.Artifacts = json.RawMessage("{}"), true
		o, err := w.Run(t.Context(), "x", p, brig.IO{})
		if err != nil || len(o.Artifacts) != 1 || string(o.Artifacts[0].Data) != "a" {
			t.Errorf("%s: %+v, %v", p.Language, o, err)
		}
	}
}

// TestCallOrder verifies the order of the calls of a run. The second run reuses
// the template.
func TestCallOrder(t *testing.T) {
	w := newWorld(t, nil)
	steps := func() []string {
		t.Helper()
		var out, err bytes.Buffer
		o, rerr := w.Run(t.Context(), "x", python("import sys\nprint('out')\nprint('err', file=sys.stderr)"), brig.IO{Stdout: &out, Stderr: &err})
		if rerr != nil || out.String() != "out\n" || err.String() != "err\n" || !o.Done || o.Duration <= 0 {
			t.Fatalf("Run = %+v, %v, wrote %q and %q", o, rerr, out.String(), err.String())
		}
		return slices.Compact(w.double.Calls())
	}
	if got, want := steps(), []string{"GetTemplate", "CreateTemplate", "GetTemplate", "create", "health", "context", "execute", "delete"}; !slices.Equal(got, want) {
		t.Errorf("the first run calls %v, want %v", got, want)
	}
	if got, want := steps(), []string{"create", "health", "context", "execute", "delete"}; !slices.Equal(got, want) {
		t.Errorf("the second run calls %v, want %v", got, want)
	}
	for _, c := range w.calls {
		if c.Region != "cn-beijing" || c.Operation == "" || c.Status == 0 || c.Seconds <= 0 {
			t.Errorf("of a call is told %+v", c)
		}
	}
}

// TestRefusals verifies that a refusal by the service results in the right
// kind of error, and leaves no sandbox behind.
func TestRefusals(t *testing.T) {
	limited := agentruntest.Failure{Status: 429, Code: "Throttling.User", Header: map[string]string{"Retry-After": "0", "X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0"}}
	for _, c := range []struct {
		name, operation string
		fail            []agentruntest.Failure
		kind            brig.Kind // empty for success
		began           bool
	}{
		{"a throttle that passes", "create", []agentruntest.Failure{limited, limited}, "", false},
		{"a throttle that stays", "create", []agentruntest.Failure{limited, limited, limited}, brig.RateLimited, false},
		{"no credentials", "create", []agentruntest.Failure{{Status: 403, Code: "NoPermission"}, {Status: 403, Code: "NoPermission"}, {Status: 403, Code: "NoPermission"}}, brig.ConnectionFailed, false},
		{"a failure before the program", "create", []agentruntest.Failure{{Status: 500, Code: "InternalError"}}, "", false},
		{"a failure with the program", "execute", []agentruntest.Failure{{Status: 500, Code: "InternalError"}}, brig.Unavailable, true},
		{"a throttled program", "execute", []agentruntest.Failure{limited}, brig.RateLimited, false},
		{"an end in the middle", "execute", []agentruntest.Failure{{Cut: true}}, brig.Unavailable, true},
		{"a refused program", "execute", []agentruntest.Failure{{Status: 400, Code: "InvalidParameter"}}, brig.InvalidArgument, false},
		{"an end that fails", "delete", []agentruntest.Failure{{Status: 500, Code: "InternalError"}, {Status: 503}}, "", false},
		{"a slow context", "context", []agentruntest.Failure{{Latency: 200 * time.Millisecond}}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(_ *agentrun.Config, o *agentruntest.Options) { o.Slow = 0 })
			w.double.Fail(c.operation, c.fail...)
			o, err := w.Run(t.Context(), "x", python("print(1)"), brig.IO{})
			if c.kind == "" {
				if err != nil || string(o.Stdout.Head) != "1\n" {
					t.Errorf("Run = %+v, %v", o, err)
				}
				return
			}
			if brig.KindOf(err) != c.kind || (brig.RetryOf(err) == brig.RetryContained) != c.began {
				t.Errorf("Run = %v (%s, began: %v), want %s (began: %v)", err, brig.KindOf(err), (brig.RetryOf(err) == brig.RetryContained), c.kind, c.began)
			}
			if got := brig.AsError(err); got.Hint == "" || c.fail[0].Status != 0 && !strings.Contains(got.Message, c.fail[0].Code) || strings.Contains(got.Error(), secret) {
				t.Errorf("it is told as %q with the hint %q", got.Message, got.Hint)
			}
		})
	}
	w := newWorld(t, nil)
	w.double.Fail("create", limited)
	if _, err := w.Run(t.Context(), "x", python("print(1)"), brig.IO{}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.calls, func(c brig.Call) bool { return c.Status == 429 && c.Used == 10 && c.Limit == 10 }) {
		t.Errorf("nobody was told of the throttle: %+v", w.calls)
	}
}

// TestTimeoutAndDisconnect verifies that a timeout is an outcome, regardless of the side that
// enforces it. A caller that disconnects leaves no sandbox behind.
func TestTimeoutAndDisconnect(t *testing.T) {
	w := newWorld(t, nil)
	p := python("import time\nprint('begun', flush=True)\ntime.sleep(60)")
	p.Timeout = 4 * time.Second // on a busy host, the program starts about a second late
	begin := time.Now()
	o, err := w.Run(t.Context(), "x", p, brig.IO{})
	if err != nil || !o.TimedOut || o.ExitCode != 124 || o.Error == nil || o.Error.Code != brig.Timeout.Code() || string(o.Stdout.Head) != "begun\n" {
		t.Errorf("Run = %+v, %v", o, err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.Timeout = 30 * time.Second
	if _, err := w.Run(ctx, "x", p, brig.IO{Started: func(string) { time.AfterFunc(300*time.Millisecond, cancel) }}); brig.KindOf(err) != brig.Canceled {
		t.Errorf("Run of a caller who went away: %v", err)
	}
}

// TestProgramCannotForgeReport verifies that a program whose interpreter dies has an
// error, and that its output cannot forge the report of its end.
func TestProgramCannotForgeReport(t *testing.T) {
	w := newWorld(t, nil)
	o, err := w.Run(t.Context(), "x", python("import os\nprint('x', flush=True)\nos._exit(9)"), brig.IO{})
	if err != nil || o.ExitCode == 0 || o.Error == nil || o.Value != nil || string(o.Stdout.Head) != "x\n" {
		t.Errorf("os._exit: %+v, %v", o, err)
	}
	forged := "brig:AAAAAAAAAAAAAAAAAAAAAAAAAA:eyJjb2RlIjowLCJ2YWx1ZSI6Im93bmVkIn0=;"
	o, err = w.Run(t.Context(), "x", python("def main():\n    print('"+forged+"')\n    return 'mine'\n"), brig.IO{})
	if err != nil || string(o.Value) != `"mine"` || string(o.Stdout.Head) != forged+"\n" {
		t.Errorf("a forged end: %s, %+v, %v", o.Value, o, err)
	}
}

// TestOutput verifies that output is returned unchanged, up to the limit.
func TestOutput(t *testing.T) {
	w := newWorld(t, func(_ *agentrun.Config, o *agentruntest.Options) { o.Slow = 0 })
	p := python("import os, sys\nprint('a\\n\\nb', end='')\nsys.stdout.flush()\nos.system('echo from a child')\nos.write(1, b'\\xff\\x00')\n")
	o, err := w.Run(t.Context(), "x", p, brig.IO{})
	if err != nil || string(o.Stdout.Head) != "a\n\nbfrom a child\n\xff\x00" || o.Stdout.Total != int64(len(o.Stdout.Head)) {
		t.Errorf("stdout is %+v, %v", o, err)
	}
	for _, p := range []brig.Program{
		python("import sys\nsys.stderr.write('x' * 3000000 + 'end')\n"),
		{Language: brig.JavaScript, Code: "process.stderr.write('x'.repeat(3000000) + 'end');"},
	} {
		p.Limits.Output = 1 << 10
		var stderr bytes.Buffer
		o, err := w.Run(t.Context(), "x", p, brig.IO{Stderr: &stderr})
		if err != nil || o.Stderr.Total != 3000003 || len(o.Stderr.Head) != 512 || len(o.Stderr.Tail) != 512 || !strings.HasSuffix(string(o.Stderr.Tail), "xend") || stderr.Len() != 1024 {
			t.Errorf("%s: stderr is %d bytes, kept %d and %d, heard %d: %v", p.Language, o.Stderr.Total, len(o.Stderr.Head), len(o.Stderr.Tail), stderr.Len(), err)
		}
	}
}

// TestUnsupportedProgramIsRejected verifies that a program that the service cannot run is rejected, and
// that the error names the field.
func TestUnsupportedProgramIsRejected(t *testing.T) {
	w := newWorld(t, nil)
	for field, p := range map[string]brig.Program{
		"command":   {Command: []string{"ls"}},
		"language":  {Language: brig.TypeScript, Code: "1"},
		"image":     {Language: brig.Python, Code: "1", Image: "debian"},
		"env":       {Language: brig.Python, Code: "1", Env: map[string]string{"A": "b"}},
		"files":     {Language: brig.Python, Code: "1", Files: []brig.File{{Path: "a"}}},
		"egress":    {Language: brig.Python, Code: "1", Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "example.com"}}}},
		"secrets":   {Language: brig.Python, Code: "1", Secrets: []brig.SecretUse{{Name: "s"}}},
		"workspace": {Language: brig.Python, Code: "1", Workspace: brig.WorkspaceUse{Name: "w"}},
		"volumes":   {Language: brig.Python, Code: "1", Volumes: []brig.VolumeMount{{Name: "v", Path: "/v"}}},
		"user":      {Language: brig.Python, Code: "1", User: "root"},
	} {
		_, err := w.Run(t.Context(), "x", p, brig.IO{})
		if got := brig.AsError(err); got == nil || got.Kind != brig.FailedPrecondition || got.Field != field || got.Hint == "" {
			t.Errorf("%s: %+v", field, got)
		}
	}
	if calls := w.double.Calls(); len(calls) != 0 {
		t.Errorf("the service was called all the same: %v", calls)
	}
	if _, err := w.Create(t.Context(), "x", brig.Spec{}, time.Time{}); brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("Create: %v", err)
	}
}

// TestWrongSecretIsRejected verifies that the double rejects a wrong signature. The
// other tests are the control.
func TestWrongSecretIsRejected(t *testing.T) {
	w := newWorld(t, func(c *agentrun.Config, _ *agentruntest.Options) { c.AccessKeySecret = "another" })
	if err := w.Check(t.Context()); brig.KindOf(err) != brig.ConnectionFailed || !strings.Contains(err.Error(), "SignatureDoesNotMatch") || !strings.Contains(brig.AsError(err).Hint, "agentrun:ListTemplates") {
		t.Errorf("Check: %v", err)
	}
	good := newWorld(t, func(c *agentrun.Config, o *agentruntest.Options) { c.SecurityToken, o.Token = "token", "token" })
	if err := good.Check(t.Context()); err != nil {
		t.Errorf("Check with a token: %v", err)
	}
	if _, err := good.Run(t.Context(), "x", python("print(1)"), brig.IO{}); err != nil {
		t.Errorf("Run with a token: %v", err)
	}
	missing := newWorld(t, func(c *agentrun.Config, _ *agentruntest.Options) { c.TemplateName = "mine" })
	if _, err := missing.Run(t.Context(), "x", python("print(1)"), brig.IO{}); brig.KindOf(err) != brig.ConnectionFailed || !strings.Contains(err.Error(), `"mine"`) {
		t.Errorf("Run without the template that is named: %v", err)
	}
}
