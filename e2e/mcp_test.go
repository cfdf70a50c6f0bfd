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

// The protocol's own clients, of both generations, as published: over HTTP, and
// on the streams of a command that has a server or this machine's engine behind
// it.
//
//suite:part clients full
func TestMCPClients(t *testing.T) {
	needRoot(t)
	s := endGently(t, startServer(t, t.TempDir(), "--pool", "1"))
	scripts := npm(t, "mcp")
	const checks = 11
	for _, c := range []struct {
		name, generation string
		env              []string
	}{
		{"sessions over HTTP", "sdk", []string{"BRIG_MCP_URL=" + s.url + "/mcp"}},
		{"no sessions over HTTP", "client", []string{"BRIG_MCP_URL=" + s.url + "/mcp"}},
		{"a command before a server", "sdk", mcpCommand(t, "mcp", "--url", s.url)},
		{"a command alone", "client", mcpCommand(t, "mcp", "--data-dir", t.TempDir())},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", "tools.mjs")
			cmd.Dir = scripts
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "BRIG_API_KEY=" + s.key, "BRIG_MCP_CLIENT=" + c.generation}, c.env...)
			report(t, cmd, checks)
		})
	}
	t.Run("the inspector", func(t *testing.T) { inspect(t, s, scripts) })
	t.Run("it is on record", func(t *testing.T) {
		page, err := s.client().Audit(t.Context(), brig.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, e := range page.Lines {
			seen[e.Op] = true
		}
		for _, op := range []string{"run", "sandbox.create", "sandbox.exec", "context.run", "file.write", "process.start", "sandbox.remove"} {
			if !seen[op] {
				t.Errorf("the audit log has no %s: %v", op, seen)
			}
		}
	})
}

// mcpCommand is the environment of a script whose client starts a command.
func mcpCommand(t *testing.T, args ...string) []string {
	t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"BRIG_MCP_COMMAND=" + bin(t, "brig"), "BRIG_MCP_ARGS=" + string(b)}
}

// inspect asks with the reference inspector's command line.
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

// line is a client's way to a server: it has a key, and can be cut.
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

// cut closes what there is, in the middle of whatever goes on.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// A call that is cancelled, or whose client goes away, ends its program: the host's own count of processor time says so. The
// control: before that, the same count goes up. A program of a fresh sandbox
// takes its sandbox with it.
//
//suite:part clients
func TestMCPCancelEndsPrograms(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	s := endGently(t, startServer(t, dir, "--pool", "0"))
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
					end := callAndLeave(t, s, tool, args, old, how)
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
				end := callAndLeave(t, s, "run_code", map[string]any{"code": "import time\ntime.sleep(600)", "timeout_seconds": 600}, old, how)
				eventually(t, "a sandbox of its own", func() bool { return shims(dir) == 1 })
				end()
				eventually(t, "its end", func() bool { return shims(dir) == 0 })
			})
		}
	}
}

// shims counts the processes of the host that look after a server's sandboxes.
func shims(dir string) (n int) {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		b, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if strings.HasPrefix(string(b), "brig-shim") && strings.Contains(string(b), dir+"/sandboxes/") {
			n++
		}
	}
	return n
}

// callAndLeave begins a call, and returns what ends it.
func callAndLeave(t *testing.T, s *server, tool string, args any, old bool, how string) (end func()) {
	t.Helper()
	way := newLine(s.key)
	o := &sdk.ClientSessionOptions{}
	if old {
		o.ProtocolVersion = "2025-11-25"
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: way}, MaxRetries: -1}, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args}); over <- err }()
	t.Cleanup(func() { cancel(); c.Close() })
	return func() {
		if how == "gone" {
			way.cut()
		} else {
			cancel()
		}
		select {
		case <-over:
		case <-time.After(patience):
			t.Error("the client waits on")
		}
	}
}
