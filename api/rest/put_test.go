package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// putCase is a route that changes an object.
type putCase struct {
	path string // path of the object
	read string // path of the document that has the object's state
	at   []string
	// full and other are bodies in which every field has a value. The two values of a field
	// differ.
	full, other string
	// commands lists fields that are not part of the state. hidden lists fields that are part
	// of the state but do not appear in any document.
	commands, hidden []string
	// replaced lists objects that are replaced as a whole, like a list.
	replaced []string
	// required holds the fields that each body must have, with their values in full.
	required map[string]any
	// bodies holds the bodies for fields that cannot change alone, with all fields that each
	// body changes.
	bodies map[string]putBody
}

type putBody struct {
	body    string
	changes []string
}

// putCases maps the ID of each route with the method PUT or PATCH and a JSON body to its case.
var putCases = map[string]putCase{
	"update-tenant": {
		path: "/v1/tenants/acme", read: "/v1/tenants/acme", commands: []string{"rev", "unscreened"},
		bodies: map[string]putBody{
			"ceilings.screening.python.only":     {`{"ceilings":{"screening":{"python":{"only":false,"allow":[]}}}}`, []string{"ceilings.screening.python.allow", "ceilings.screening.python.only"}},
			"ceilings.screening.javascript.only": {`{"ceilings":{"screening":{"javascript":{"only":false,"allow":[]}}}}`, []string{"ceilings.screening.javascript.allow", "ceilings.screening.javascript.only"}},
		},
		full: `{"budget":1,"quota":{"sandboxes":9,"paused":9,"executions":9,"executions_per_day":900,"execution_ms_per_day":1000000,"cpu_ms_per_day":1000000,"gib_seconds_per_day":1,
			"egress_bytes_per_day":1000,"storage":1000,"workspaces":1000,"volumes":1000,"outputs":1000,"rate":1000000,"rate_per_key":1000000},
			"ceilings":{"limits":{"memory":1000000000,"cpus":1,"processes":100,"open_files":1000,"disk":1000000000,"output":100000},"max_ttl_ms":100000,"max_life_ms":1000000,"max_pause_ms":100000,
			"max_timeout_ms":10000,"images":["host"],"digests_only":true,"screening":{"others":true,"python":{"imports":["os"],"calls":["eval"],"attributes":["x"],"only":true,"allow":["re"],"commands":true},
			"javascript":{"imports":["fs"],"calls":["eval"],"attributes":["x"],"only":true,"allow":["path"],"commands":true}}}}`,
		other: `{"budget":2,"quota":{"sandboxes":8,"paused":8,"executions":8,"executions_per_day":800,"execution_ms_per_day":2000000,"cpu_ms_per_day":2000000,"gib_seconds_per_day":2,
			"egress_bytes_per_day":2000,"storage":2000,"workspaces":2000,"volumes":2000,"outputs":2000,"rate":2000000,"rate_per_key":2000000},
			"ceilings":{"limits":{"memory":2000000000,"cpus":2,"processes":200,"open_files":2000,"disk":2000000000,"output":200000},"max_ttl_ms":200000,"max_life_ms":2000000,"max_pause_ms":200000,
			"max_timeout_ms":20000,"images":["host","a"],"digests_only":false,"screening":{"others":false,"python":{"imports":["io"],"calls":["exec"],"attributes":["y"],"only":false,"allow":["io"],"commands":false},
			"javascript":{"imports":["net"],"calls":["exec"],"attributes":["y"],"only":false,"allow":["net"],"commands":false}}}}`,
	},
	"set-routing": {
		path: "/v1/routing", read: "/v1/routing", commands: []string{"rev"},
		full:  `{"order":["fake"],"split":{"fake":1},"overflow":["fake"],"prefer":"region","regions":["eu"],"attempts":1}`,
		other: `{"order":["fake","cloud"],"split":{"fake":2},"overflow":["cloud"],"prefer":"cheapest","regions":["us"],"attempts":2}`,
	},
	"configure-provider": {
		path: "/v1/providers/cloud", read: "/v1/providers", at: []string{"providers", "cloud"}, commands: []string{"rev", "activate", "test"}, replaced: []string{"config"},
		full:  `{"config":{"api_key":"a key of 20 letters","timeout":7},"terms":{"region":"eu","max":1,"second":1}}`,
		other: `{"config":{"api_key":"a key of 20 digits!","timeout":8},"terms":{"region":"us","max":2,"second":2}}`,
	},
	"set-egress": {
		path: "/v1/sandboxes/box/egress", read: "/v1/sandboxes/box", at: []string{"egress"},
		required: map[string]any{"rules": []any{map[string]any{"host": "a.test"}}},
		full:     `{"rules":[{"host":"a.test"}],"bandwidth":1000000}`,
		other:    `{"rules":[{"host":"b.test"}],"bandwidth":2000000}`,
	},
	"put-secret": {
		path: "/v1/secrets/key", read: "/v1/secrets", at: []string{"secrets", "key"}, commands: []string{"reveal"}, hidden: []string{"value", "value_b64"},
		full:  `{"value":"the first value","hosts":["a.test","b.test"],"places":["header","query"],"exclusive":false,"allow":["X-A","X-B"],"plain":true}`,
		other: `{"value":"another value","value_b64":"YW5vdGhlciB2YWx1ZQ==","hosts":["a.test"],"places":["query"],"exclusive":true,"allow":["X-A"],"plain":false}`,
	},
}

// putWithoutCase lists the other routes with PUT or PATCH. The body of write-file and of
// write-volume-file is the new content of a file, whose mode does not change. Package volume tests
// that set-volume-attributes keeps what it does not name (TestAttributes), and package engine that
// update-webhook does (TestWebhookChangesAreSelective).
var putWithoutCase = []string{"write-file", "write-volume-file", "set-volume-attributes", "update-webhook"}

// putServer serves the API on top of an engine.
type putServer struct {
	t *testing.T
	http.Handler
}

func newPutServer(t *testing.T) putServer {
	t.Helper()
	store := mem.New()
	if err := store.PutTenant(t.Context(), &brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(t.Context(), seal.File{Path: filepath.Join(t.TempDir(), "keys")})
	if err != nil {
		t.Fatal(err)
	}
	type config struct {
		Key     string `json:"api_key" form:"required,secret"`
		Timeout int    `json:"timeout"`
	}
	driver := brig.NewDriver(brig.Driver{Name: "cloud"}, config{}, func(context.Context, brig.ProviderEnv, *config) (brig.Provider, error) { return &fake.Provider{}, nil })
	e := engine.New(t.Context(), engine.Options{
		Store: store, Provider: &fake.Provider{}, Images: putImages{}, LimitRange: brig.DefaultLimitRange(), Keys: keys, Drivers: []brig.Driver{driver},
		Seed: []byte("seed"), ScreenTenant: func(context.Context, *brig.Screening, brig.Language, string) error { return nil },
	})
	t.Cleanup(e.Close)
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := putServer{t, New(Options{Service: e, Keys: putKeys{}, Hosts: []string{"example.com"}})}
	s.do(http.MethodPost, "/v1/sandboxes", `{"name":"box"}`, 201)
	return s
}

type putImages struct{ brig.ImageStore }

func (putImages) Resolve(context.Context, string) (*brig.Image, error) {
	return &brig.Image{Digest: "sha256:host", Names: []string{brig.HostImage}}, nil
}
func (putImages) List(context.Context) ([]*brig.Image, error) { return nil, nil }

// putKeys accepts the key of one operator.
type putKeys struct{}

func (putKeys) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator}, nil
}

// do sends a request and returns the document in the response. It fails the test if the
// response has another status.
func (s putServer) do(method, path, body string, status int) map[string]any {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(s.t.Context())
	r.Header.Set("Authorization", "Bearer brig_"+strings.Repeat("a", 52))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != status {
		s.t.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
	}
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	_ = d.Decode(&doc) // a response without a body has no document
	return doc
}

// state returns the state of a case's object.
func (s putServer) state(c putCase) map[string]any {
	s.t.Helper()
	doc := s.do(http.MethodGet, c.read, "", 200)
	for _, name := range c.at {
		if list, ok := doc[name].([]any); ok {
			doc = map[string]any{}
			for _, x := range list {
				one := x.(map[string]any)
				doc[fmt.Sprint(one["name"], one["id"])] = one
				doc[strings.ReplaceAll(fmt.Sprint(one["name"], one["id"]), "<nil>", "")] = one
			}
			continue
		}
		doc, _ = doc[name].(map[string]any)
	}
	for _, changes := range []string{"rev", "updated", "version", "users", "up", "why"} {
		delete(doc, changes)
	}
	return doc
}

// fieldsOfBody returns the paths of the fields of a body's type. The path of an object precedes
// the paths of its fields.
func fieldsOfBody(t reflect.Type, whole []string) (out [][]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		out = append(out, []string{name})
		if slices.Contains(whole, name) {
			continue
		}
		for _, in := range fieldsOfBody(t.Field(i).Type, nil) {
			out = append(out, append([]string{name}, in...))
		}
	}
	return out
}

// lookup returns the value at a path of a document.
func lookup(doc any, path []string) (any, bool) {
	for _, name := range path {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil, false
		}
		if doc, ok = m[name]; !ok {
			return nil, false
		}
	}
	return doc, true
}

// bodyWith returns a body with the value at a path and with the required fields.
func (c putCase) bodyWith(path []string, value any) string {
	body := map[string]any{}
	for name, v := range c.required {
		body[name] = v
	}
	if len(path) > 0 {
		for _, name := range slices.Backward(path[1:]) {
			value = map[string]any{name: value}
		}
		body[path[0]] = value
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// differences returns the paths at which two documents differ.
func differences(a, b any, path string) (out []string) {
	x, okx := a.(map[string]any)
	y, oky := b.(map[string]any)
	if !okx || !oky {
		if !reflect.DeepEqual(a, b) {
			return []string{strings.TrimPrefix(path, ".")}
		}
		return nil
	}
	names := map[string]bool{}
	for name := range x {
		names[name] = true
	}
	for name := range y {
		names[name] = true
	}
	for name := range names {
		out = append(out, differences(x[name], y[name], path+"."+name)...)
	}
	return out
}

// Every route that changes an object changes only the fields that are present in the body. A
// missing field keeps its value, and null is rejected.
func TestPutChangesOnlyNamedFields(t *testing.T) {
	seen := 0
	for _, rt := range newAPI(Options{}).table() {
		if rt.method != http.MethodPut && rt.method != http.MethodPatch || slices.Contains(putWithoutCase, rt.id) {
			continue
		}
		c, ok := putCases[rt.id]
		if !ok || rt.in == nil {
			t.Errorf("%s has no row in putCases: a change must keep what it does not name", rt.id)
			continue
		}
		seen++
		t.Run(rt.id, func(t *testing.T) { c.check(t, rt) })
	}
	if seen != len(putCases) {
		t.Errorf("%d of %d rows have a route", seen, len(putCases))
	}
}

func (c putCase) check(t *testing.T, rt route) {
	s := newPutServer(t)
	s.do(http.MethodPut, "/v1/providers/cloud", putCases["configure-provider"].full, 200)
	s.do(http.MethodPut, c.path, c.full, 200)
	was := s.state(c)
	var full, other map[string]any
	for text, doc := range map[string]*map[string]any{c.full: &full, c.other: &other} {
		if err := json.Unmarshal([]byte(text), doc); err != nil {
			t.Fatal(err)
		}
	}
	empty, ok := c.bodyWith(nil, nil), 200
	if c.required != nil {
		s.do(http.MethodPut, c.path, empty, 200)
		empty, ok = "{}", 400
	}
	s.do(http.MethodPut, c.path, empty, ok)
	if d := differences(was, s.state(c), ""); len(d) > 0 {
		t.Errorf("{} changes %v", d)
	}
	for _, path := range fieldsOfBody(reflect.TypeOf(rt.in), c.replaced) {
		name := strings.Join(path, ".")
		if slices.Contains(c.commands, name) {
			continue
		}
		s.do(http.MethodPut, c.path, c.bodyWith(path, nil), 400)
		if d := differences(was, s.state(c), ""); len(d) > 0 {
			t.Errorf("null for %s changes %v", name, d)
			s.do(http.MethodPut, c.path, c.full, 200)
		}
		next, ok := lookup(other, path)
		if !ok {
			t.Errorf("the case has no other value of %s", name)
			continue
		}
		if _, object := next.(map[string]any); object && !slices.Contains(c.replaced, name) && name != "split" {
			continue // its fields are tested separately
		}
		body, want := c.bodyWith(path, next), []string{name}
		if b, ok := c.bodies[name]; ok {
			body, want = b.body, b.changes
		}
		s.do(http.MethodPut, c.path, body, 200)
		if slices.Contains(c.hidden, name) {
			want = nil
		}
		got := differences(was, s.state(c), "")
		for i, d := range got {
			if slices.Contains(c.replaced, path[0]) || path[0] == "split" {
				got[i], _, _ = strings.Cut(d, ".")
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s changes %v", body, got)
		}
		s.do(http.MethodPut, c.path, c.full, 200)
		if d := differences(was, s.state(c), ""); len(d) > 0 {
			t.Fatalf("after %s the whole body leaves %v", name, d)
		}
	}
}
