package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

type openAPIDocument struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas   map[string]schema
		Responses map[string]response
	}
	lenient bool // unknown fields are allowed
}

type operation struct {
	OperationID string
	Security    *[]any
	RequestBody *struct{ Content map[string]content }
	Responses   map[string]response
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]content
}

type content struct{ Schema schema }

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Enum                 []any
	Required             []string
	Properties           map[string]schema
	Items                *schema
	OneOf, AllOf, AnyOf  []schema
	Not                  *schema
	AdditionalProperties any
}

func loadDocument(t *testing.T) (*api, openAPIDocument) {
	t.Helper()
	o := Options{LimitRange: brig.DefaultLimitRange(), Version: "v0"}
	a := newAPI(o)
	b, err := document(a.routes(), o)
	if err != nil {
		t.Fatal(err)
	}
	var d openAPIDocument
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return a, d
}

// TestDocumentDescribesEveryRoute checks that the document describes every route of
// the router.
func TestDocumentDescribesEveryRoute(t *testing.T) {
	a, d := loadDocument(t)
	if d.OpenAPI != "3.1.0" {
		t.Errorf("it is OpenAPI %s", d.OpenAPI)
	}
	mux, ok := a.router().(chi.Routes)
	if !ok {
		t.Fatal("the router cannot be walked")
	}
	served := 0
	err := chi.Walk(mux, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodHead {
			return nil
		}
		served++
		op, ok := d.Paths[strings.Replace(pattern, "*", "{ref}", 1)][strings.ToLower(method)]
		if !ok || op.OperationID == "" {
			t.Errorf("%s %s is not described", method, pattern)
		}
		public := pattern == "/healthz" || pattern == "/readyz" || pattern == "/openapi.json" ||
			pattern == "/v1/auth/login" || pattern == "/v1/auth/callback" // these routes issue a credential
		if public != (op.Security != nil && len(*op.Security) == 0) {
			t.Errorf("%s %s: needs a key: %v, described otherwise", method, pattern, !public)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	openAPIDocument := 0
	for _, item := range d.Paths {
		openAPIDocument += len(item)
	}
	if served != openAPIDocument || served != len(a.routes()) {
		t.Errorf("%d served, %d described, %d in the table", served, openAPIDocument, len(a.routes()))
	}
}

// TestTranscriptsMatchDocument checks every accepted request and every response
// of the transcripts against the schemas.
func TestTranscriptsMatchDocument(t *testing.T) {
	a, d := loadDocument(t)
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			req, resp := string(archive.Files[i].Data), string(archive.Files[i+1].Data)
			line, _, _ := strings.Cut(req, "\n")
			method, target, _ := strings.Cut(line, " ")
			status, answer, _ := strings.Cut(resp, "\n")
			if streamed := strings.Contains(answer, v1.NDJSON) || strings.Contains(answer, v1.SSE); streamed && method == "POST" {
				path, query, _ := strings.Cut(target, "?")
				target = path + "/stream?" + query // the response is the same as for a body with "stream" or an Accept header
			}
			op, ok := find(a, d, method, target)
			if !ok {
				continue
			}
			r, ok := op.Responses[status]
			if code, _ := strconv.Atoi(status); !ok && code >= 400 {
				r = op.Responses["default"]
			} else if !ok {
				t.Errorf("%s: status %s is not described", line, status)
			}
			if r.Ref != "" {
				r = d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
			}
			where := name + " " + archive.Files[i].Name
			checked += d.checkMessage(t, where+" answer", answer, r.Content)
			if _, body, _ := strings.Cut(req, "\n\n"); op.RequestBody != nil && status[0] == '2' && body != "" && !strings.Contains(answer, `"event":"error"`) {
				_, headers, _ := strings.Cut(req, "\n")
				checked += d.checkMessage(t, where, headers, op.RequestBody.Content)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d documents were checked", checked)
	}
}

// find returns the operation of a request.
func find(a *api, d openAPIDocument, method, target string) (operation, bool) {
	path, _, _ := strings.Cut(target, "?")
	ctx := chi.NewRouteContext()
	mux, _ := a.router().(chi.Routes)
	if !mux.Match(ctx, method, path) {
		return operation{}, false
	}
	op, ok := d.Paths[strings.Replace(ctx.RoutePattern(), "*", "{ref}", 1)][strings.ToLower(method)]
	return op, ok
}

// checkMessage checks a message, which begins with its headers, and returns the
// number of its documents.
func (d openAPIDocument) checkMessage(t *testing.T, where, message string, kinds map[string]content) int {
	t.Helper()
	headers, body, _ := strings.Cut(message, "\n\n")
	kind := ""
	for h := range strings.SplitSeq(headers, "\n") {
		if v, ok := strings.CutPrefix(h, "Content-Type: "); ok {
			kind, _, _ = strings.Cut(v, ";")
		}
	}
	c, ok := kinds[kind]
	if !ok && kind != "" {
		t.Errorf("%s: %s is not described", where, kind)
	}
	if !strings.Contains(kind, "json") && kind != "text/event-stream" {
		return 0
	}
	n := 0
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		line = strings.TrimPrefix(line, "data: ")
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		if m, ok := v.(map[string]any); ok { // older clients request events with these fields
			delete(m, "stream")
			delete(m, "streams")
		}
		if err := d.check(c.Schema, v); err != nil {
			t.Errorf("%s: %s: %v", where, line, err)
		}
		if n++; kind == v1.NDJSON && strings.HasSuffix(where, ".req") {
			break // the other lines are the standard input of the process
		}
	}
	return n
}

// check returns an error if v does not match schema s.
func (d openAPIDocument) check(s schema, v any) error {
	if s.Ref != "" {
		return d.check(d.Components.Schemas[strings.TrimPrefix(s.Ref, schemaPrefix)], v)
	}
	whole := d
	whole.lenient = true
	for _, part := range s.AllOf {
		if err := whole.check(part, v); err != nil {
			return err
		}
	}
	if s.Not != nil && d.check(*s.Not, v) == nil {
		return errors.New("must not be there")
	}
	if s.Type == nil {
		whole = d // if the schema has no type, the alternatives describe the whole value
	}
	for i, forms := range [][]schema{s.OneOf, s.AnyOf} {
		matches, reason := 0, ""
		for _, part := range forms {
			if err := whole.check(part, v); err == nil {
				matches++
			} else {
				reason += err.Error() + "; "
			}
		}
		if forms != nil && (matches == 0 || matches > 1 && i == 0) {
			return fmt.Errorf("%d of %d forms match: %s", matches, len(forms), reason)
		}
	}
	if s.Enum != nil && !func() bool {
		for _, e := range s.Enum {
			if e == v {
				return true
			}
		}
		return false
	}() {
		return fmt.Errorf("%v is none of %v", v, s.Enum)
	}
	if !hasType(s.Type, v) {
		return fmt.Errorf("%v is not %v", v, s.Type)
	}
	if list, ok := v.([]any); ok && s.Items != nil {
		for i, e := range list {
			if err := d.check(*s.Items, e); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for name, e := range object {
		p, known := s.Properties[name]
		if known {
			if err := d.check(p, e); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		} else if s.Properties != nil && !d.lenient && (s.AdditionalProperties == nil || s.AdditionalProperties == false) {
			return fmt.Errorf("%s is not described", name)
		}
	}
	return nil
}

func hasType(want, v any) bool {
	if want == nil {
		return true
	}
	if list, ok := want.([]any); ok {
		for _, w := range list {
			if hasType(w, v) {
				return true
			}
		}
		return false
	}
	switch want {
	case "null":
		return v == nil
	case "integer":
		f, ok := v.(float64)
		return ok && f == float64(int64(f))
	case "number":
		return reflect.ValueOf(v).Kind() == reflect.Float64
	case "string":
		return reflect.ValueOf(v).Kind() == reflect.String
	case "boolean":
		return reflect.ValueOf(v).Kind() == reflect.Bool
	case "array":
		return reflect.ValueOf(v).Kind() == reflect.Slice
	}
	return want == huma.TypeObject && reflect.ValueOf(v).Kind() == reflect.Map
}

func TestDocumentIsServed(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/openapi.json", nil)
	New(Options{LimitRange: brig.DefaultLimitRange()}).ServeHTTP(w, r)
	if w.Code != 200 || !json.Valid(w.Body.Bytes()) || !strings.Contains(w.Body.String(), "from 32MiB to 64GiB, default 512MiB") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
