package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
	"github.com/brig-run/brig/api/letta"
	"github.com/brig-run/brig/api/mcp"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/sqlite"
	"github.com/brig-run/brig/workspace"
)

// requestCase describes a request for one operation of the API. For an authorized caller, the
// request succeeds or fails because its target is missing, so a rejection can only be due to the
// authorization check.
type requestCase struct {
	op            string // operation of the Service; empty if the request calls none
	body          string
	query         string
	kind          string // content type of the body; default JSON
	foreignQuery  string // query that names the other tenant, if the path names no object
	createsObject bool   // the request creates the object that the path names, in the caller's own tenant
}

// operations maps each operation of docs/openapi.json to its request.
var operations = map[string]requestCase{
	"run":     {op: "run", body: `{"command":["echo"]}`},
	"get-run": {op: "run.get"}, "list-runs": {op: "run.list"},

	"create-sandbox": {op: "sandbox.create", body: `{"labels":{"a":"b"}}`}, "list-sandboxes": {op: "sandbox.list"},
	"get-sandbox": {op: "sandbox.get"}, "get-sandbox-usage": {op: "sandbox.usage"}, "remove-sandbox": {op: "sandbox.remove"},
	"exec": {op: "sandbox.exec", body: `{"command":["echo"]}`}, "list-execs": {op: "exec.list"}, "get-exec": {op: "exec.get"},
	"stop-sandbox": {op: "sandbox.stop"}, "kill-sandbox": {op: "sandbox.kill"}, "pause-sandbox": {op: "sandbox.pause"}, "resume-sandbox": {op: "sandbox.resume"}, "fork-sandbox": {op: "sandbox.fork"}, "extend-sandbox": {op: "sandbox.extend"},
	"logs": {op: "sandbox.logs"},

	"create-context": {op: "context.create"}, "list-contexts": {op: "context.list"}, "run-code": {op: "context.run", body: `{"code":"1"}`},
	"interrupt-context": {op: "context.interrupt"}, "restart-context": {op: "context.restart"}, "remove-context": {op: "context.remove"},

	"read-file": {op: "file.read", query: "path=/w/x"}, "write-file": {op: "file.write", query: "path=/w/x", body: "x", kind: "application/octet-stream"},
	"list-files": {op: "file.list", query: "path=/w"}, "stat-file": {op: "file.stat", query: "path=/w/x"},
	"make-directory": {op: "file.mkdir", body: `{"path":"/w/d"}`}, "move-file": {op: "file.move", body: `{"from":"/w/x","to":"/w/y"}`},
	"remove-file": {op: "file.remove", query: "path=/w/x"}, "compose-file": {op: "file.compose", body: `{"source_paths":["/w/x"],"destination":"/w/y"}`},
	"watch-files": {op: "file.watch", query: "path=/w"},

	"start-process": {op: "process.start", body: `{"command":["echo"]}`}, "list-processes": {op: "process.list"},
	"attach-process": {op: "process.attach"}, "process-input": {op: "process.input", body: "x", kind: "application/octet-stream"},
	"close-process-input": {op: "process.close_input"}, "signal-process": {op: "process.signal", body: `{"signal":"SIGTERM"}`},
	"resize-terminal": {op: "process.resize", body: `{"columns":80,"rows":24}`}, "dial-port": {op: "port.dial"},

	"list-images": {op: "image.list"}, "get-image": {op: "image.get"}, "remove-image": {op: "image.remove"},
	"import-image": {op: "image.import", query: "name=x", body: "x", kind: "application/x-tar"},
	"build-image":  {op: "image.build", body: `{"name":"x","packages":["y"]}`}, "pull-image": {op: "image.pull", body: `{"ref":"x"}`},
	"tag-image": {op: "image.tag", body: `{"image":"host","name":"x"}`},

	"create-key": {op: "key.create", body: `{"name":"x","role":"viewer"}`}, "list-keys": {op: "key.list", foreignQuery: "tenant=acme"},
	"revoke-key": {op: "key.revoke"}, "create-grant": {op: "grant.create"},
	"create-tenant": {op: "tenant.create", body: `{"name":"new"}`}, "list-tenants": {op: "tenant.list"}, "get-own-tenant": {op: "tenant.get"},
	"get-tenant": {op: "tenant.get"}, "update-tenant": {op: "tenant.update", body: `{}`}, "remove-tenant": {op: "tenant.remove"},
	"usage": {op: "usage.get", foreignQuery: "tenant=acme"},

	"create-session": {op: "session.create"}, "list-sessions": {op: "session.list", foreignQuery: "tenant=acme"}, "end-session": {op: "session.end"},
	"whoami": {}, "logout": {}, "login": {}, "callback": {}, // affect only the caller

	"get-template": {op: "template.get"}, "remove-template": {op: "template.remove"}, "tag-template": {op: "template.tag", body: `{"tag":"x"}`}, "untag-template": {op: "template.untag"},
	"build-template": {op: "template.build.request", body: `{"image":"host"}`, createsObject: true}, "get-template-build": {op: "template.build.get"},
	"template-build-log": {op: "template.build.get"}, "cancel-template-build": {op: "template.build.cancel"},
	// Files have no names, only digests. checkTemplateFiles tests that tenants do not share them.
	"find-template-files": {op: "template.build.get", createsObject: true}, "put-template-files": {op: "template.upload", body: "x", kind: "application/octet-stream", createsObject: true},

	"set-egress": {op: "sandbox.egress", body: `{"rules":[]}`}, "templates": {op: "template.list"}, "audit": {op: "audit.read"},
	"put-secret": {op: "secret.put", body: `{"value":"x"}`, createsObject: true}, "list-secrets": {op: "secret.list"},
	"remove-secret": {op: "secret.remove"}, "rotate-key": {op: "secret.rotate_key"},

	"attest-sandbox": {op: "sandbox.attest"}, "capabilities": {op: "capabilities.get"},
	"commit-workspace": {op: "workspace.commit"}, "create-workspace": {op: "workspace.create", body: `{"name":"new"}`},
	"list-workspaces": {op: "workspace.list"}, "remove-workspace": {op: "workspace.remove"},
	"list-workspace-versions": {op: "workspace.versions"}, "diff-workspace": {op: "workspace.diff", query: "from=1&to=1"},
	"list-workspace-files": {op: "workspace.files"}, "read-workspace-file": {op: "workspace.read", query: "path=/workspace/x"},
	"restore-workspace": {op: "workspace.restore", body: `{"version":1}`},

	"list-events": {op: "event.list"}, "create-webhook": {op: "webhook.create", body: `{"name":"new","url":"https://hooks.test/x","secret":"0123456789abcdef"}`}, "list-webhooks": {op: "webhook.list"},
	"get-webhook": {op: "webhook.get"}, "update-webhook": {op: "webhook.update", body: `{"enabled":false}`}, "remove-webhook": {op: "webhook.remove"},
	"list-deliveries": {op: "webhook.deliveries"}, "replay-webhook": {op: "webhook.replay", body: `{"since":"2026-01-01T00:00:00Z"}`},
	"create-volume": {op: "volume.create", body: `{"name":"new","size":16777216}`}, "list-volumes": {op: "volume.list"}, "get-volume": {op: "volume.get"}, "remove-volume": {op: "volume.remove"},
	"list-volume-files": {op: "volume.file.list", query: "path=/"}, "stat-volume-file": {op: "volume.file.stat", query: "path=/"}, "read-volume-file": {op: "volume.file.read", query: "path=/x"},
	"write-volume-file": {op: "volume.file.write", query: "path=/y", body: "x", kind: "application/octet-stream"}, "make-volume-directory": {op: "volume.file.mkdir", body: `{"path":"/d"}`},
	"set-volume-attributes": {op: "volume.file.set", body: `{"path":"/x","mode":420}`}, "remove-volume-file": {op: "volume.file.remove", query: "path=/x"},

	"list-providers": {op: "provider.list"}, "configure-provider": {op: "provider.configure", body: `{}`}, "test-provider": {op: "provider.test"},
	"activate-provider": {op: "provider.activate"}, "remove-provider": {op: "provider.remove"},
	"get-routing": {op: "routing.get", foreignQuery: "tenant=acme"}, "set-routing": {op: "routing.set", foreignQuery: "tenant=acme", body: `{}`},

	"alerts": {op: "alert.list"}, "pool": {op: "pool.get"}, "metrics": {op: "pool.get"}, // cover all tenants
	"version": {}, "healthz": {}, "readyz": {}, "openapi": {},
}

// matrix is a server with two tenants, one of which owns objects.
type matrix struct {
	url       string
	keys      map[string]string            // keys by identity
	ownParams map[string]map[string]string // path parameters of acme's objects, for each operation or ""
	state     func() string                // describes the state of acme's objects
	requests  int                          // number of requests so far

	engine *engine.Engine
}

const matrixKey = "brig_%s_0123456789012345678901234567890123456789"

func newMatrix(t *testing.T, change func(brig.Store) brig.Store) *matrix {
	t.Helper()
	ctx := t.Context()
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	quiet := slog.New(slog.DiscardHandler)
	ring, err := seal.Open(ctx, seal.File{Path: filepath.Join(t.TempDir(), "keys")})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(ctx, engine.Options{Workspaces: workspace.New(objects, nil), Volumes: volumesOf(t, t.TempDir()), Store: change(store), Provider: &fake.Provider{BuildRights: true}, Images: hostImage{}, LimitRange: brig.DefaultLimitRange(), Log: quiet, GrantSeed: []byte("seed"), Keys: ring, Seed: []byte("seed")})
	t.Cleanup(e.Close)
	service, builds := withBuilds(t, e, change(store))
	native := rest.New(rest.Options{Service: service, Builds: builds, Keys: e, LimitRange: brig.DefaultLimitRange(), Log: quiet})
	tools, err := mcp.New(ctx, mcp.Options{Service: e, Keys: e, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	gateway := kernels.New(kernels.Options{Service: e, Keys: e, Log: quiet})
	lettaAPI := letta.New(letta.Options{Service: e, Keys: e, Log: quiet})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case mcp.Matches(r):
			tools.ServeHTTP(w, r)
		case kernels.Matches(r):
			gateway.ServeHTTP(w, r)
		case letta.Matches(r):
			lettaAPI.ServeHTTP(w, r)
		default:
			native.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { srv.Close(); tools.Close(); gateway.Close() })
	m := &matrix{url: srv.URL, engine: e, keys: map[string]string{"none": "", "bad": fmt.Sprintf(matrixKey, "bad")}}
	for _, name := range []string{"acme", "rival"} {
		if err := store.PutTenant(ctx, &brig.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for who, a := range map[string]brig.Actor{
		"owner": {Tenant: "acme", Role: brig.Operator}, "viewer": {Tenant: "acme", Role: brig.Viewer},
		"scoped": {Tenant: "acme", Role: brig.Operator, Scopes: []string{"nothing."}}, "revoked": {Tenant: "acme", Role: brig.Operator},
		"expired":      {Tenant: "acme", Role: brig.Operator, Expires: time.Now().Add(-time.Second)},
		"other member": {Tenant: "rival", Role: brig.Member}, "other admin": {Tenant: "rival", Role: brig.Admin},
	} {
		secret := fmt.Sprintf(matrixKey, strings.ReplaceAll(who, " ", "_"))
		m.keys[who], a.Name, a.Key = secret, who, "k-"+strings.ReplaceAll(who, " ", "-")
		if err := store.PutKey(ctx, brig.Key{ID: a.Key, Hash: sha256.Sum256([]byte(secret)), Actor: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.DeleteKey(ctx, "k-revoked"); err != nil {
		t.Fatal(err)
	}
	m.createFixtures(t, e, builds)
	return m
}

// createFixtures creates one object of acme for each kind that a path can name.
func (m *matrix) createFixtures(t *testing.T, e *engine.Engine, builds brig.TemplateService) {
	t.Helper()
	ctx := brig.WithActor(t.Context(), brig.Actor{Name: "owner", Tenant: "acme", Role: brig.Operator})
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	box, err := e.Create(ctx, brig.Spec{Name: "acmes-box", TTL: time.Hour})
	fatal(err)
	res, err := e.Exec(ctx, "acmes-box", brig.Command{Argv: []string{"echo", "acmes"}}, brig.IO{})
	fatal(err)
	_, err = e.Run(ctx, brig.Program{SandboxName: "acmes-run", Command: []string{"echo"}}, brig.IO{})
	fatal(err)
	key, err := e.CreateKey(ctx, brig.KeySpec{Name: "acmes", Role: brig.Viewer})
	fatal(err)
	session, err := e.CreateSession(brig.WithActor(ctx, brig.Actor{Name: "owner", Tenant: "acme", Role: brig.Operator, Key: "k-owner"}))
	fatal(err)
	_, err = e.PutSecret(ctx, brig.SecretChange{Name: "acmes", Value: []byte("value")})
	fatal(err)
	_, err = e.CreateWorkspace(ctx, "acmes")
	fatal(err)
	if e.Options.Volumes.Check() == nil {
		_, err = e.CreateVolume(ctx, "acmes", 16*brig.MiB)
		fatal(err)
		_, err = e.VolumeFiles("acmes").Write(ctx, "x", brig.VolumeWrite{}, strings.NewReader("acmes"))
		fatal(err)
	}
	template := m.buildTemplate(t, ctx, builds)
	hook, err := e.CreateWebhook(ctx, brig.Webhook{Name: "acmes", URL: "https://hooks.test/x", Secret: "0123456789abcdef", Enabled: true})
	fatal(err)
	m.ownParams = map[string]map[string]string{
		"get-webhook": {"id": hook.ID}, "update-webhook": {"id": hook.ID}, "remove-webhook": {"id": hook.ID}, "list-deliveries": {"id": hook.ID}, "replay-webhook": {"id": hook.ID},
		"get-volume": {"name": "acmes"}, "remove-volume": {"name": "acmes"}, "list-volume-files": {"name": "acmes"}, "stat-volume-file": {"name": "acmes"},
		"read-volume-file": {"name": "acmes"}, "write-volume-file": {"name": "acmes"}, "make-volume-directory": {"name": "acmes"},
		"set-volume-attributes": {"name": "acmes"}, "remove-volume-file": {"name": "acmes"},
		"":           {"name": "acmes-box", "id": "default-python", "pid": "4711", "port": "80", "ref": "host"},
		"put-secret": {"name": "acmes"}, "remove-secret": {"name": "acmes"},
		"remove-workspace": {"name": "acmes"}, "list-workspace-versions": {"name": "acmes"}, "diff-workspace": {"name": "acmes"},
		"list-workspace-files": {"name": "acmes", "version": "0"}, "read-workspace-file": {"name": "acmes", "version": "0"},
		"restore-workspace":   {"name": "acmes"},
		"build-template":      {"name": "acmes-other"},
		"find-template-files": {"digest": filesHash}, "put-template-files": {"digest": filesHash},
		"get-run": {"name": "acmes-run"}, "get-exec": {"name": "acmes-box", "id": res.ExecID}, "revoke-key": {"id": key.ID}, "end-session": {"id": session.ID},
		"get-tenant": {"name": "acme"}, "update-tenant": {"name": "acme"}, "remove-tenant": {"name": "acme"},
	}
	for _, id := range templateOperations {
		m.ownParams[id] = template
	}
	m.state = func() string {
		s, err := e.Get(ctx, "acmes-box")
		fatal(err)
		keys, err := e.Keys(ctx, "acme")
		fatal(err)
		page, err := e.List(ctx, brig.ListOptions{})
		fatal(err)
		sessions, err := e.Sessions(ctx, "acme")
		fatal(err)
		volumes := ""
		if e.Options.Volumes.Check() == nil {
			list, err := e.Volumes(ctx)
			fatal(err)
			files, err := e.VolumeFiles("acmes").List(ctx, "/", 1)
			fatal(err)
			volumes = fmt.Sprint(len(list), len(files), files[0].Name, files[0].Size, files[0].Mode)
		}
		details, err := builds.GetTemplate(ctx, template["name"])
		fatal(err)
		hooks, err := e.Webhooks(ctx)
		fatal(err)
		return fmt.Sprint(volumes, len(hooks), hooks[0].Name, hooks[0].Enabled, details.Tags, len(details.Builds), s.ID == box.ID, s.State, s.Expires.Round(time.Minute), len(page.Sandboxes), len(keys), slices.ContainsFunc(sessions, func(x *brig.Session) bool { return x.ID == session.ID }))
	}
}

// newClientAddress returns a client with a new address. If all requests came from one address,
// the server would reject keys without checking them after too many wrong ones.
func (m *matrix) newClientAddress() *http.Client {
	m.requests++
	return newClientAddress(m.requests)
}

// newClientAddress returns a client that connects from the n-th loopback address.
func newClientAddress(n int) *http.Client {
	from := &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: from}).DialContext}}
}

// response is a response of the server.
type response struct {
	status int
	body   string
	header http.Header
}

// send sends one request for an operation.
func (m *matrix) send(t *testing.T, who, method, path string, a requestCase, params map[string]string, query string) response {
	t.Helper()
	for k, v := range params {
		path = strings.ReplaceAll(path, "{"+k+"}", v)
	}
	if query = strings.Trim(a.query+"&"+query, "&"); query != "" {
		path += "?" + query
	}
	ctx, cancel := context.WithTimeout(t.Context(), promptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.url+path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	if a.body != "" {
		req.Header.Set("Content-Type", "application/json")
		if a.kind != "" {
			req.Header.Set("Content-Type", a.kind)
		}
	}
	if a.op == brig.OpWatch.Name || a.op == brig.OpAttach.Name {
		req.Header.Set("Accept", "application/x-ndjson")
	}
	if a.op == brig.OpDial.Name {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "tcp")
	}
	if key := m.keys[who]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := m.newClientAddress().Do(req)
	if err != nil {
		t.Fatalf("%s %s as %s: %v", method, path, who, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s as %s: %v", method, path, who, err)
	}
	resp.Header.Del("X-Request-Id")
	resp.Header.Del("Date")
	return response{resp.StatusCode, string(b), resp.Header}
}

// nonexistent returns parameters of the same format that refer to objects that never existed.
func nonexistent(params map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range params {
		out[k] = strings.NewReplacer("acme", "acma").Replace(v)
		if k == "id" && v != "default-python" {
			out[k] = v[:len(v)-4] + "zzzz"
		}
	}
	return out
}

// TestTenancyMatrix tests every operation of the API with all callers that lack
// access. Callers without a valid key must receive 401, and callers without the
// role or the scope 403. Another tenant must receive the same bytes as for an
// object that never existed. The requests must not change any object.
//
//suite:part hostile
func TestTenancyMatrix(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	b, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Security    *[]any
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	roles := map[string]brig.Op{}
	for _, op := range slices.Concat(brig.Ops, brig.TemplateOps) {
		roles[op.Name] = op
	}
	before, checked := m.state(), 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, o := range doc.Paths[path] {
			// A streaming operation shares the row of its non-streaming counterpart.
			id := strings.TrimPrefix(o.OperationID, "stream-")
			a, ok := operations[id]
			if !ok {
				t.Errorf("%s %s (%s) has no row in operations: say how it is called", method, path, o.OperationID)
				continue
			}
			if o.Security != nil && len(*o.Security) == 0 {
				continue // open to every caller, and contains no tenant data
			}
			t.Run(o.OperationID, func(t *testing.T) {
				attack.Case(t, "API-01", o.OperationID+" by everybody who may not")
				c := cell{m, t, t.Errorf, strings.ToUpper(method), path, a, roles[a.op], m.ownParams[id]}
				if c.ownParams == nil {
					c.ownParams = m.ownParams[""]
				}
				c.checkUnauthenticated()
				c.checkForbidden()
				c.checkForeign()
				if after := m.state(); after != before {
					t.Errorf("acme had %s and has %s", before, after)
				}
			})
			checked++
		}
	}
	m.checkTemplateFiles(t)
	if checked < len(operations)-5 {
		t.Errorf("only %d of %d operations were checked", checked, len(operations))
	}
}

// cell is the test of one operation of the matrix.
type cell struct {
	m            *matrix
	t            *testing.T
	errorf       func(format string, args ...any)
	method, path string
	request      requestCase
	op           brig.Op
	ownParams    map[string]string
}

func (c cell) sendAs(who string, params map[string]string, query string) response {
	c.t.Helper()
	return c.m.send(c.t, who, c.method, c.path, c.request, params, query)
}

// checkUnauthenticated verifies that all callers without a valid key receive
// the same response.
func (c cell) checkUnauthenticated() {
	first := c.sendAs("bad", c.ownParams, "")
	for _, who := range []string{"none", "bad", "revoked", "expired"} {
		got := c.sendAs(who, c.ownParams, "")
		if got.status != http.StatusUnauthorized {
			c.errorf("%s: %d %s", who, got.status, got.body)
		}
		if who != "none" && got.body != first.body {
			c.errorf("%s is told %s, and a bad key %s", who, got.body, first.body)
		}
	}
}

// checkForbidden verifies that a key without the required role or scope receives 403, whether or
// not the object exists.
func (c cell) checkForbidden() {
	if c.request.op == "" {
		return
	}
	if got := c.sendAs("viewer", c.ownParams, ""); c.op.Role > brig.Viewer && got.status != http.StatusForbidden {
		c.errorf("viewer: %d %s", got.status, got.body)
	} else if c.op.Role == brig.Viewer && (got.status == http.StatusForbidden || got.status == http.StatusUnauthorized) {
		c.errorf("a viewer may, and is told %d %s", got.status, got.body)
	}
	if c.path == "/metrics" {
		return // access depends only on the role
	}
	got, none := c.sendAs("scoped", c.ownParams, ""), c.sendAs("scoped", nonexistent(c.ownParams), "")
	if got.status != http.StatusForbidden || got.body != none.body {
		c.errorf("beyond its scope: %d %s, and for what never was %s", got.status, got.body, none.body)
	}
}

// checkForeign verifies that a tenant gets the same responses for another tenant's object as for
// an object that never existed.
func (c cell) checkForeign() {
	names := strings.Contains(c.path, "{") && !strings.HasPrefix(c.path, "/v1/images/") && !c.request.createsObject
	if !names && c.request.foreignQuery == "" {
		if got := c.sendAs("other member", c.ownParams, ""); c.op.Role <= brig.Member && strings.Contains(got.body, "acme") {
			c.errorf("another tenant is told %s", got.body)
		}
		return
	}
	missing := strings.ReplaceAll(c.request.foreignQuery, "acme", "acma")
	for _, who := range []string{"other member", "other admin"} {
		want := http.StatusNotFound
		if role := map[string]brig.Role{"other member": brig.Member, "other admin": brig.Admin}[who]; role < c.op.Role {
			want = http.StatusForbidden
		}
		got, none := c.sendAs(who, c.ownParams, c.request.foreignQuery), c.sendAs(who, nonexistent(c.ownParams), missing)
		body := none.body
		for k, v := range nonexistent(c.ownParams) {
			body = strings.ReplaceAll(body, v, c.ownParams[k])
		}
		body = strings.ReplaceAll(body, "acma", "acme")
		if got.status != want || none.status != want || got.body != body {
			c.errorf("%s: %d %s, and for what never was %d %s; want %d", who, got.status, got.body, none.status, none.body, want)
		}
		if !maps.EqualFunc(got.header, none.header, slices.Equal) {
			c.errorf("%s: headers %v, and for what never was %v", who, got.header, none.header)
		}
	}
}

// leakyStore is a store that ignores the owner of sandboxes and of built templates.
type leakyStore struct{ brig.Store }

func (l leakyStore) Get(ctx context.Context, tenant, name string) (*brig.Record, error) {
	r, err := l.Store.Get(ctx, tenant, name)
	if brig.KindOf(err) == brig.NotFound {
		return l.Store.Get(ctx, "acme", name)
	}
	return r, err
}

func (l leakyStore) GetTemplate(ctx context.Context, tenant, ref string) (*brig.BuiltTemplate, error) {
	t, err := l.Store.GetTemplate(ctx, tenant, ref)
	if brig.KindOf(err) == brig.NotFound {
		return l.Store.GetTemplate(ctx, "acme", ref)
	}
	return t, err
}

func (l leakyStore) BuiltTemplates(ctx context.Context, _ string) ([]*brig.BuiltTemplate, error) {
	return l.Store.BuiltTemplates(ctx, "")
}

func (l leakyStore) GetBuild(ctx context.Context, tenant, template, id string) (*brig.TemplateBuild, error) {
	b, err := l.Store.GetBuild(ctx, tenant, template, id)
	if brig.KindOf(err) == brig.NotFound {
		return l.Store.GetBuild(ctx, "acme", template, id)
	}
	return b, err
}

func (l leakyStore) Builds(ctx context.Context, f brig.BuildFilter) ([]*brig.TemplateBuild, error) {
	f.Tenant = ""
	return l.Store.Builds(ctx, f)
}

// TestTenancyMatrixDetectsRevealedSandboxes verifies that the matrix detects a server that
// reveals one tenant's sandboxes to another.
//
//suite:part hostile
func TestTenancyMatrixDetectsRevealedSandboxes(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return leakyStore{s} })
	for id, at := range map[string][2]string{"get-sandbox": {"GET", "/v1/sandboxes/{name}"}, "kill-sandbox": {"POST", "/v1/sandboxes/{name}/kill"}, "get-template": {"GET", "/v1/templates/{name}"}} {
		seen := 0
		c := cell{m, t, func(string, ...any) { seen++ }, at[0], at[1], operations[id], brig.OpGet, m.ownParams[id]}
		if c.ownParams == nil {
			c.ownParams = m.ownParams[""]
		}
		if c.checkForeign(); seen == 0 {
			t.Errorf("%s: nothing was seen of a server that leaks", id)
		}
		attack.RecordMutant("API-01", id, "the tenant in the store's query", seen > 0)
	}
}
