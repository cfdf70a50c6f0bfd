package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/sqlite"
)

// e2bRows maps each route of E2B's control plane to a request body that the server accepts from
// an authorized caller. Routes that the server rejects for every caller have no body. Bodies have the
// placeholders of paths.
var e2bRows = map[string]string{
	"POST /sandboxes": `{"templateID":"{template}"}`, "POST /v2/sandboxes": `{"templateID":"{template}"}`,
	"GET /sandboxes": "", "GET /v2/sandboxes": "", "GET /sandboxes/metrics": "",
	"GET /sandboxes/{id}": "", "DELETE /sandboxes/{id}": "",
	"POST /sandboxes/{id}/timeout": `{"timeout":60}`, "POST /sandboxes/{id}/refreshes": `{"duration":60}`,
	"POST /sandboxes/{id}/connect": `{"timeout":60}`, "POST /v2/sandboxes/{id}/connect": `{"timeout":60}`,
	"GET /sandboxes/{id}/metrics": "", "GET /sandboxes/{id}/logs": "", "GET /v2/sandboxes/{id}/logs": "",
	"PUT /sandboxes/{id}/network": `{"allowOut":[]}`,
	"GET /templates":              "", "GET /v2/templates": "", "GET /templates/aliases/{alias}": "", "GET /templates/{template}": "", "GET /teams": "",
	"DELETE /templates/{template}": "",

	"POST /sandboxes/{id}/pause": "", "POST /sandboxes/{id}/resume": "", "POST /sandboxes/{id}/snapshots": "", "POST /sandboxes/{id}/fork": "",
	"GET /snapshots": "", "POST /v3/templates": createdTemplate, "POST /v2/templates": createdTemplate, "POST /templates": "", "POST /templates/{template}": "",
	"GET /templates/{template}/files/{hash}": "", "POST /templates/{template}/builds/{build}": "", "POST /v2/templates/{template}/builds/{build}": `{"fromImage":"e2bdev/base","steps":[]}`,
	"GET /templates/{template}/builds/{build}/status": "", "GET /templates/{template}/builds/{build}/logs": "",
	"POST /templates/tags": `{"target":"{template}","tags":["x"]}`, "DELETE /templates/tags": `{"name":"{template}","tags":["v1"]}`, "GET /templates/{template}/tags": "",
	"PATCH /templates/{template}": "", "PATCH /v2/templates/{template}": "", "GET /teams/{team}/metrics": "", "GET /teams/{team}/metrics/max": "",
	"POST /volumes": `{"name":"new"}`, "GET /volumes": "", "GET /volumes/{volume}": "", "DELETE /volumes/{volume}": "", " /secrets": "", " /secrets/*": "",
	"GET /events/sandboxes": "", "GET /events/sandboxes/{id}": "", "POST /events/webhooks": e2bHook, "GET /events/webhooks": "", "GET /events/webhooks/{hook}": "",
	"PATCH /events/webhooks/{hook}": `{"enabled":false}`, "DELETE /events/webhooks/{hook}": "",
}

// otherRoutes are the routes of the control plane that accept no key. TestE2BTenancyMatrix tests the
// first with checkUploads. The second has no data.
var otherRoutes = []string{"PUT /templates/{template}/files/{hash}", "GET /health"}

// insideRows describes each route into a sandbox. As in E2B, a caller needs only the sandbox's ID
// for access if open is set.
var insideRows = map[string]struct {
	port int
	body string
	open bool
}{
	"GET /health": {port: 49983, open: true}, "GET /envs": {port: 49983}, "GET /metrics": {port: 49983},
	"GET /files": {port: 49983}, "POST /files": {port: 49983, body: "x"}, "POST /files/compose": {port: 49983, body: `{"sources":["a"],"destination":"b"}`},
	" /":         {port: 49983},
	"POST /init": {port: 49983}, "POST /freeze": {port: 49983}, "POST /unfreeze": {port: 49983}, "POST /collapse": {port: 49983},
	"POST /fsfreeze": {port: 49983}, "POST /fsthaw": {port: 49983},

	"POST /process.Process/List": {port: 49983, body: "{}"}, "POST /process.Process/Connect": {port: 49983, body: "{}"}, "POST /process.Process/Start": {port: 49983, body: "{}"},
	"POST /process.Process/Update": {port: 49983, body: "{}"}, "POST /process.Process/StreamInput": {port: 49983, body: "{}"}, "POST /process.Process/SendInput": {port: 49983, body: "{}"},
	"POST /process.Process/SendSignal": {port: 49983, body: "{}"}, "POST /process.Process/CloseStdin": {port: 49983, body: "{}"},
	"POST /filesystem.Filesystem/Stat": {port: 49983, body: "{}"}, "POST /filesystem.Filesystem/MakeDir": {port: 49983, body: "{}"},
	"POST /filesystem.Filesystem/Move": {port: 49983, body: "{}"}, "POST /filesystem.Filesystem/ListDir": {port: 49983, body: "{}"},
	"POST /filesystem.Filesystem/Remove": {port: 49983, body: "{}"}, "POST /filesystem.Filesystem/WatchDir": {port: 49983, body: "{}"},
	"POST /filesystem.Filesystem/CreateWatcher": {port: 49983, body: "{}"}, "POST /filesystem.Filesystem/GetWatcherEvents": {port: 49983, body: "{}"},
	"POST /filesystem.Filesystem/RemoveWatcher": {port: 49983, body: "{}"},

	"code POST execute": {port: 49999, body: `{"code":"1"}`},
	"code GET health":   {port: 49999, open: true}, "code GET contexts": {port: 49999}, "code POST contexts": {port: 49999, body: "{}"},
	"code DELETE contexts/default-python": {port: 49999}, "code POST contexts/default-python/restart": {port: 49999},
	"port": {port: 8080, open: true}, // public by default
}

// controlRoutes reads the control plane's routes from the source code.
func controlRoutes(t *testing.T) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../api/e2b/routes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]string{"get": "GET", "post": "POST", "del": "DELETE", "MethodPut": "PUT", "MethodPatch": "PATCH", `""`: ""}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok { // mux.Get("/health", ...)
			if m, ok := call.Fun.(*ast.SelectorExpr); ok && fmt.Sprint(m.X) == "mux" && len(call.Args) == 2 {
				if pattern, ok := call.Args[0].(*ast.BasicLit); ok {
					out = append(out, strings.ToUpper(m.Sel.Name)+" "+strings.Trim(pattern.Value, `"`))
				}
			}
			return true
		}
		row, ok := n.(*ast.CompositeLit)
		if !ok || row.Type != nil || len(row.Elts) != 3 {
			return true
		}
		var name string
		switch m := row.Elts[0].(type) {
		case *ast.Ident:
			name = m.Name
		case *ast.SelectorExpr:
			name = m.Sel.Name
		case *ast.BasicLit:
			name = m.Value
		}
		method, known := methods[name]
		pattern, ok := row.Elts[1].(*ast.BasicLit)
		if !known || !ok {
			t.Errorf("a row of routes cannot be read: %v", row)
			return false
		}
		path, err := strconv.Unquote(pattern.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, method+" "+path)
		return false
	})
	return out
}

// insideRoutes reads the routes into sandboxes from the source code.
func insideRoutes(t *testing.T) (out []string) {
	t.Helper()
	read := func(name, pattern string, f func(m []string)) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Fatalf("%s has nothing that looks like %s any more", name, pattern)
		}
		for _, m := range found {
			f(m)
		}
	}
	for _, name := range []string{"processpb/process", "filesystempb/filesystem"} {
		read("../api/e2b/envd/"+name+".connect.go", `Procedure = "(/[^"]*)"`, func(m []string) { out = append(out, "POST "+m[1]) })
	}
	read("../api/e2b/envd/envd.go", `HandleFunc\("(?:([A-Z]+) )?(/[^"]*)"`, func(m []string) { out = append(out, m[1]+" "+m[2]) })
	read("../api/e2b/inside.go", `"(/[a-z]+)": true`, func(m []string) { out = append(out, "POST "+m[1]) })
	return out
}

// e2bMatrix is a server with E2B's API and two tenants that have one sandbox
// and one template each.
type e2bMatrix struct {
	m        *matrix
	url      string
	id       map[string]string // sandbox ID by tenant
	token    map[string]string // sandbox token by tenant
	template map[string]ownTemplate
	hook     map[string]string // webhook ID by tenant
	volume   map[string]string // volume ID by tenant; of no volume if the machine cannot have any
	state    func() string
}

func newE2BMatrix(t *testing.T, change func(brig.Store) brig.Store) *e2bMatrix {
	t.Helper()
	ctx := t.Context()
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	quiet := slog.New(slog.DiscardHandler)
	templates := []brig.Template{{Name: "base", Image: "host"}}
	e := engine.New(ctx, engine.Options{Store: change(store), Provider: &fake.Provider{BuildRights: true}, Images: hostImage{}, LimitRange: brig.DefaultLimitRange(), Log: quiet, GrantSeed: []byte("seed"), Templates: templates, Volumes: volumesOf(t, t.TempDir()), VolumeSize: 16 * brig.MiB, Keys: keyring(t)})
	t.Cleanup(e.Close)
	builds, err := builder.New(ctx, builder.Options{Service: engine.BuildService{Engine: e}, Store: change(store), Dir: t.TempDir(), Configured: templates, Actor: e.KeyByID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(builds.Close)
	data := envd.New(envd.Options{Service: e, Log: quiet})
	t.Cleanup(data.Close)
	srv := httptest.NewServer(e2b.New(e2b.Options{
		Service: e, Keys: e, KeyActor: e.KeyByID, Seed: []byte("seed"), Templates: templates, Builder: builds, Live: e.Live, Log: quiet,
		TenantKeys: func(ctx context.Context, tenant string) (ids []string, err error) {
			list, err := store.ListKeys(ctx, tenant)
			for _, k := range list {
				ids = append(ids, k.ID)
			}
			return ids, err
		},
		Owner: func(ctx context.Context, id string) (string, error) { return change(store).Owner(ctx, brig.ID(id)) },
		Envd: func(w http.ResponseWriter, r *http.Request, s e2b.SandboxAccess) {
			data.Serve(w, r, envd.Sandbox{ID: s.ID, Token: s.Token, Env: s.Env})
		},
	}))
	t.Cleanup(srv.Close)
	x := &e2bMatrix{m: &matrix{url: srv.URL, keys: map[string]string{"none": "", "bad": fmt.Sprintf(matrixKey, "bad")}}, url: srv.URL, id: map[string]string{}, token: map[string]string{}, hook: map[string]string{}, volume: map[string]string{}, template: map[string]ownTemplate{}}
	for _, name := range []string{"acme", "rival"} {
		if err := store.PutTenant(ctx, &brig.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for who, a := range map[string]brig.Actor{
		"owner": {Tenant: "acme", Role: brig.Member}, "viewer": {Tenant: "acme", Role: brig.Viewer}, "revoked": {Tenant: "acme", Role: brig.Member},
		"expired":      {Tenant: "acme", Role: brig.Member, Expires: time.Now().Add(-time.Second)},
		"scoped":       {Tenant: "acme", Role: brig.Member, Scopes: []string{"nothing."}},
		"image scoped": {Tenant: "acme", Role: brig.Member, Scopes: []string{"image."}},
		"other viewer": {Tenant: "rival", Role: brig.Viewer}, "other member": {Tenant: "rival", Role: brig.Member}, "other admin": {Tenant: "rival", Role: brig.Admin},
	} {
		secret := fmt.Sprintf(matrixKey, strings.ReplaceAll(who, " ", "_"))
		x.m.keys[who], a.Name, a.Key = secret, who, "k-"+strings.ReplaceAll(who, " ", "-")
		if err := store.PutKey(ctx, brig.Key{ID: a.Key, Hash: sha256.Sum256([]byte(secret)), Actor: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.DeleteKey(ctx, "k-revoked"); err != nil {
		t.Fatal(err)
	}
	for tenant, who := range map[string]string{"acme": "owner", "rival": "other member"} {
		got := x.send(t, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":600}`, "X-Api-Key", x.m.keys[who])
		var made struct{ SandboxID, EnvdAccessToken string }
		if err := json.Unmarshal([]byte(got.body), &made); err != nil || made.EnvdAccessToken == "" {
			t.Fatal(got, err)
		}
		x.id[tenant], x.token[tenant] = made.SandboxID, made.EnvdAccessToken
		var hook struct{ ID string }
		if err := json.Unmarshal([]byte(x.send(t, "POST", "/events/webhooks", e2bHook, "X-Api-Key", x.m.keys[who]).body), &hook); err != nil || hook.ID == "" {
			t.Fatal(hook, err)
		}
		x.hook[tenant] = hook.ID
		x.volume[tenant] = "volnone" + tenant
		if e.Options.Volumes.Check() == nil {
			var v struct{ VolumeID string }
			if err := json.Unmarshal([]byte(x.send(t, "POST", "/volumes", `{"name":"data"}`, "X-Api-Key", x.m.keys[who]).body), &v); err != nil || v.VolumeID == "" {
				t.Fatal(v, err)
			}
			x.volume[tenant] = v.VolumeID
		}
		x.template[tenant] = x.buildTemplate(t, store, tenant, who)
	}
	x.state = func() string {
		ctx := brig.WithActor(t.Context(), brig.Actor{Name: "owner", Tenant: "acme", Role: brig.Operator})
		s, err := e.Get(ctx, x.id["acme"])
		if err != nil {
			return err.Error()
		}
		cs, err := e.Contexts(ctx, x.id["acme"])
		if err != nil {
			return err.Error()
		}
		saved, err := e.Get(ctx, x.template["acme"].saved)
		if err != nil {
			return err.Error()
		}
		volumes := 0
		if e.Options.Volumes.Check() == nil {
			list, err := e.Volumes(ctx)
			if err != nil {
				return err.Error()
			}
			volumes = len(list)
		}
		hooks, err := e.Webhooks(ctx)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(volumes, len(hooks), hooks[0].Enabled, s.State, s.Expires.Round(time.Minute), s.Spec.Egress, len(cs), saved.State, x.templateState(t))
	}
	return x
}

// send sends a request, with headers as names and values, from a new client
// address.
func (x *e2bMatrix) send(t *testing.T, method, path, body string, headers ...string) response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), promptTimeout)
	defer cancel()
	if method == "" {
		method = "GET"
	}
	req, err := http.NewRequestWithContext(ctx, method, x.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := x.m.newClientAddress().Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	resp.Header.Del("X-Request-Id")
	resp.Header.Del("Date")
	return response{resp.StatusCode, string(b), resp.Header}
}

// absent replaces the identifiers of acme's objects in a text by identifiers of the same format that
// were never assigned.
func (x *e2bMatrix) absent(text string) string {
	return strings.NewReplacer(x.identifiers()...).Replace(text)
}

// present is the inverse of absent.
func (x *e2bMatrix) present(text string) string {
	pairs := x.identifiers()
	slices.Reverse(pairs)
	return strings.NewReplacer(pairs...).Replace(text)
}

// identifiers returns the identifiers of acme's objects, each followed by one of the same format that
// was never assigned.
func (x *e2bMatrix) identifiers() []string {
	own := x.template["acme"]
	out := []string{own.name, strings.Replace(own.name, "acmes", "never", 1), filesHash, strings.Repeat("cd", 32)}
	for _, id := range []string{x.id["acme"], own.id, own.saved, x.volume["acme"]} {
		out = append(out, id, id[:len(id)-4]+"zzzz")
	}
	for _, id := range []string{own.ready, own.waiting, x.hook["acme"]} {
		out = append(out, id, id[:len(id)-12]+"0123456789ab")
	}
	return out
}

// mentionsAcme reports whether a text contains an identifier of an object of acme.
func (x *e2bMatrix) mentionsAcme(text string) bool { return x.absent(text) != text }

// checkSame verifies that the responses for acme's object and for one that never existed are the
// same.
func (x *e2bMatrix) checkSame(errorf func(string, ...any), what string, got, none response) {
	if got.status != none.status || got.body != x.present(none.body) {
		errorf("%s: %d %s, and of what never was %d %s", what, got.status, got.body, none.status, none.body)
	}
	if !maps.EqualFunc(got.header, none.header, slices.Equal) {
		errorf("%s: headers %v, and of what never was %v", what, got.header, none.header)
	}
}

// control tests one control plane route with all callers that lack access.
func (x *e2bMatrix) control(t *testing.T, errorf func(string, ...any), route, body string) {
	for _, a := range x.attempts(route, body) {
		x.controlAttempt(t, errorf, a)
	}
}

func (x *e2bMatrix) controlAttempt(t *testing.T, errorf func(string, ...any), a attempt) {
	send := func(who string) response {
		return x.send(t, a.method, a.path, a.body, "X-Api-Key", x.m.keys[who])
	}
	absent := func(who string) response {
		return x.send(t, a.method, x.absent(a.path), x.absent(a.body), "X-Api-Key", x.m.keys[who])
	}
	bad := send("bad")
	for _, who := range []string{"none", "bad", "revoked", "expired"} {
		got := send(who)
		if got.status != http.StatusUnauthorized || who != "none" && got.body != bad.body {
			errorf("%s %s: %d %s, and to a bad key %s", who, a, got.status, got.body, bad.body)
		}
		x.checkSame(errorf, who+" "+a.String(), got, absent(who))
	}
	if a.changesTemplate {
		if got := send("viewer"); got.status < 400 {
			errorf("viewer %s: %d %s", a, got.status, got.body)
		}
	}
	for _, who := range []string{"scoped", "image scoped", "other viewer", "other member", "other admin"} {
		got := send(who)
		switch {
		case a.creates && got.status < 400:
			x.checkCreated(t, errorf, who, a, got, absent(who))
		case a.foreign:
			x.checkSame(errorf, who+" "+a.String(), got, absent(who))
			if got.status < 400 {
				errorf("%s %s: %d %s", who, a, got.status, got.body)
			}
		case x.mentionsAcme(got.body):
			errorf("%s is told of acme's by %s: %s", who, a, got.body)
		}
	}
}

// TestE2BTenancyMatrix tests every route of E2B's control plane and data plane, and to ports,
// with all callers that lack access. Another tenant must receive the same responses as for a
// sandbox or a template that never existed.
//
//suite:part hostile
func TestE2BTenancyMatrix(t *testing.T) {
	x := newE2BMatrix(t, func(s brig.Store) brig.Store { return s })
	before := x.state()
	routes := controlRoutes(t)
	if len(routes) < 45 {
		t.Errorf("only %d routes were found", len(routes))
	}
	for _, route := range routes {
		if slices.Contains(otherRoutes, route) {
			continue
		}
		body, ok := e2bRows[route]
		if !ok {
			t.Errorf("%q has no row in e2bRows: say with which body it would succeed", route)
			continue
		}
		t.Run(route, func(t *testing.T) {
			attack.Case(t, "API-01", "E2B: "+route+" by everybody who may not")
			x.control(t, t.Errorf, route, body)
			if after := x.state(); after != before {
				t.Errorf("acme had %s and has %s", before, after)
			}
		})
	}
	for _, name := range append(slices.Collect(maps.Keys(e2bRows)), otherRoutes...) {
		if !slices.Contains(routes, name) {
			t.Errorf("there is no route %q any more", name)
		}
	}
	inside := insideRoutes(t)
	for _, route := range inside {
		if _, ok := insideRows[route]; !ok {
			t.Errorf("%q has no row in insideRows", route)
		}
	}
	if len(inside) < 26 {
		t.Errorf("only %d ways into a sandbox were found", len(inside))
	}
	for route := range insideRows {
		t.Run(route, func(t *testing.T) {
			attack.Case(t, "API-01", "E2B: "+route+" in a sandbox, by everybody who has no token of it")
			x.inside(t, route)
		})
	}
	x.checkTemplates(t)
}

// inside tests one route into a sandbox with all callers that lack the
// sandbox's token.
func (x *e2bMatrix) inside(t *testing.T, route string) {
	row, before := insideRows[route], x.state()
	method, path, _ := strings.Cut(strings.TrimPrefix(route, "code "), " ")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if path == "/" {
		path = "/nowhere"
	}
	if route == "port" {
		method, path = "GET", "/"
	}
	to := func(id string, more ...string) response {
		return x.send(t, method, path, row.body, append([]string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", strconv.Itoa(row.port)}, more...)...)
	}
	wrong := x.token["acme"][:len(x.token["acme"])-1] + "x"
	for who, headers := range map[string][]string{
		"whoever shows nothing": nil, "whoever shows their own token": {"X-Access-Token", x.token["rival"]}, "whoever shows a wrong one": {"X-Access-Token", wrong},
		"whoever shows a key":           {"X-Api-Key", x.m.keys["other member"], "Authorization", "Bearer " + x.m.keys["other member"]},
		"whoever shows a traffic token": {"E2b-Traffic-Access-Token", x.token["rival"]},
	} {
		got := to(x.id["acme"], headers...)
		if row.open && headers == nil {
			continue // open to every caller that knows the ID
		}
		if row.open && (row.port != 49999 || headers[0] != "X-Access-Token") {
			continue // treated like a request without a token
		}
		if got.status < 400 {
			t.Errorf("%s: %d %s", who, got.status, got.body)
		}
		x.checkSame(t.Errorf, who, got, to(x.absent(x.id["acme"]), headers...))
	}
	if after := x.state(); !row.open && after != before {
		t.Errorf("acme had %s and has %s", before, after)
	}
	// The control: the holder of the token has access.
	if got := to(x.id["acme"], "X-Access-Token", x.token["acme"]); got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
		t.Errorf("control with the token: %d %s", got.status, got.body)
	}
	if got := to(x.absent(x.id["acme"]), "X-Access-Token", x.token["acme"]); got.status < 400 {
		t.Errorf("acme's token in another sandbox: %d %s", got.status, got.body)
	}
}

// TestE2BTenancyMatrixDetectsIgnoredOwner verifies that the matrix detects a server that
// ignores the owner of sandboxes and templates.
//
//suite:part hostile
func TestE2BTenancyMatrixDetectsIgnoredOwner(t *testing.T) {
	x := newE2BMatrix(t, func(s brig.Store) brig.Store { return leakyStore{s} })
	routes := []string{"GET /sandboxes/{id}", "POST /sandboxes/{id}/timeout", "GET /sandboxes/{id}/logs", "DELETE /sandboxes/{id}", "GET /templates", "GET /v2/templates"}
	for _, route := range append(routes, templateRoutes...) {
		seen := 0
		x.control(t, func(format string, args ...any) {
			if strings.HasPrefix(fmt.Sprintf(format, args...), "other ") { // reported about the other tenant
				seen++
			}
		}, route, e2bRows[route])
		if seen == 0 {
			t.Errorf("%s: nothing was seen of a server that leaks", route)
		}
		attack.RecordMutant("API-01", "E2B: "+route, "the tenant in the store's query", seen > 0)
	}
}

// e2bHook is the body of a request for a webhook.
const e2bHook = `{"name":"hook","url":"https://hooks.test/x","signatureSecret":"0123456789abcdef","events":["sandbox.lifecycle.created"]}`
