package e2b_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// decode decodes the body of a response with the wanted status.
func (x *engineServer) decode(t *testing.T, want int, out any, method, path, body, secret string) {
	t.Helper()
	w := x.doRequest(t.Context(), method, path, body, "X-API-Key", secret)
	if w.Code != want {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
		t.Fatal(err)
	}
}

type requested struct {
	TemplateID, BuildID string
	Tags, Names         []string
}

// requestBuild requests a build of the template web, and returns it with the path of its files.
func (x *engineServer) requestBuild(t *testing.T, secret string) (r requested, files string) {
	t.Helper()
	x.decode(t, http.StatusAccepted, &r, "POST", "/v3/templates", `{"name":"web:v1","tags":["stable"],"cpuCount":1,"memoryMB":256,"minFreeDiskMb":1024}`, secret)
	return r, "/templates/" + r.TemplateID + "/files/" + strings.Repeat("ab", 32)
}

// buildReady runs a build without steps until it is ready.
func (x *engineServer) buildReady(t *testing.T, secret string) requested {
	t.Helper()
	r, _ := x.requestBuild(t, secret)
	path := "/v2/templates/" + r.TemplateID + "/builds/" + r.BuildID
	x.decode(t, http.StatusAccepted, nil, "POST", path, `{"fromImage":"e2bdev/base","steps":[]}`, secret)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var s struct {
			Status     string
			LogEntries []struct{ Message string }
			Reason     struct{ Message string }
		}
		x.decode(t, http.StatusOK, &s, "GET", strings.TrimPrefix(path, "/v2")+"/status?logsOffset=1", "", secret)
		switch {
		case s.Status == "ready" && len(s.LogEntries) > 0:
			return r
		case s.Status == "error" || time.Now().After(end):
			t.Fatalf("the build is %+v", s)
		}
	}
}

// A template is listed, described, tagged and removed, and sandboxes are created from it.
func TestBuiltTemplate(t *testing.T) {
	x := newEngineServer(t)
	k, _ := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
	r := x.buildReady(t, k.Secret)
	for _, ref := range []string{"web:v1", "web:stable", r.TemplateID + ":v1"} {
		b := x.describe(t, "POST", "/v2/sandboxes", `{"templateID":"`+ref+`","timeout":3600}`, k.Secret)
		var info struct {
			TemplateID, Alias    string
			MemoryMB, DiskSizeMB int
		}
		x.decode(t, http.StatusOK, &info, "GET", "/sandboxes/"+b.SandboxID, "", k.Secret)
		if info.TemplateID != r.TemplateID || info.Alias != "web" || info.MemoryMB != 256 || info.DiskSizeMB != 2048 {
			t.Errorf("%s: %+v", ref, info)
		}
	}
	var sandboxes []struct{ SandboxID string }
	x.decode(t, http.StatusOK, &sandboxes, "GET", "/v2/sandboxes?template=web", "", k.Secret)
	if len(sandboxes) != 3 {
		t.Errorf("%d sandboxes of the template are listed", len(sandboxes))
	}
	x.decode(t, http.StatusCreated, nil, "POST", "/templates/tags", `{"target":"web:v1","tags":["latest"]}`, k.Secret)
	x.decode(t, http.StatusNoContent, nil, "DELETE", "/templates/tags", `{"name":"web","tags":["v1"]}`, k.Secret)
	var tags []struct{ Tag, BuildID string }
	x.decode(t, http.StatusOK, &tags, "GET", "/templates/web/tags", "", k.Secret)
	if len(tags) != 2 || tags[0].Tag != "latest" || tags[1].BuildID != r.BuildID {
		t.Errorf("the tags are %+v", tags)
	}
	for body, want := range map[string]int{
		`{"templateID":"web:v1"}`: http.StatusNotFound, `{"templateID":"web"}`: http.StatusNotFound, `{"templateID":"web:latest"}`: http.StatusCreated,
	} {
		x.decode(t, want, nil, "POST", "/v2/sandboxes", body, k.Secret)
	}
	var list []struct {
		TemplateID, BuildStatus, BuildID string
		BuildCount                       int
		Public                           bool
	}
	x.decode(t, http.StatusOK, &list, "GET", "/v2/templates", "", k.Secret)
	if n := len(list); n != 2 || list[1].TemplateID != r.TemplateID || list[1].BuildStatus != "ready" || list[1].BuildID != r.BuildID || list[1].BuildCount != 1 || list[1].Public {
		t.Errorf("the templates are %+v", list)
	}
	x.decode(t, http.StatusOK, nil, "GET", "/templates/aliases/web", "", k.Secret)
	x.checkNamespace(t, k.Secret)
	x.checkVisibility(t, k.Secret)
	x.decode(t, http.StatusConflict, nil, "POST", "/v3/templates", `{"name":"base"}`, k.Secret)
	x.decode(t, http.StatusNoContent, nil, "DELETE", "/templates/"+r.TemplateID, "", k.Secret)
	x.decode(t, http.StatusNotFound, nil, "GET", "/templates/aliases/web", "", k.Secret)
}

// checkNamespace verifies that the tenant's name is the namespace of its template web, and that no
// other name is.
func (x *engineServer) checkNamespace(t *testing.T, secret string) {
	t.Helper()
	for namespace, want := range map[string][]int{
		"acme/": {http.StatusOK, http.StatusCreated, http.StatusCreated, http.StatusAccepted, http.StatusNoContent},
		"poor/": {http.StatusNotFound, http.StatusNotFound, http.StatusNotFound, http.StatusBadRequest, http.StatusNotFound},
	} {
		x.decode(t, want[0], nil, "GET", "/templates/aliases/"+url.PathEscape(namespace+"web"), "", secret)
		x.decode(t, want[1], nil, "POST", "/v2/sandboxes", `{"templateID":"`+namespace+`web:latest"}`, secret)
		x.decode(t, want[2], nil, "POST", "/templates/tags", `{"target":"`+namespace+`web:latest","tags":["spaced"]}`, secret)
		x.decode(t, want[3], nil, "POST", "/v3/templates", `{"name":"`+namespace+`spaced"}`, secret)
		x.decode(t, want[4], nil, "DELETE", "/templates/tags", `{"name":"`+namespace+`web","tags":["spaced"]}`, secret)
	}
	var sandboxes []struct{ SandboxID string }
	for template, want := range map[string]int{"acme/web": 5, "poor/web": 0} {
		x.decode(t, http.StatusOK, &sandboxes, "GET", "/v2/sandboxes?template="+url.QueryEscape(template), "", secret)
		if len(sandboxes) != want {
			t.Errorf("%d sandboxes of %s are listed, want %d", len(sandboxes), template, want)
		}
	}
	x.decode(t, http.StatusNoContent, nil, "DELETE", "/templates/"+url.PathEscape("acme/spaced"), "", secret)
}

// checkVisibility verifies that a request that keeps the visibility of a template succeeds, and that
// others are rejected with a reason.
func (x *engineServer) checkVisibility(t *testing.T, secret string) {
	t.Helper()
	var updated struct{ Names []string }
	x.decode(t, http.StatusOK, &updated, "PATCH", "/v2/templates/web", `{"public":false}`, secret)
	if len(updated.Names) != 1 || updated.Names[0] != "web" {
		t.Errorf("%+v", updated)
	}
	for path, want := range map[string]string{
		`/templates/web {"public":false}`:    "200 ",
		`/templates/web {}`:                  "200 ",
		`/templates/web {"public":true}`:     "400 belongs to the tenant",
		`/v2/templates/web {"public":true}`:  "400 belongs to the tenant",
		`/v2/templates/base {"public":true}`: "200 base",
		`/templates/base {"public":false}`:   "400 belongs to the server",
		`/templates/gone {"public":false}`:   "404 not found",
	} {
		path, body, _ := strings.Cut(path, " ")
		code, text, _ := strings.Cut(want, " ")
		w := x.doRequest(t.Context(), "PATCH", path, body, "X-API-Key", secret)
		if strconv.Itoa(w.Code) != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
	}
}

// Only members change templates.
func TestViewersDoNotBuild(t *testing.T) {
	x := newEngineServer(t)
	k, _ := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
	viewer, _ := x.key(t, brig.KeySpec{Role: brig.Viewer, Kind: brig.E2BKey})
	r := x.buildReady(t, k.Secret)
	waiting, files := x.requestBuild(t, k.Secret)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v3/templates", `{"name":"web"}`},
		{"POST", "/v2/templates/" + waiting.TemplateID + "/builds/" + waiting.BuildID, `{"fromImage":"base"}`},
		{"GET", files, ""},
		{"POST", "/templates/tags", `{"target":"web:v1","tags":["x"]}`},
		{"DELETE", "/templates/tags", `{"name":"web","tags":["v1"]}`},
		{"DELETE", "/templates/" + r.TemplateID, ""},
		{"PATCH", "/v2/templates/web", `{"public":false}`},
	} {
		if w := x.doRequest(t.Context(), c.method, c.path, c.body, "X-API-Key", viewer.Secret); w.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/templates/web/tags", "/templates/web", "/templates/" + r.TemplateID + "/builds/" + r.BuildID + "/status", "/templates/" + r.TemplateID + "/builds/" + r.BuildID + "/logs"} {
		x.decode(t, http.StatusOK, nil, "GET", path, "", viewer.Secret)
	}
}

// The URL of an upload is valid for its files and its key only, and not for long.
func TestUploadURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newEngineServer(t)
		k, _ := x.key(t, brig.KeySpec{Role: brig.Member, Kind: brig.E2BKey})
		_, files := x.requestBuild(t, k.Secret)
		link := func() *url.URL {
			var out struct {
				Present bool
				URL     string
			}
			x.decode(t, http.StatusCreated, &out, "GET", files, "", k.Secret)
			u, err := url.Parse(out.URL)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		put := func(path string) int { return x.doRequest(t.Context(), "PUT", path, "a tar archive").Code }
		u := link()
		if u.Host != "127.0.0.1" || u.Path != files {
			t.Errorf("the URL is %s", u)
		}
		q := u.RawQuery
		other := strings.Replace(files, "abab", "cdcd", 1)
		for _, path := range []string{
			files, other + "?" + q, strings.Replace(files, "/templates/", "/templates/x", 1) + "?" + q, files + "?" + q + "0",
			files + "?" + strings.Replace(q, "expires=", "expires=9", 1),
		} {
			if code := put(path); code != http.StatusUnauthorized {
				t.Errorf("PUT %s: %d", path, code)
			}
		}
		if code := put(files + "?" + q); code != http.StatusOK { // control
			t.Fatalf("the upload itself: %d", code)
		}
		var out struct{ Present bool }
		x.decode(t, http.StatusCreated, &out, "GET", files, "", k.Secret)
		if !out.Present {
			t.Error("the uploaded files are not present")
		}
		time.Sleep(2 * time.Hour)
		if code := put(files + "?" + q); code != http.StatusUnauthorized {
			t.Errorf("after two hours: %d", code)
		}
		fresh := link().RawQuery
		if err := x.RevokeKey(x.admin, k.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if code := put(files + "?" + fresh); code != http.StatusUnauthorized {
			t.Errorf("with a revoked key: %d", code)
		}
	})
}
