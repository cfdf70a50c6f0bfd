package mcp_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// forkStub is a Service that keeps the last request for copies, and fails with err if it is set.
type forkStub struct {
	*stub
	got brig.ForkSpec
	err error
}

// Fork implements brig.Service.
func (s *forkStub) Fork(_ context.Context, _ string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	s.got = o
	return nil, s.err
}

// forkWith calls the tool fork_sandbox with arguments.
func forkWith(t *testing.T, c *sdk.ClientSession, arguments map[string]any) *sdk.CallToolResult {
	t.Helper()
	arguments["sandbox"] = "box"
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "fork_sandbox", Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each argument of the tool changes one property of the copies. Without it, the copies have the
// property of the original.
func TestForkPassesArguments(t *testing.T) {
	s := &forkStub{stub: newStub()}
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, false)
	for name, test := range map[string]struct {
		arguments map[string]any
		want      brig.ForkSpec
	}{
		"nothing":      {map[string]any{}, brig.ForkSpec{}},
		"count":        {map[string]any{"count": 3, "labels": map[string]string{}}, brig.ForkSpec{Count: 3, Labels: map[string]string{}}},
		"env":          {map[string]any{"env": map[string]string{"A": "1"}}, brig.ForkSpec{Env: map[string]string{"A": "1"}}},
		"hosts":        {map[string]any{"allow_hosts": []string{"a.example"}}, brig.ForkSpec{Egress: &brig.Egress{Rules: []brig.EgressRule{{Host: "a.example"}}}}},
		"no hosts":     {map[string]any{"allow_hosts": []string{}}, brig.ForkSpec{Egress: &brig.Egress{}}},
		"user":         {map[string]any{"user": "root", "dir": "/srv"}, brig.ForkSpec{User: "root", Dir: "/srv"}},
		"pause at end": {map[string]any{"pause_at_end": true}, brig.ForkSpec{AtEnd: &brig.AtEnd{Pause: true}}},
		"end":          {map[string]any{"pause_at_end": false}, brig.ForkSpec{AtEnd: &brig.AtEnd{}}},
		"limits":       {map[string]any{"memory_mib": 256, "cpus": 0.5}, brig.ForkSpec{Limits: brig.Limits{Memory: 256 * brig.MiB, CPUs: 0.5}}},
	} {
		if r := forkWith(t, c, test.arguments); r.IsError || !reflect.DeepEqual(s.got, test.want) {
			t.Errorf("%s: %+v: the service gets %+v, want %+v", name, r, s.got, test.want)
		}
	}
}

// An error of the Service names the argument of the tool, which the model knows.
func TestErrorsNameArguments(t *testing.T) {
	s := &forkStub{stub: newStub()}
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, false)
	for field, want := range map[string]string{
		"ttl_ms": "ttl_seconds", "limits.memory": "memory_mib", "limits.cpus": "cpus", "default_user": "user", "default_cwd": "dir",
		"egress.rules[2].host": "allow_hosts[2]", "egress": "allow_hosts", "env": "env", "count": "count", "limits.disk": "limits.disk", "volumes[1].path": "volumes[1].path", "": "",
	} {
		s.err = brig.InvalidField(field, "is wrong").WithHint("raise ttl_ms, limits.memory or egress.rules; cwd is a word")
		r := forkWith(t, c, map[string]any{})
		got, err := json.Marshal(r.Meta["brig.run/error"])
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Field, Hint string }
		if err := json.Unmarshal(got, &e); err != nil {
			t.Fatal(err)
		}
		if text := r.Content[0].(*sdk.TextContent).Text; !r.IsError || e.Field != want || !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s, %s", field, text, got)
		}
		if e.Hint != "raise ttl_seconds, memory_mib or allow_hosts; cwd is a word" {
			t.Errorf("the hint is %q", e.Hint)
		}
	}
}
