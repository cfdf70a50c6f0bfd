package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/mcp"
	"github.com/brig-run/brig/internal/attack"
)

// mcpRows maps each tool to arguments with which acme's call succeeds, or fails only because its
// target in the sandbox is missing.
var mcpRows = map[string]string{
	"run_code": `{"sandbox":"acmes-box","code":"1"}`, "run_shell": `{"sandbox":"acmes-box","command":"echo"}`,
	"create_sandbox": `{"labels":{"a":"b"}}`, "list_sandboxes": `{}`, "get_sandbox": `{"sandbox":"acmes-box"}`,
	"extend_sandbox": `{"sandbox":"acmes-box","ttl_seconds":60}`, "remove_sandbox": `{"sandbox":"acmes-box"}`,
	"pause_sandbox": `{"sandbox":"acmes-box"}`, "resume_sandbox": `{"sandbox":"acmes-box"}`, "fork_sandbox": `{"sandbox":"acmes-box","labels":{"a":"b"}}`,
	"create_context": `{"sandbox":"acmes-box"}`, "list_contexts": `{"sandbox":"acmes-box"}`,
	"interrupt_context": `{"sandbox":"acmes-box","context":"default-python"}`, "restart_context": `{"sandbox":"acmes-box","context":"default-python"}`,
	"remove_context": `{"sandbox":"acmes-box","context":"default-python"}`,
	"read_file":      `{"sandbox":"acmes-box","path":"/w/x"}`, "write_file": `{"sandbox":"acmes-box","path":"/w/x","text":"x"}`,
	"list_files": `{"sandbox":"acmes-box","path":"/w"}`, "remove_file": `{"sandbox":"acmes-box","path":"/w/x"}`,
	"start_process": `{"sandbox":"acmes-box","command":"echo"}`, "list_processes": `{"sandbox":"acmes-box"}`,
	"process_output": `{"sandbox":"acmes-box","pid":4711}`, "signal_process": `{"sandbox":"acmes-box","pid":4711}`,
	"http_request": `{"sandbox":"acmes-box","port":80}`, "read_log": `{"sandbox":"acmes-box"}`,
	"list_images": `{}`, "pull_image": `{"ref":"x"}`, "list_templates": `{}`,
}

// mcpReadOnlyTools lists the read-only tools, which a viewer may use.
var mcpReadOnlyTools = "list_sandboxes get_sandbox list_contexts read_file list_files list_processes process_output read_log list_images list_templates "

// mcp sends a request in the protocol version without sessions.
func (m *matrix) mcp(t *testing.T, who, method, params string) response {
	t.Helper()
	const version = "2026-07-28"
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}},%s}}`, method, version, params)
	var named struct{ Name, URI string }
	if err := json.Unmarshal([]byte("{"+params+"}"), &named); err != nil {
		t.Fatal(err)
	}
	return m.sendMCP(t, who, body, "Mcp-Protocol-Version", version, "Mcp-Method", method, "Mcp-Name", named.Name+named.URI)
}

func (m *matrix) tool(t *testing.T, who, name, args string) response {
	t.Helper()
	return m.mcp(t, who, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, args))
}

// sendMCP sends a request to the MCP endpoint, with headers as names and values.
func (m *matrix) sendMCP(t *testing.T, who, body string, headers ...string) response {
	t.Helper()
	x := &e2bMatrix{m: m, url: m.url}
	all := append([]string{"Accept", "application/json, text/event-stream"}, headers...)
	if key := m.keys[who]; key != "" {
		all = append(all, "Authorization", "Bearer "+key)
	}
	return x.send(t, http.MethodPost, mcp.Path, body, all...)
}

// mcpForeign verifies that the responses for acme's sandbox and for a sandbox that never existed
// are the same.
func (m *matrix) mcpForeign(errorf func(string, ...any), what string, got, none response) {
	body := strings.ReplaceAll(none.body, "acma", "acme")
	if got.status != none.status || got.body != body {
		errorf("%s: %d %s, and of what never was %d %s", what, got.status, got.body, none.status, none.body)
	}
}

// TestMCPTenancyMatrix tests every tool with all callers that lack access. Callers without a
// valid key must receive 401, and callers without the role or the scope must receive an error.
// Another tenant must receive the same bytes as for a sandbox that never existed.
//
//suite:part hostile
func TestMCPTenancyMatrix(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	before := m.state()
	for _, name := range m.toolNames(t) {
		args, ok := mcpRows[name]
		if !ok {
			t.Errorf("%q has no row in mcpRows: say with which arguments it would succeed", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			attack.Case(t, "API-01", "MCP: "+name+" by everybody who may not")
			nonexistent := strings.ReplaceAll(args, "acme", "acma")
			bad := m.tool(t, "bad", name, args)
			for _, who := range []string{"none", "bad", "revoked", "expired"} {
				got := m.tool(t, who, name, args)
				if got.status != http.StatusUnauthorized || who != "none" && got.body != bad.body {
					t.Errorf("%s: %d %s, and to a bad key %s", who, got.status, got.body, bad.body)
				}
				m.mcpForeign(t.Errorf, who, got, m.tool(t, who, name, nonexistent))
			}
			got := m.tool(t, "scoped", name, args)
			if !strings.Contains(got.body, `"code":"SB012"`) {
				t.Errorf("beyond its scope: %s", got.body)
			}
			m.mcpForeign(t.Errorf, "scoped", got, m.tool(t, "scoped", name, nonexistent))
			got = m.tool(t, "viewer", name, args)
			if allowed := strings.Contains(mcpReadOnlyTools, name+" "); strings.Contains(got.body, `"code":"SB012"`) == allowed {
				t.Errorf("a viewer is told %s", got.body)
			}
			for _, who := range []string{"other member", "other admin"} {
				got := m.tool(t, who, name, args)
				if !strings.Contains(args, "acmes-box") {
					if strings.Contains(got.body, "acme") {
						t.Errorf("%s is told of acme's: %s", who, got.body)
					}
					continue
				}
				if !strings.Contains(got.body, `"code":"SB013"`) {
					t.Errorf("%s: %s", who, got.body)
				}
				m.mcpForeign(t.Errorf, who, got, m.tool(t, who, name, nonexistent))
			}
			if after := m.state(); after != before {
				t.Errorf("acme had %s and has %s", before, after)
			}
		})
	}
	t.Run("resources", func(t *testing.T) { m.mcpResources(t) })
	t.Run("sessions", func(t *testing.T) { m.mcpSessions(t) })
}

func (m *matrix) toolNames(t *testing.T) (names []string) {
	t.Helper()
	got := m.mcp(t, "owner", "tools/list", `"cursor":""`)
	_, data, _ := strings.Cut(got.body, "data: ")
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(data), &list); err != nil || len(list.Result.Tools) != len(mcpRows) {
		t.Fatalf("%d tools, %d rows: %v: %s", len(list.Result.Tools), len(mcpRows), err, got.body)
	}
	for _, x := range list.Result.Tools {
		names = append(names, x.Name)
	}
	return names
}

func (m *matrix) mcpResources(t *testing.T) {
	for _, who := range []string{"other member", "other admin", "scoped"} {
		for _, uri := range []string{"brig://sandboxes/acmes-box/log", "brig://sandboxes/acmes-box/files/w/x"} {
			attack.Case(t, "API-01", "MCP: "+uri+" as "+who)
			read := func(uri string) response { return m.mcp(t, who, "resources/read", fmt.Sprintf(`"uri":%q`, uri)) }
			got := read(uri)
			if !strings.Contains(got.body, `"error":{"code":-`) {
				t.Errorf("%s reads %s: %s", who, uri, got.body)
			}
			m.mcpForeign(t.Errorf, who+" "+uri, got, read(strings.ReplaceAll(uri, "acme", "acma")))
		}
		if got := m.mcp(t, who, "resources/list", `"cursor":""`); strings.Contains(got.body, "acme") {
			t.Errorf("%s lists acme's: %s", who, got.body)
		}
	}
	if got := m.mcp(t, "owner", "resources/list", `"cursor":""`); !strings.Contains(got.body, "acmes-box") {
		t.Errorf("the owner lists %s", got.body)
	}
}

// mcpSessions verifies that a session appears nonexistent to all callers except its creator.
func (m *matrix) mcpSessions(t *testing.T) {
	session := m.sendMCP(t, "owner", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	id := session.header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatalf("it is not begun: %d %s", session.status, session.body)
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_sandbox","arguments":{"sandbox":"acmes-box"}}}`
	ask := func(who, id string) response { return m.sendMCP(t, who, call, "Mcp-Session-Id", id) }
	for _, who := range []string{"other member", "other admin", "viewer", "scoped"} {
		attack.Case(t, "API-01", "MCP: the session of somebody else, as "+who)
		got, none := ask(who, id), ask(who, id[:len(id)-4]+"AAAA")
		if got.status != http.StatusNotFound || got.body != none.body {
			t.Errorf("%s: %d %s, and of what never was %d %s", who, got.status, got.body, none.status, none.body)
		}
	}
	if got := ask("owner", id); got.status != http.StatusOK || !strings.Contains(got.body, `"name":"acmes-box"`) {
		t.Errorf("its owner is told %d %s", got.status, got.body)
	}
}

// TestMCPTenancyMatrixDetectsRevealedSandboxes verifies that the matrix detects a server that
// reveals one tenant's sandboxes to another.
//
//suite:part hostile
func TestMCPTenancyMatrixDetectsRevealedSandboxes(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return leakyStore{s} })
	for _, name := range []string{"get_sandbox", "run_shell"} {
		seen, args := 0, mcpRows[name]
		nonexistent := strings.ReplaceAll(args, "acme", "acma")
		m.mcpForeign(func(string, ...any) { seen++ }, name, m.tool(t, "other member", name, args), m.tool(t, "other member", name, nonexistent))
		if seen == 0 {
			t.Errorf("%s: nothing was seen of a server that leaks", name)
		}
		attack.RecordMutant("API-01", "MCP: "+name, "the tenant in the store's query", seen > 0)
	}
}
