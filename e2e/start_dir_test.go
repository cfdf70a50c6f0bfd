package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestRelativePathsUseWorkingDirectory verifies that relative file paths are resolved in the working directory of
// commands: over REST, over MCP and, in a sandbox without its own working directory, for code.
// The suites of other clients cover the other APIs: E2B's (relative in e2e/e2b/sandbox.py), the
// kernel gateway's (relative_paths in e2e/smolagents/suite.py), Letta's (e2e/letta/tools.mjs),
// and TestExecmanVerdicts.
//
//suite:part core
func TestRelativePathsUseWorkingDirectory(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c, ctx := s.client(), t.Context()
	for _, spec := range []brig.Spec{{Name: "plain"}, {Name: "told", Dir: "/tmp"}} {
		spec.TTL = 10 * time.Minute
		if _, err := c.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"plain": "/workspace", "told": "/tmp"} {
		command := func(script string) string {
			t.Helper()
			var out strings.Builder
			res, err := c.Exec(ctx, name, brig.Command{Shell: script}, brig.IO{Stdout: &out})
			if err != nil || res.ExitCode != 0 {
				t.Fatalf("%s: %+v, %v", script, res, err)
			}
			return strings.TrimSpace(out.String())
		}
		fs := c.Files(name)
		if _, err := fs.Write(ctx, brig.Path{Name: "rest/in"}, brig.FileWrite{}, strings.NewReader("by REST")); err != nil {
			t.Fatal(err)
		}
		if got := command("cat rest/in; echo; pwd; echo -n by command >rest/out"); got != "by REST\n"+dir {
			t.Errorf("%s: a command reads %q", name, got)
		}
		_, r, err := fs.Read(ctx, brig.Path{Name: "rest/out"}, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != "by command" {
			t.Errorf("%s: REST reads %q, %v", name, b, err)
		}
		_ = r.Close()
		s.tool("write_file", map[string]any{"sandbox": name, "path": "mcp/in", "text": "by MCP"})
		if got := s.tool("run_shell", map[string]any{"sandbox": name, "command": "cat mcp/in; echo by shell >mcp/out"}); !strings.Contains(got, "by MCP") {
			t.Errorf("%s: MCP's shell reads %s", name, got)
		}
		for tool, args := range map[string]map[string]any{
			"read_file":  {"sandbox": name, "path": "mcp/out"},
			"list_files": {"sandbox": name, "depth": 2},
			"run_code":   {"sandbox": name, "code": "print(open('mcp/out').read(), open('rest/in').read())"},
		} {
			if tool == "run_code" && name == "told" {
				continue // interpreters start in /workspace
			}
			want := map[string]string{"read_file": "by shell", "list_files": dir + "/mcp/out", "run_code": "by shell\\n by REST"}[tool]
			if got := s.tool(tool, args); !strings.Contains(got, want) {
				t.Errorf("%s: %s says %s, want %s", name, tool, got, want)
			}
		}
	}
}

// tool calls one of the server's MCP tools and returns the result as JSON.
func (s *server) tool(name string, args map[string]any) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": name, "arguments": args,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+"/mcp", strings.NewReader(string(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Authorization": "Bearer " + s.key, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %s %v", name, resp.Status, b, err)
	}
	return string(b)
}

// TestPythonCommandExists verifies that the command python exists if python3 exists: for both
// users, and in commands, scripts and login shells.
//
//suite:part core
func TestPythonCommandExists(t *testing.T) {
	e, ctx := newEngine(t)
	box, err := e.Create(ctx, brig.Spec{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"user", "root"} {
		for _, cmd := range []brig.Command{
			{Argv: []string{"python3", "-c", "print(6*7)"}}, // the control
			{Argv: []string{"python", "-c", "print(6*7)"}},
			{Shell: "python -c 'print(6*7)'"},
			{Shell: "bash -lc 'python -c \"print(6*7)\"'"},
			{Shell: "printf '#!/usr/bin/env python\\nprint(6*7)\\n' >/tmp/script-$USER; chmod +x /tmp/script-$USER; /tmp/script-$USER"},
			{Shell: "echo 'import subprocess; print(subprocess.check_output([\"python\", \"-c\", \"print(6*7)\"]).decode())' | python"},
		} {
			cmd.User = user
			var out, errs strings.Builder
			res, err := e.Exec(ctx, string(box.ID), cmd, brig.IO{Stdout: &out, Stderr: &errs})
			if err != nil || res.ExitCode != 0 || strings.TrimSpace(out.String()) != "42" {
				t.Errorf("%s: %q%q: %+v, %v: %q %q", user, cmd.Argv, cmd.Shell, res, err, out.String(), errs.String())
			}
		}
	}
}

// TestCommandCanInstallPackages verifies that a command can install packages with pip in addition
// to the packages of the image's distribution. The control is the same command without the
// image's pip configuration.
//
//suite:part core
func TestCommandCanInstallPackages(t *testing.T) {
	needRoot(t)
	x := newIndex(t)
	e, ctx := withPackages(t, x, withPackagesAllowed(t))
	for _, user := range []string{"user", "root"} {
		box, err := e.Create(ctx, brig.Spec{TTL: 10 * time.Minute, Egress: toPackages()})
		if err != nil {
			t.Fatal(err)
		}
		pip := func(env map[string]string) (int, string) {
			t.Helper()
			env["PIP_INDEX_URL"], env["PIP_TRUSTED_HOST"] = "http://"+packageHost+"/simple", packageHost
			var out strings.Builder
			res, err := e.Exec(ctx, string(box.ID), brig.Command{
				Shell: "pip install brigtestgreet==1.0 && python -c 'import brigtestgreet as b; print(\"has\", b.VERSION)'", User: user, Env: env, Timeout: 2 * time.Minute,
			}, brig.IO{Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			return res.ExitCode, out.String()
		}
		if managed, _ := filepath.Glob("/usr/lib/python3*/EXTERNALLY-MANAGED"); len(managed) > 0 {
			if code, out := pip(map[string]string{"PIP_CONFIG_FILE": os.DevNull}); code == 0 || !strings.Contains(out, "externally-managed-environment") {
				t.Errorf("the control of %s: %d %s", user, code, out)
			}
		}
		if code, out := pip(map[string]string{}); code != 0 || !strings.Contains(out, "has 1.0") {
			t.Errorf("%s: %d %s", user, code, out)
		}
	}
}
