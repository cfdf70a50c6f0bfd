package e2e

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// apiRow describes the request for one route of an API that is not in
// docs/openapi.json. The owner's request must succeed.
type apiRow struct {
	op    brig.Op // the operation whose role and scope the caller needs; zero if any key is sufficient
	body  string
	query string
	want  int // status of the owner's response
}

// apiCase is a test case for one route of an API with an object of acme.
type apiCase struct {
	m       *matrix
	errorf  func(format string, args ...any)
	method  string
	path    string            // contains names of acme's objects
	names   map[string]string // maps acme's names in the path and query to unused names of the same format
	row     apiRow
	headers []string
	keyless int           // status of the response to a caller without a valid key
	scheme  string        // scheme of the Authorization header
	state   func() string // returns the state of acme's objects
	secrets []string      // strings of acme that no other tenant may receive
}

// send sends the request as one of the callers. If missing is set, the names in the request refer
// to objects that never existed.
func (c apiCase) send(t *testing.T, who string, missing bool) response {
	t.Helper()
	path := c.path
	if c.row.query != "" {
		path += "?" + c.row.query
	}
	if missing {
		path = c.replaceNames(path)
	}
	headers := slices.Clone(c.headers)
	if key := c.m.keys[who]; key != "" {
		headers = append(headers, "Authorization", c.scheme+" "+key)
	}
	return c.m.request(t, c.method, path, c.row.body, headers...)
}

// replaceNames replaces acme's names with names of objects that never existed.
func (c apiCase) replaceNames(text string) string {
	for acmeName, missing := range c.names {
		text = strings.ReplaceAll(text, acmeName, missing)
	}
	return text
}

// request sends a request, with headers as names and values, from a new client address. It does
// not read the data of upgraded connections.
func (m *matrix) request(t *testing.T, method, path, body string, headers ...string) response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), promptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := m.newClientAddress().Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	var b []byte
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if b, err = io.ReadAll(resp.Body); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	for _, h := range []string{"X-Request-Id", "Date"} {
		resp.Header.Del(h)
	}
	return response{resp.StatusCode, string(b), resp.Header}
}

// check sends the request as every caller that lacks access, and then as the
// owner.
func (c apiCase) check(t *testing.T) {
	before := c.state()
	unchanged := func(who string) {
		if after := c.state(); after != before {
			c.errorf("after the request as %s acme has %s, before %s", who, after, before)
		}
	}
	bad := c.send(t, "bad", false)
	for _, who := range []string{"none", "bad", "revoked", "expired"} {
		got := c.send(t, who, false)
		if got.status != c.keyless || who != "none" && got.body != bad.body {
			c.errorf("%s: %d %s, and a bad key %s; want %d", who, got.status, got.body, bad.body, c.keyless)
		}
		c.checkSameAsMissing(who, got, c.send(t, who, true))
		unchanged(who)
	}
	if c.row.op.Name != "" {
		got := c.send(t, "scoped", false)
		if got.status != http.StatusForbidden {
			c.errorf("beyond its scope: %d %s, want 403", got.status, got.body)
		}
		c.checkSameAsMissing("scoped", got, c.send(t, "scoped", true))
		unchanged("scoped")
	}
	want := http.StatusForbidden
	if c.row.op.Role <= brig.Viewer {
		want = c.row.want
	}
	if got := c.send(t, "viewer", false); got.status != want {
		c.errorf("viewer: %d %s, want %d", got.status, got.body, want)
	}
	unchanged("viewer")
	c.checkForeign(t)
	unchanged("another tenant")
	if got := c.send(t, "owner", false); got.status != c.row.want {
		c.errorf("owner: %d %s, want %d", got.status, got.body, c.row.want)
	}
}

// checkForeign verifies that another tenant gets the same response for acme's object as for an
// object that never existed. If the request names no object, the response must not contain data
// of acme.
func (c apiCase) checkForeign(t *testing.T) {
	before := c.state()
	for _, who := range []string{"other member", "other admin"} {
		got := c.send(t, who, false)
		if c.named() {
			if got.status != http.StatusNotFound {
				c.errorf("%s: %d %s, want 404", who, got.status, got.body)
			}
			c.checkSameAsMissing(who, got, c.send(t, who, true))
		} else if got.status != c.row.want && got.status != http.StatusNotFound { // 404 if the route requires an object of the caller
			c.errorf("%s: %d %s, want %d", who, got.status, got.body, c.row.want)
		}
		for _, secret := range c.secrets {
			if strings.Contains(got.body+fmt.Sprint(got.header), secret) && !strings.Contains(c.path+c.row.query, secret) {
				c.errorf("%s receives %q: %s", who, secret, got.body)
			}
		}
		if after := c.state(); after != before {
			c.errorf("after the request as %s acme has %s, before %s", who, after, before)
		}
	}
}

// named reports whether the request names an object of acme.
func (c apiCase) named() bool {
	text := c.path + "?" + c.row.query
	return c.replaceNames(text) != text
}

// checkSameAsMissing verifies that the responses for acme's object and for an object that never
// existed are the same.
func (c apiCase) checkSameAsMissing(who string, got, missing response) {
	if got.status != missing.status || c.replaceNames(got.body) != missing.body {
		c.errorf("%s: %d %s, and for a missing object %d %s", who, got.status, got.body, missing.status, missing.body)
	}
	if !maps.EqualFunc(got.header, missing.header, slices.Equal) {
		c.errorf("%s: headers %v, and for a missing object %v", who, got.header, missing.header)
	}
}

// routeTable returns the method and path of each route in the function named routes of a source
// file. It evaluates the constants and variables in the table.
func routeTable(t *testing.T, file string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil {
				return s
			}
		case *ast.Ident:
			return constants[e.Name]
		case *ast.SelectorExpr: // http.MethodGet
			if method, ok := strings.CutPrefix(e.Sel.Name, "Method"); ok {
				return strings.ToUpper(method)
			}
		case *ast.BinaryExpr:
			if a, b := text(e.X), text(e.Y); e.Op == token.ADD && a != "" && b != "" {
				return a + b
			}
		}
		return ""
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, v := range n.Values {
				constants[n.Names[i].Name] = text(v)
			}
		case *ast.FuncDecl:
			return n.Name.Name == "routes"
		case *ast.AssignStmt:
			for i, v := range n.Rhs {
				if name, ok := n.Lhs[i].(*ast.Ident); ok {
					constants[name.Name] = text(v)
				}
			}
		case *ast.CompositeLit:
			if n.Type != nil {
				return true
			}
			method, path := text(n.Elts[0]), text(n.Elts[1])
			if method == "" || !strings.HasPrefix(path, "/") {
				t.Errorf("%s: cannot read row %d of the routes", file, len(out)+1)
			}
			out = append(out, method+" "+path)
			return false
		}
		return true
	})
	return out
}

// rowErrors returns the differences between the routes of an API and the rows of
// its matrix.
func rowErrors(routes, rows []string) (out []string) {
	for _, route := range routes {
		if !slices.Contains(rows, route) {
			out = append(out, fmt.Sprintf("%q has no row: add the request with which its owner succeeds", route))
		}
	}
	for _, row := range rows {
		if !slices.Contains(routes, row) {
			out = append(out, fmt.Sprintf("there is no route %q any more", row))
		}
	}
	return out
}

// checkRows verifies that each route in a source file has rows, and that the check itself fails
// if any row is removed.
func checkRows(t *testing.T, file string, rows map[string][]apiRow) {
	t.Helper()
	routes, names := routeTable(t, file), slices.Sorted(maps.Keys(rows))
	for _, e := range rowErrors(routes, names) {
		t.Error(e)
	}
	if len(rowErrors(routes, names[1:])) == 0 {
		t.Errorf("%s: a route without a row is not detected", names[0])
	}
}

const lettaTool = `{"source_code":"def f():\n    return 1\n","name":"f","args":{}}`

// lettaRows maps each route of Letta's API to its rows.
var lettaRows = map[string][]apiRow{
	"POST /v1/tools/run": {{op: brig.OpRunTool, body: lettaTool, want: 200}},
	"POST /v1/agents/{agent_id}/tools/{tool_name}/run": {{op: brig.OpRunTool, body: `{"args":{}}`, want: 404}}, // there are no agents
	"POST /v1/sandbox-config":                          {{op: brig.OpPutToolSetup, body: `{"config":{"sandbox_dir":"x"}}`, want: 200}},
	"GET /v1/sandbox-config": {
		{op: brig.OpToolSetups, want: 200}, {op: brig.OpToolSetups, query: "after={config}", want: 200}, {op: brig.OpToolSetups, query: "cursor={config}", want: 200},
	},
	"POST /v1/sandbox-config/e2b/default":                       {{op: brig.OpPutToolSetup, want: 200}},
	"POST /v1/sandbox-config/local/default":                     {{op: brig.OpPutToolSetup, want: 200}},
	"POST /v1/sandbox-config/local":                             {{op: brig.OpPutToolSetup, body: `{"sandbox_dir":"x"}`, want: 200}},
	"POST /v1/sandbox-config/local/recreate-venv":               {{op: brig.OpRenewToolSetup, want: 200}},
	"PATCH /v1/sandbox-config/environment-variable/{variable}":  {{op: brig.OpChangeToolVariable, body: `{"value":"changed"}`, want: 200}},
	"DELETE /v1/sandbox-config/environment-variable/{variable}": {{op: brig.OpRemoveToolVariable, want: 204}},
	"PATCH /v1/sandbox-config/{config}":                         {{op: brig.OpPutToolSetup, body: `{"config":{"timeout":60}}`, want: 200}},
	"DELETE /v1/sandbox-config/{config}":                        {{op: brig.OpRemoveToolSetup, want: 204}},
	"POST /v1/sandbox-config/{config}/environment-variable":     {{op: brig.OpPutToolVariable, body: `{"key":"NEW","value":"x"}`, want: 200}},
	"GET /v1/sandbox-config/{config}/environment-variable":      {{op: brig.OpToolVariables, want: 200}, {op: brig.OpToolVariables, query: "after={variable}", want: 200}},
}

// lettaCase creates acme's setups and variable, and returns a test case that uses them.
func (m *matrix) lettaCase(t *testing.T, route string, row apiRow) apiCase {
	t.Helper()
	ctx := brig.WithActor(t.Context(), brig.Actor{Name: "owner", Tenant: "acme", Role: brig.Operator})
	if _, err := m.engine.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal}); err != nil {
		t.Fatal(err)
	}
	setup, err := m.engine.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolE2B})
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.engine.PutToolVariable(ctx, brig.ToolVariable{Setup: setup.ID, Key: "ACMES_KEY", Value: "acmes-value", Description: "acmes"})
	if err != nil {
		t.Fatal(err)
	}
	method, path, _ := strings.Cut(route, " ")
	fill := strings.NewReplacer("{config}", "sandbox-"+setup.ID, "{variable}", "sandbox-env-"+v.ID, "{agent_id}", "agent-x", "{tool_name}", "f")
	row.query = fill.Replace(row.query)
	return apiCase{
		m: m, errorf: t.Errorf, method: method, path: fill.Replace(path), row: row, scheme: "Bearer", keyless: http.StatusUnauthorized,
		names:   map[string]string{setup.ID: setup.ID[:len(setup.ID)-4] + "0000", v.ID: v.ID[:len(v.ID)-4] + "0000"},
		secrets: []string{"acme", "ACMES", setup.ID, v.ID},
		state: func() string {
			list, err := m.engine.ToolSetups(ctx)
			if err != nil {
				return err.Error()
			}
			var b strings.Builder
			b.WriteString(m.state())
			for _, s := range list {
				variables, err := m.engine.ToolVariables(ctx, s.ID)
				fmt.Fprint(&b, " ", s.ID, s.Kind, string(s.Config), s.Updated.Format(time.RFC3339Nano), err)
				for _, v := range variables {
					fmt.Fprintf(&b, " %+v", *v)
				}
			}
			return b.String()
		},
	}
}

// TestLettaTenancyMatrix tests every route of Letta's API with all callers that lack access. For
// acme's setups and variables, another tenant must receive the same bytes as for objects that
// never existed. Rejected requests must not change the objects.
//
//suite:part hostile
func TestLettaTenancyMatrix(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	checkRows(t, "../api/letta/letta.go", lettaRows)
	for _, route := range slices.Sorted(maps.Keys(lettaRows)) {
		for _, row := range lettaRows[route] {
			for _, slash := range []string{"", "/"} { // clients send both variants
				name := route + slash + " " + row.query
				t.Run(name, func(t *testing.T) {
					attack.Case(t, "API-01", "Letta: "+strings.TrimSpace(name)+" by callers without access")
					c := m.lettaCase(t, route+slash, row)
					c.check(t)
				})
			}
		}
	}
}

// leakyToolStore is a store that ignores the owner of tool setups and their
// variables.
type leakyToolStore struct{ brig.Store }

func (l leakyToolStore) ToolSetups(ctx context.Context, _ string) ([]*brig.ToolSetup, error) {
	return l.Store.ToolSetups(ctx, "acme")
}

func (l leakyToolStore) GetToolSetup(ctx context.Context, tenant, id string) (*brig.ToolSetup, error) {
	s, err := l.Store.GetToolSetup(ctx, tenant, id)
	if brig.KindOf(err) == brig.NotFound {
		return l.Store.GetToolSetup(ctx, "acme", id)
	}
	return s, err
}

func (l leakyToolStore) DeleteToolVariable(ctx context.Context, tenant, id string, events ...brig.Event) error {
	err := l.Store.DeleteToolVariable(ctx, tenant, id, events...)
	if brig.KindOf(err) == brig.NotFound {
		return l.Store.DeleteToolVariable(ctx, "acme", id, events...)
	}
	return err
}

// TestLettaTenancyMatrixDetectsIgnoredOwner verifies that the matrix detects a server that
// ignores the owner of tool setups and variables.
//
//suite:part hostile
func TestLettaTenancyMatrixDetectsIgnoredOwner(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return leakyToolStore{s} })
	for _, route := range []string{
		"GET /v1/sandbox-config", "PATCH /v1/sandbox-config/{config}", "DELETE /v1/sandbox-config/environment-variable/{variable}",
		"GET /v1/sandbox-config/{config}/environment-variable",
	} {
		seen := 0
		c := m.lettaCase(t, route, lettaRows[route][0])
		c.errorf = func(string, ...any) { seen++ }
		if c.checkForeign(t); seen == 0 {
			t.Errorf("%s: the matrix does not detect the leak", route)
		}
		attack.RecordMutant("API-01", "Letta: "+route, "the tenant in the store's query", seen > 0)
	}
}
