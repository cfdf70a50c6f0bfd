package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// createdTemplate is the body of a request that creates a template or a build of it.
const createdTemplate = `{"name":"{template}","tags":["new"]}`

// filesHash is the hash of the files that acme has uploaded.
var filesHash = strings.Repeat("ab", 32)

// templateRoutes lists the routes that name a template and that the server supports, in an order in
// which each succeeds for the template's owner.
var templateRoutes = []string{
	"GET /templates/{template}", "GET /templates/aliases/{alias}", "GET /templates/{template}/tags",
	"GET /templates/{template}/builds/{build}/status", "GET /templates/{template}/builds/{build}/logs",
	"GET /templates/{template}/files/{hash}", "POST /sandboxes", "POST /v2/sandboxes", "POST /v3/templates", "POST /v2/templates",
	"POST /v2/templates/{template}/builds/{build}", "POST /templates/tags", "DELETE /templates/tags",
	"PATCH /templates/{template}", "PATCH /v2/templates/{template}", "DELETE /templates/{template}",
}

// ownTemplate is the template of a tenant, with one build that is ready and one that is waiting.
type ownTemplate struct {
	id, name, ready, waiting string
	saved                    string // ID of the paused sandbox of the ready build
}

// attempt is one request of the matrix. Its path and its body name objects of acme.
type attempt struct {
	method, path, body string
	foreign            bool // it names an object of acme, which the tenant of the caller does not have
	creates            bool // it creates a template with that name in the tenant of the caller
	changesTemplate    bool // only members of acme can do it
}

func (a attempt) String() string { return strings.TrimSpace(a.method + " " + a.path + " " + a.body) }

// attempts returns the requests for a route, one for each way to name acme's objects.
func (x *e2bMatrix) attempts(route, body string) (out []attempt) {
	method, pattern, _ := strings.Cut(route, " ")
	own, rivals := x.template["acme"], x.template["rival"]
	text := pattern + "\n" + body
	names := strings.Contains(text, "{template}") || strings.Contains(text, "{alias}")
	a := attempt{method: method, foreign: names || strings.Contains(text, "{id}") || strings.Contains(text, "{volume}") || strings.Contains(text, "{hook}"), creates: body == createdTemplate}
	if pattern == "/events/sandboxes/{id}" { // the list of a sandbox that does not exist, or no longer, is empty
		a.foreign = false
	}
	a.changesTemplate = names && (method != "GET" || strings.Contains(text, "{hash}"))
	add := func(id, template, build string) {
		text := strings.NewReplacer("{id}", id, "{template}", template, "{alias}", template, "{team}", "acme", "{volume}", x.volume["acme"], "{hook}", x.hook["acme"], "{build}", build, "{hash}", filesHash, "*", "x").Replace(text)
		a.path, a.body, _ = strings.Cut(text, "\n")
		out = append(out, a)
	}
	switch {
	case strings.Contains(text, "{build}"):
		for _, build := range []string{own.waiting, own.ready} {
			for _, template := range []string{own.id, own.name, rivals.id} {
				add("", template, build)
			}
		}
	case names:
		for _, ref := range []string{own.id, own.name, own.id + ":v1", own.name + ":v1", own.saved} {
			add("", ref, "")
		}
	default:
		add(x.id["acme"], "", "")
		if strings.Contains(text, "{id}") {
			add(own.saved, "", "")
		}
	}
	return out
}

// newIDs matches the IDs in the description of a new build.
var newIDs = regexp.MustCompile(`"(templateID|buildID)":"[0-9a-z-]+"`)

// checkCreated verifies that another tenant can create a template with the name of acme's template, that
// the response is the same as for an unused name, and that the new template has an ID of its own. It
// removes the new templates.
func (x *e2bMatrix) checkCreated(t *testing.T, errorf func(string, ...any), who string, a attempt, got, none response) {
	for _, r := range []*response{&got, &none} {
		var made struct{ TemplateID string }
		if err := json.Unmarshal([]byte(r.body), &made); err != nil {
			errorf("%s %s: %d %s", who, a, r.status, r.body)
			return
		}
		if ids := strings.Join(newIDs.FindAllString(r.body, -1), " "); x.mentionsAcme(ids) {
			errorf("%s %s: it is acme's: %s", who, a, r.body)
			return
		}
		if gone := x.send(t, "DELETE", "/templates/"+made.TemplateID, "", "X-Api-Key", x.m.keys[who]); gone.status != http.StatusNoContent {
			errorf("%s removes its own template: %d %s", who, gone.status, gone.body)
		}
		r.body = newIDs.ReplaceAllString(r.body, `"$1":""`)
	}
	x.checkSame(errorf, who+" "+a.String(), got, none)
}

// expect sends a request with the key of a caller, which must succeed, and decodes the response.
func (x *e2bMatrix) expect(t *testing.T, who, method, path, body string, out any) {
	t.Helper()
	got := x.send(t, method, path, body, "X-Api-Key", x.m.keys[who])
	if got.status >= 300 {
		t.Fatalf("%s %s %s: %d %s", who, method, path, got.status, got.body)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal([]byte(got.body), out); err != nil {
		t.Fatalf("%s %s %s: %s: %v", who, method, path, got.body, err)
	}
}

type madeBuild struct{ TemplateID, BuildID string }

func (b madeBuild) path() string { return "/templates/" + b.TemplateID + "/builds/" + b.BuildID }

// endBuild starts a build, and returns its last status and its messages.
func (x *e2bMatrix) endBuild(t *testing.T, who string, b madeBuild, plan string) (status, messages string) {
	t.Helper()
	x.expect(t, who, "POST", "/v2"+b.path(), plan, nil)
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var s struct {
			Status     string
			LogEntries []struct{ Level, Message, Step string }
			Reason     struct{ Message, Step string }
		}
		x.expect(t, who, "GET", b.path()+"/status", "", &s)
		if s.Status == "ready" || s.Status == "error" {
			return s.Status, fmt.Sprint(s.Reason, s.LogEntries)
		}
	}
	t.Fatalf("%s: build %s does not end", who, b.BuildID)
	return "", ""
}

// buildTemplate creates the template of a tenant. Acme also uploads files.
func (x *e2bMatrix) buildTemplate(t *testing.T, store brig.Store, tenant, who string) ownTemplate {
	t.Helper()
	own := ownTemplate{name: tenant + "s-web"}
	var ready, waiting madeBuild
	x.expect(t, who, "POST", "/v3/templates", `{"name":"`+own.name+`","tags":["default","v1"]}`, &ready)
	if status, messages := x.endBuild(t, who, ready, `{"fromImage":"e2bdev/base","steps":[]}`); status != "ready" {
		t.Fatalf("the build of %s is %s: %s", tenant, status, messages)
	}
	x.expect(t, who, "POST", "/v3/templates", `{"name":"`+own.name+`:v2"}`, &waiting)
	build, err := store.GetBuild(t.Context(), tenant, ready.TemplateID, ready.BuildID)
	if err != nil || build.Sandbox == "" {
		t.Fatal(build, err)
	}
	own.id, own.ready, own.waiting, own.saved = ready.TemplateID, ready.BuildID, waiting.BuildID, string(build.Sandbox)
	if tenant == "acme" {
		path := "/templates/" + own.id + "/files/" + filesHash
		if got := x.put(t, path, x.uploadLink(t, who, path)); got.status != http.StatusOK {
			t.Fatalf("acme's upload: %d %s", got.status, got.body)
		}
	}
	return own
}

// templateState describes what acme sees of its templates.
func (x *e2bMatrix) templateState(t *testing.T) string {
	t.Helper()
	own := x.template["acme"]
	var out []string
	for _, path := range []string{
		"/templates", "/templates/" + own.id, "/templates/" + own.id + "/tags", "/templates/" + own.id + "/builds/" + own.ready + "/status",
		"/templates/" + own.id + "/builds/" + own.waiting + "/status", "/sandboxes", "/snapshots",
	} {
		got := x.send(t, "GET", path, "", "X-Api-Key", x.m.keys["owner"])
		out = append(out, fmt.Sprint(got.status, got.body))
	}
	return fmt.Sprint(out, x.filesPresent(t, "owner", own.id, filesHash))
}

// filesPresent reports whether the tenant of a caller has uploaded the files with a hash.
func (x *e2bMatrix) filesPresent(t *testing.T, who, template, hash string) bool {
	t.Helper()
	var link struct{ Present bool }
	x.expect(t, who, "GET", "/templates/"+template+"/files/"+hash, "", &link)
	return link.Present
}

// uploadLink returns the query of the upload URL that a caller gets for a path.
func (x *e2bMatrix) uploadLink(t *testing.T, who, path string) url.Values {
	t.Helper()
	var link struct{ URL string }
	x.expect(t, who, "GET", path, "", &link)
	u, err := url.Parse(link.URL)
	if err != nil || u.Path != path {
		t.Fatal(link, err)
	}
	return u.Query()
}

func (x *e2bMatrix) put(t *testing.T, path string, q url.Values, headers ...string) response {
	t.Helper()
	return x.send(t, "PUT", path+"?"+q.Encode(), "an archive", headers...)
}

// checkTemplates tests the ways to another tenant's template besides the routes, and then that the
// requests of the matrix succeed for the owner.
func (x *e2bMatrix) checkTemplates(t *testing.T) {
	for name, f := range map[string]func(*testing.T){"PUT files": x.checkUploads, "base of a build": x.checkBases} {
		t.Run(name, func(t *testing.T) {
			attack.Case(t, "API-01", "E2B: template of another tenant, "+name)
			before := x.state()
			f(t)
			if after := x.state(); after != before {
				t.Errorf("acme had %s and has %s", before, after)
			}
		})
	}
	t.Run("filters", x.checkFilters)
	t.Run("owner", x.checkOwner)
}

// checkUploads sends files to acme's upload URLs with the tokens of others.
func (x *e2bMatrix) checkUploads(t *testing.T) {
	own, rivals := x.template["acme"], x.template["rival"]
	hash := strings.Repeat("ef", 32) // no tenant has uploaded it
	path := func(template string) string { return "/templates/" + template + "/files/" + hash }
	mine := x.uploadLink(t, "other member", path(rivals.id))
	with := func(q url.Values, name, value string) url.Values {
		q = maps.Clone(q)
		q[name] = []string{value}
		return q
	}
	_, mac, ok := strings.Cut(mine.Get("token"), ".")
	if !ok {
		t.Fatal(mine)
	}
	acmes := x.uploadLink(t, "owner", path(own.id))
	for _, ref := range []string{own.id, own.name} {
		for what, q := range map[string]url.Values{
			"no token": {}, "the token of another tenant's link": mine, "another tenant's token as acme's": with(mine, "token", "k-owner."+mac),
			"acme's key as the token":              with(mine, "token", "k-owner."),
			"acme's token as another's":            with(acmes, "token", strings.Replace(acmes.Get("token"), "k-owner.", "k-other-member.", 1)),
			"acme's token with another expiration": with(acmes, "expires", acmes.Get("expires")+"0"),
			"a sandbox's token":                    with(mine, "token", x.token["rival"]),
		} {
			for _, headers := range [][]string{nil, {"X-Api-Key", x.m.keys["other member"]}} {
				got := x.put(t, path(ref), q, headers...)
				if got.status != http.StatusUnauthorized {
					t.Errorf("%s at %s: %d %s", what, ref, got.status, got.body)
				}
				x.checkSame(t.Errorf, what, got, x.put(t, x.absent(path(ref)), q, headers...))
			}
		}
	}
	// acme's token is valid for the name in its link only.
	if got := x.put(t, path(own.name), acmes); got.status != http.StatusUnauthorized {
		t.Errorf("acme's token at another path: %d %s", got.status, got.body)
	}
	// Both tenants have a template with this name, so both get links with the same path.
	for _, who := range []string{"owner", "other member"} {
		var b madeBuild
		x.expect(t, who, "POST", "/v3/templates", `{"name":"common"}`, &b)
		defer x.expect(t, who, "DELETE", "/templates/common", "", nil)
	}
	acmes, mine = x.uploadLink(t, "owner", path("common")), x.uploadLink(t, "other member", path("common"))
	_, mac, _ = strings.Cut(mine.Get("token"), ".")
	if got := x.put(t, path("common"), with(mine, "token", "k-owner."+mac)); got.status != http.StatusUnauthorized {
		t.Errorf("another tenant's token as acme's: %d %s", got.status, got.body)
	}
	if got := x.put(t, path("common"), mine); got.status != http.StatusOK {
		t.Errorf("the upload of the other tenant: %d %s", got.status, got.body)
	}
	if x.filesPresent(t, "owner", "common", hash) || !x.filesPresent(t, "other member", "common", hash) {
		t.Error("the upload of another tenant is acme's")
	}
	if x.filesPresent(t, "other member", rivals.id, filesHash) {
		t.Error("acme's files are present for another tenant")
	}
	// The control: acme's own link works.
	if got := x.put(t, path("common"), acmes); got.status != http.StatusOK || !x.filesPresent(t, "owner", own.id, hash) {
		t.Errorf("control with acme's token: %d %s", got.status, got.body)
	}
}

// checkBases starts builds of another tenant that begin with acme's template, or that copy its files.
func (x *e2bMatrix) checkBases(t *testing.T) {
	own, rivals := x.template["acme"], x.template["rival"]
	end := func(plan string) (status, messages string) {
		var b madeBuild
		x.expect(t, "other member", "POST", "/v3/templates", `{"name":"`+rivals.name+`:base"}`, &b)
		return x.endBuild(t, "other member", b, plan)
	}
	plans := []string{`{"fromImage":"e2bdev/base","steps":[{"type":"COPY","args":["a","/b"],"filesHash":"` + filesHash + `"}]}`}
	for _, ref := range []string{own.id, own.name, own.name + ":v1", own.saved} {
		plans = append(plans, `{"fromTemplate":"`+ref+`","steps":[]}`, `{"fromImage":"`+ref+`","steps":[]}`)
	}
	for _, plan := range plans {
		status, got := end(plan)
		_, none := end(x.absent(plan))
		if status != "error" || got != x.present(none) {
			t.Errorf("%s: %s %s, and of what never was %s", plan, status, got, none)
		}
	}
}

// checkFilters lists another tenant's sandboxes and snapshots that have to do with acme's template.
func (x *e2bMatrix) checkFilters(t *testing.T) {
	attack.Case(t, "API-01", "E2B: template of another tenant, filters of lists")
	own := x.template["acme"]
	x.expect(t, "owner", "POST", "/v2/sandboxes", `{"templateID":"`+own.id+`","timeout":600}`, nil)
	x.expect(t, "other member", "POST", "/v2/sandboxes", `{"templateID":"`+x.template["rival"].id+`","timeout":600}`, nil)
	var list []struct{ TemplateID string }
	if x.expect(t, "owner", "GET", "/v2/sandboxes?template="+own.name, "", &list); len(list) != 1 || list[0].TemplateID != own.id {
		t.Fatalf("control: acme's sandboxes of its template are %+v", list)
	}
	for _, query := range []string{
		"/v2/sandboxes?template=" + own.id, "/v2/sandboxes?template=" + own.name, "/sandboxes?template=" + own.id,
		"/snapshots?name=" + own.name, "/snapshots?sandboxID=" + own.saved,
	} {
		for _, who := range []string{"other viewer", "other member", "other admin"} {
			got := x.send(t, "GET", query, "", "X-Api-Key", x.m.keys[who])
			x.checkSame(t.Errorf, who+" GET "+query, got, x.send(t, "GET", x.absent(query), "", "X-Api-Key", x.m.keys[who]))
		}
	}
}

// checkOwner is the control of the matrix: the requests that it sends succeed for acme's member.
func (x *e2bMatrix) checkOwner(t *testing.T) {
	for route, body := range e2bRows {
		named := strings.Contains(route+body, "{template}") || strings.Contains(route, "{alias}")
		a := x.attempts(route, body)[0]
		if !named || slices.Contains(templateRoutes, route) {
			continue
		}
		if got := x.send(t, a.method, a.path, a.body, "X-Api-Key", x.m.keys["owner"]); got.status != http.StatusNotImplemented {
			t.Errorf("%s: %d %s; add the route to templateRoutes", a, got.status, got.body)
		}
	}
	for _, route := range templateRoutes {
		a, before := x.attempts(route, e2bRows[route])[0], x.state()
		if got := x.send(t, a.method, a.path, a.body, "X-Api-Key", x.m.keys["owner"]); got.status >= 300 {
			t.Errorf("%s: %d %s", a, got.status, got.body)
		}
		if route == "DELETE /templates/{template}" {
			break // it is the last, and state needs the template
		}
		// PATCH keeps the only field that it names, because other values are rejected.
		if a.method != "GET" && a.method != "PATCH" && x.state() == before {
			t.Errorf("%s: state does not show the change", a)
		}
	}
}
