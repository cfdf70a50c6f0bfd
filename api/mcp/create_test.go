package mcp_test

import (
	"context"
	"reflect"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// createStub is a Service that keeps the last request for a sandbox.
type createStub struct {
	*stub
	got brig.Spec
}

// Create implements brig.Service.
func (s *createStub) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	s.got = spec
	return s.stub.Create(ctx, spec)
}

// The tool mounts volumes by name and path, for reading and writing unless the argument says otherwise.
func TestCreateMountsVolumes(t *testing.T) {
	s := &createStub{stub: newStub()}
	srv, _ := serve(t, s, nil)
	c := connect(t, srv.URL, annsKey, false)
	for name, test := range map[string]struct {
		volumes []map[string]any
		want    []brig.VolumeMount
	}{
		"none":      {nil, nil},
		"writable":  {[]map[string]any{{"name": "data", "path": "/data"}}, []brig.VolumeMount{{Name: "data", Path: "/data"}}},
		"read-only": {[]map[string]any{{"name": "data", "path": "/data", "read_only": true}}, []brig.VolumeMount{{Name: "data", Path: "/data", ReadOnly: true}}},
		"two": {
			[]map[string]any{{"name": "data", "path": "/a"}, {"name": "data", "path": "/b", "read_only": false}},
			[]brig.VolumeMount{{Name: "data", Path: "/a"}, {Name: "data", Path: "/b"}},
		},
	} {
		arguments := map[string]any{}
		if test.volumes != nil {
			arguments["volumes"] = test.volumes
		}
		r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "create_sandbox", Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		if r.IsError || !reflect.DeepEqual(s.got.Volumes, test.want) {
			t.Errorf("%s: %+v: the service gets %+v, want %+v", name, r, s.got.Volumes, test.want)
		}
	}
}
