package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// document is the part of an OpenAPI document that is needed to generate
// requests.
type document struct {
	Paths      map[string]map[string]operationOf
	Components struct{ Schemas map[string]schemaOf }
}

type operationOf struct {
	RequestBody *struct {
		Content map[string]struct{ Schema schemaOf }
	}
}

type schemaOf struct {
	Ref        string `json:"$ref"`
	Properties map[string]schemaOf
}

// noImages is an image store that rejects requests to build or pull images with
// FailedPrecondition.
type noImages struct{ hostImage }

func (noImages) Build(context.Context, brig.ImageBuild, func(brig.Progress)) (*brig.Image, error) {
	return nil, brig.Errorf(brig.FailedPrecondition, "nothing is built here")
}

func (noImages) Pull(context.Context, brig.ImagePull, func(brig.Progress)) (*brig.Image, error) {
	return nil, brig.Errorf(brig.FailedPrecondition, "nothing is pulled here")
}

func (noImages) Import(context.Context, string, io.Reader, func(brig.Progress)) (*brig.Image, error) {
	return nil, brig.Errorf(brig.FailedPrecondition, "nothing is imported here")
}

func (noImages) Tag(context.Context, string, string) (*brig.Image, error) {
	return nil, brig.Errorf(brig.FailedPrecondition, "nothing is tagged here")
}

func (noImages) Remove(context.Context, string) error {
	return brig.Errorf(brig.NotFound, "no such image")
}

// serveDocument starts a server with a fake provider and returns its OpenAPI
// document.
func serveDocument(t *testing.T) (url string, d document, empty func()) {
	t.Helper()
	store := mem.New()
	addKeys(t, store)
	quiet := slog.New(slog.DiscardHandler)
	e := engine.New(t.Context(), engine.Options{
		Store: store, Provider: &fake.Provider{BuildRights: true}, Images: noImages{}, LimitRange: brig.DefaultLimitRange(), Log: quiet, Keys: keyring(t), Seed: []byte("seed"),
		Workspaces: folderOf(t, t.TempDir()),
	})
	t.Cleanup(e.Close)
	service, builds := withBuilds(t, e, store)
	srv := httptest.NewServer(rest.New(rest.Options{Service: service, Builds: builds, Keys: e, LimitRange: brig.DefaultLimitRange(), Log: quiet}))
	t.Cleanup(srv.Close)
	ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator})
	if _, err := e.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(srv.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return srv.URL, d, func() {
		for {
			page, err := e.List(ctx, brig.ListOptions{Limit: 100})
			if err != nil || len(page.Sandboxes) == 0 {
				return
			}
			for _, s := range page.Sandboxes {
				_ = e.Remove(ctx, s.Spec.Name)
			}
		}
	}
}

// wrongValues returns JSON values, by description, that are invalid for many types of fields.
func wrongValues() map[string]string {
	return map[string]string{
		"null": `null`, "a string": `"x"`, "NUL": `"a\u0000b"`, "odd characters": `"\u202e\ud83d\ude00\ufffe"`, "half a pair": `"\ud800"`, "not UTF-8": "\"\xff\xfe\"",
		"a number": `7`, "a fraction": `0.5`, "a negative number": `-1`, "the least number": `-9223372036854775808`, "a huge number": `1e308`, "too many digits": strings.Repeat("9", 400),
		"true": `true`, "a list": `[]`, "a list of lists": `[[[[]]]]`, "an object": `{}`, "nested deeply": strings.Repeat(`{"a":[`, 2000) + strings.Repeat(`]}`, 2000),
		"a long string": `"` + strings.Repeat("A", 1<<20) + `"`, "many elements": `["a"` + strings.Repeat(`,"a"`, 20000) + `]`, "many fields": `{"a":"b"` + fields(5000) + `}`,
		"traversal": `"../../../../etc/passwd"`, "lines": `"a\r\nX-Evil: b"`, "a script": `"<img src=x onerror=alert(1)>"`,
	}
}

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":"v"`, i)
	}
	return b.String()
}

// resolve resolves a reference to its schema.
func (d document) resolve(s schemaOf) schemaOf {
	for s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	return s
}

// bodies returns invalid bodies for an operation, by description: bodies in which one field has
// an invalid value, and bodies that are invalid as a whole.
func (d document) bodies(s schemaOf) map[string]string {
	s = d.resolve(s)
	out := map[string]string{"nothing": "", "not JSON": "x", "a list": "[]", "null": "null", "cut off": `{"a`, "unknown field": `{"no_such_field":1}`, "twice": "{}{}", "not UTF-8": "\xff\xfe{}"}
	for name := range s.Properties {
		quoted := strconv.Quote(name)
		for what, v := range wrongValues() {
			out[name+" is "+what] = fmt.Sprintf(`{%s:%s}`, quoted, v)
		}
		out[name+" is given twice"] = fmt.Sprintf(`{%s:1,%s:1}`, quoted, quoted)
	}
	return out
}

// TestAPIGenerated verifies that the server responds immediately, and never with an internal
// error, if any field or path parameter of any operation has an invalid value.
//
//suite:part core
func TestAPIGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	url, d, empty := serveDocument(t)
	client := &http.Client{Timeout: promptTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	before := runtime.NumGoroutine()
	total := 0
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			n, bad := 0, 0
			try := func(about, target, kind, body string) {
				n++
				if reason := sendGenerated(client, strings.ToUpper(method), url+target, keyOfAcme, kind, body); reason != "" {
					bad++
					t.Errorf("%s %s: %s: %s", method, path, about, reason)
				}
			}
			names := parameterNames(path)
			for what, v := range map[string]string{
				"NUL": "%00", "dots": "%2e%2e", "empty": "", "long": strings.Repeat("a", 4000), "odd": "%f0%9f%98%80%e2%80%ae", "not UTF-8": "%ff", "escaped badly": "%zz", "negative": "-1",
				"huge": strings.Repeat("9", 40), "lines": "%0d%0aX:y", "slashes": "a%2fb%5cc", "script": "%3Cimg%20src=x%3E",
			} {
				for i := range names {
					try(names[i]+" is "+what, fillParameter(path, i, v), "application/json", "{}")
				}
				try("a query: "+what, fillParameter(path, -1, "")+"?limit="+v+"&"+v+"="+v+"&path="+v+"&offset="+v, "application/json", "{}")
			}
			if op.RequestBody != nil {
				for kind, c := range op.RequestBody.Content {
					for what, body := range d.bodies(c.Schema) {
						try(kind+": "+what, fillParameter(path, -1, ""), kind, body)
					}
				}
				try("another type", fillParameter(path, -1, ""), "text/xml", "<a/>")
			}
			total += n
			attack.RecordCase("API-06", fmt.Sprintf("%s %s, generated: %d ways", method, path, n), bad > 0)
		}
	}
	client.CloseIdleConnections()
	empty()
	t.Logf("%d requests", total)
	if total < 3000 {
		t.Errorf("%d requests are too few to mean anything", total)
	}
	for end := time.Now().Add(promptTimeout); runtime.NumGoroutine() > before+4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestAPIGeneratedDetectsFailingServers verifies that TestAPIGenerated would detect servers that
// crash or do not respond.
//
//suite:part core
func TestAPIGeneratedDetectsFailingServers(t *testing.T) {
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(b), "hang"):
			<-r.Context().Done()
		case strings.Contains(string(b), "fall"):
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "oops", http.StatusInternalServerError)
		}
	}))
	defer careless.Close()
	client := &http.Client{Timeout: 300 * time.Millisecond}
	for _, body := range []string{"hang", "fall", "else"} {
		reason := sendGenerated(client, "POST", careless.URL, "k", "application/json", body)
		if reason == "" {
			t.Errorf("%s is not seen", body)
		}
		attack.RecordMutant("API-06", "a server that does not stand it: "+body, "strict decoding", reason != "")
	}
}

// sendGenerated sends a request and returns a description of what is wrong with the response, or
// "".
func sendGenerated(client *http.Client, method, url, key, kind, body string) (reason string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "" // Go's client refuses to send this request
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", kind)
	begin := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Sprintf("after %v: %v", time.Since(begin), err)
	}
	defer resp.Body.Close()
	// The stream of a valid request does not end, so read only its start.
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	switch {
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented:
		return fmt.Sprintf("%s: %s", resp.Status, b)
	case resp.StatusCode >= 400 && !strings.Contains(string(b), `"code"`) && !strings.HasPrefix(string(b), "400 Bad Request"):
		return fmt.Sprintf("not our shape: %s: %s", resp.Status, b)
	}
	return ""
}

// parameterNames returns the names of the parameters in a path.
func parameterNames(path string) (out []string) {
	for _, s := range strings.Split(path, "/") {
		if strings.HasPrefix(s, "{") {
			out = append(out, s)
		}
	}
	return out
}

// fillParameter replaces the i-th parameter of a path with a value, and the others
// with valid values.
func fillParameter(path string, i int, v string) string {
	for n, s := range parameterNames(path) {
		with := "box"
		if n == i {
			with = v
		} else if n > 0 {
			with = "7"
		}
		path = strings.Replace(path, s, with, 1)
	}
	return path
}
