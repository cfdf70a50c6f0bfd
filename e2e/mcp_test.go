package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// TestMCPClients runs the published MCP clients of both generations: over HTTP, and over the
// standard streams of a command that uses a server or its own engine.
//
//suite:part clients full
func TestMCPClients(t *testing.T) {
	needRoot(t)
	s := stopServer(t, startServer(t, t.TempDir(), "--pool", "1"))
	scripts := npm(t, "mcp")
	const checks = 12
	for _, c := range []struct {
		name, generation string
		env              []string
	}{
		{"sessions over HTTP", "sdk", []string{"BRIG_MCP_URL=" + s.url + "/mcp"}},
		{"no sessions over HTTP", "client", []string{"BRIG_MCP_URL=" + s.url + "/mcp"}},
		{"a command before a server", "sdk", mcpCommand(t, "mcp", "--url", s.url)},
		{"a command alone", "client", mcpCommand(t, "mcp", "--data-dir", dataDir(t))},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", "tools.mjs")
			cmd.Dir = scripts
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "BRIG_API_KEY=" + s.key, "BRIG_MCP_CLIENT=" + c.generation}, c.env...)
			report(t, cmd, checks)
		})
	}
	t.Run("the inspector", func(t *testing.T) { inspect(t, s, scripts) })
	t.Run("calls are recorded", func(t *testing.T) {
		page, err := s.client().Audit(t.Context(), brig.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, e := range page.Lines {
			seen[e.Op] = true
		}
		for _, op := range []string{"run", "sandbox.create", "sandbox.exec", "context.run", "file.write", "process.start", "sandbox.pause", "sandbox.resume", "sandbox.fork", "sandbox.remove"} {
			if !seen[op] {
				t.Errorf("the audit log has no %s: %v", op, seen)
			}
		}
	})
}

// mcpCommand returns the environment variables for a script whose client starts brig with the
// given arguments.
func mcpCommand(t *testing.T, args ...string) []string {
	t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"BRIG_MCP_COMMAND=" + bin(t, "brig"), "BRIG_MCP_ARGS=" + string(b)}
}

// inspect sends requests with the command line of the reference inspector.
func inspect(t *testing.T, s *server, dir string) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--method", "tools/list"}, `"name": "run_code"`},
		{[]string{"--method", "tools/call", "--tool-name", "run_code", "--tool-arg", "code=print(6*7)"}, `"stdout": "42\n"`},
		{[]string{"--method", "resources/templates/list"}, `brig://sandboxes/{sandbox}/log`},
	} {
		cmd := exec.CommandContext(t.Context(), "node_modules/.bin/mcp-inspector", append([]string{"--cli", s.url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + s.key}, c.args...)...)
		cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
	}
}

// line is an HTTP transport that adds a key to requests and whose connections can be cut.
type line struct {
	http.Transport
	key string

	mu    sync.Mutex // guards the field below
	conns []net.Conn
}

func newLine(key string) *line {
	l := &line{key: key}
	l.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
		return c, err
	}
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+l.key)
	return l.Transport.RoundTrip(r)
}

// cut closes all connections, including those in use.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// TestMCPCancelEndsPrograms verifies, by the CPU time on the host, that the program of a call
// ends when the call is canceled or its client disconnects. A program in a new sandbox ends
// together with the sandbox. As a control, the CPU time increases before the cancellation.
//
//suite:part clients
func TestMCPCancelEndsPrograms(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	s := stopServer(t, startServer(t, dir, "--pool", "0"))
	svc := s.client()
	for _, old := range []bool{true, false} {
		for _, how := range []string{"cancelled", "gone"} {
			t.Run(fmt.Sprintf("%s, sessions %v", how, old), func(t *testing.T) {
				box, err := svc.Create(t.Context(), brig.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				for _, tool := range []string{"run_shell", "run_code"} {
					args := map[string]any{"sandbox": box.Spec.Name, "command": "while :; do :; done", "timeout_seconds": 600}
					if tool == "run_code" {
						args = map[string]any{"sandbox": box.Spec.Name, "code": "while True: pass", "timeout_seconds": 600}
					}
					end := startCancelableCall(t, s, tool, args, old, how)
					busy := func() time.Duration {
						before := cpuTime(t, dir, box.ID)
						time.Sleep(300 * time.Millisecond)
						return cpuTime(t, dir, box.ID) - before
					}
					eventually(t, tool+" runs", func() bool { return busy() > 30*time.Millisecond })
					end()
					eventually(t, tool+" has ended", func() bool { return busy() < 15*time.Millisecond })
				}
				if err := svc.Remove(t.Context(), box.Spec.Name); err != nil {
					t.Error(err)
				}
				end := startCancelableCall(t, s, "run_code", map[string]any{"code": "import time\ntime.sleep(600)", "timeout_seconds": 600}, old, how)
				eventually(t, "a sandbox of its own", func() bool { return countShims(dir) == 1 })
				end()
				eventually(t, "its end", func() bool { return countShims(dir) == 0 })
			})
		}
	}
}

// countShims counts the shim processes of a server's sandboxes on the host.
func countShims(dir string) (n int) {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		b, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if strings.HasPrefix(string(b), "brig-shim") && strings.Contains(string(b), dir+"/sandboxes/") {
			n++
		}
	}
	return n
}

// startCancelableCall starts a call, and returns a function that cancels it.
func startCancelableCall(t *testing.T, s *server, tool string, args any, old bool, how string) (end func()) {
	t.Helper()
	transport := newLine(s.key)
	o := &sdk.ClientSessionOptions{}
	if old {
		o.ProtocolVersion = "2025-11-25"
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1}, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args}); over <- err }()
	t.Cleanup(func() { cancel(); c.Close() })
	return func() {
		if how == "gone" {
			transport.cut()
		} else {
			cancel()
		}
		select {
		case <-over:
		case <-time.After(promptTimeout):
			t.Error("the client waits on")
		}
	}
}
