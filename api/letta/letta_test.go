package letta_test

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/letta"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

var epoch = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// stub is a Service whose responses depend on the ids in the requests.
type stub struct{}

const known = "123e4567-e89b-42d3-8456-426614174000"

func errNotFound(id string) error {
	if id != known {
		return brig.Errorf(brig.NotFound, "no setup of tools %q", id)
	}
	return nil
}

func (stub) RunTool(_ context.Context, t brig.Tool) (*brig.ToolResult, error) {
	if kind, ok := strings.CutPrefix(t.Source, "kind "); ok {
		return nil, brig.Errorf(brig.Kind(kind), "it is %s", kind)
	}
	if t.Source == "schemas" {
		return nil, brig.Errorf(brig.PermissionDenied, "%s and %s", t.Schema, t.ArgumentSchema)
	}
	res := &brig.ToolResult{
		Name: t.Name, Value: t.Arguments, Text: string(t.Arguments) + strings.Join(t.Python, " ") + strings.Join(t.Node, " "), State: t.State, Fingerprint: "42", Sandbox: "tool-1", Reused: true,
		Duration: 12 * time.Millisecond, Stdout: brig.Output{Head: []byte("a\xff"), Tail: []byte("z"), Total: 100},
	}
	if t.Source == "fails" {
		res.Error, res.Text, res.ExitCode = &brig.ProgramError{Name: "E", Message: "m"}, "Error executing function f: E: m", 1
	}
	return res, nil
}

func setup(kind brig.ToolKind, config json.RawMessage) *brig.ToolSetup {
	if len(config) == 0 {
		config = json.RawMessage(`{}`)
	}
	return &brig.ToolSetup{ID: known, Kind: kind, Config: config, Created: epoch, Updated: epoch, CreatedBy: "ann", UpdatedBy: "ann"}
}

func (stub) PutToolSetup(_ context.Context, s brig.ToolSetup) (*brig.ToolSetup, error) {
	if s.ID != "" {
		return setup("local", s.Config), errNotFound(s.ID)
	}
	return setup(s.Kind, s.Config), nil
}

func (stub) ToolSetups(context.Context) ([]*brig.ToolSetup, error) {
	second := setup("e2b", nil)
	second.ID = strings.Replace(known, "123", "124", 1)
	return []*brig.ToolSetup{setup("local", nil), second}, nil
}

func (stub) RenewToolSetup(_ context.Context, kind brig.ToolKind) (*brig.ToolSetup, error) {
	return setup(kind, nil), nil
}
func (stub) RemoveToolSetup(_ context.Context, id string) error { return errNotFound(id) }

func (stub) PutToolVariable(_ context.Context, x brig.ToolVariable) (*brig.ToolVariable, error) {
	x.ID, x.Created, x.Updated, x.CreatedBy, x.UpdatedBy = known, epoch, epoch, "ann", "ann"
	return &x, errNotFound(x.Setup)
}

func (s stub) ChangeToolVariable(ctx context.Context, id string, c brig.ToolVariableChange) (*brig.ToolVariable, error) {
	if err := errNotFound(id); err != nil {
		return nil, err
	}
	x := brig.ToolVariable{Setup: known, Key: "OLD", Value: "old", Description: "was"}
	for _, part := range []struct{ from, to *string }{{c.Key, &x.Key}, {c.Value, &x.Value}, {c.Description, &x.Description}} {
		if part.from != nil {
			*part.to = *part.from
		}
	}
	return s.PutToolVariable(ctx, x)
}

func (s stub) ToolVariables(ctx context.Context, setup string) ([]*brig.ToolVariable, error) {
	if err := errNotFound(setup); err != nil {
		return nil, err
	}
	x, err := s.PutToolVariable(ctx, brig.ToolVariable{Setup: setup, Key: "K", Value: "v"})
	return []*brig.ToolVariable{x}, err
}
func (stub) RemoveToolVariable(_ context.Context, id string) error { return errNotFound(id) }

// keys accepts one key.
type keys struct{}

const key = "brig_0123456789012345678901234567890123456789"

func (keys) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member}, nil
}

func serve(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(letta.New(letta.Options{Service: stub{}, Keys: keys{}, Now: func() time.Time { return epoch }}))
	t.Cleanup(srv.Close)
	return srv.URL
}

var trace = regexp.MustCompile(`"trace_id":"[A-Z0-9]+"`)

// TestResponsesMatchTranscripts replays requests and compares the responses byte for byte.
func TestResponsesMatchTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Serve: serve,
		Do: func(t *testing.T, req *http.Request) (*http.Response, string) {
			if req.Header.Get("Authorization") == "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			return transcript.Fetch(t, req)
		},
		Headers:   []string{"Content-Type"},
		Normalize: func(s string) string { return trace.ReplaceAllString(s, `"trace_id":"TRACE"`) },
	})
}

// Every kind of error has a response with a text for Letta's clients and the Brig error for
// Brig's client.
func TestEveryErrorKindHasResponse(t *testing.T) {
	url := serve(t)
	for _, k := range brig.Kinds {
		req, err := http.NewRequest(http.MethodPost, url+"/v1/tools/run", strings.NewReader(`{"source_code":"kind `+string(k)+`","args":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var response struct {
			Detail string
			Error  struct{ Kind, Message string }
		}
		err = json.NewDecoder(resp.Body).Decode(&response)
		resp.Body.Close()
		if err != nil || resp.StatusCode < 400 || response.Detail == "" || response.Error.Kind != string(k) {
			t.Errorf("%s is %d %+v, %v", k, resp.StatusCode, response, err)
		}
		if k == brig.Internal && strings.Contains(response.Detail, "it is") {
			t.Errorf("an internal error tells its cause: %+v", response)
		}
	}
}

// FuzzRun verifies that the response to every body is a result or an error with a detail.
func FuzzRun(f *testing.F) {
	for _, seed := range []string{
		`{"source_code":"def f(): pass","args":{"a":[1,null]},"name":null,"pip_requirements":[{"name":"a","version":"1"}]}`,
		`{"source_code":"x","args":{},"args_json_schema":{"properties":{}},"json_schema":{"name":"f"},"env_vars":{"A":"b"}}`,
		`{"source_code":7}`, `[]`, `null`, ``, `{"source_code":"x","args":null}`, `{"source_code":"x","args":{},"source_type":"ruby"}`,
	} {
		f.Add([]byte(seed))
	}
	d := letta.New(letta.Options{Service: stub{}, Keys: keys{}})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/tools/run", strings.NewReader(string(body)))
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		var response map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil || response["status"] == nil && response["detail"] == nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
	})
}

// Schemas are not validated before the Service has authorized the caller.
func TestSchemasAreValidatedByService(t *testing.T) {
	d := letta.New(letta.Options{Service: stub{}, Keys: keys{}})
	for body, want := range map[string]string{
		`{"source_code":"schemas","args":{},"json_schema":"x","args_json_schema":[]}`: `\"x\" and []`,
		`{"source_code":"schemas","args":{},"json_schema":null}`:                      ` and `,
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/tools/run", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is answered with %d %s", body, w.Code, w.Body)
		}
	}
}
