package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// kernelRows maps each route of the kernel gateway to its rows. The required roles are the same
// for stateful and ephemeral kernels.
var kernelRows = map[string][]apiRow{
	"GET /api": {{want: 200}}, "GET /api/": {{want: 200}}, "GET /api/kernelspecs": {{want: 200}}, "GET /api/kernelspecs/{spec}": {{want: 200}},
	"GET /api/kernels": {{op: brig.OpKernels, want: 200}},
	"POST /api/kernels": {
		{op: brig.OpCreateKernel, want: 201}, {op: brig.OpCreateKernel, body: `{"name":"python3"}`, want: 201},
		{op: brig.OpCreateKernel, body: `{"name":"python3-ephemeral"}`, want: 201},
	},
	"GET /api/kernels/{id}":            {{op: brig.OpGetKernel, want: 200}},
	"DELETE /api/kernels/{id}":         {{op: brig.OpRemoveKernel, want: 204}},
	"POST /api/kernels/{id}/interrupt": {{op: brig.OpInterruptKernel, want: 204}},
	"POST /api/kernels/{id}/restart":   {{op: brig.OpRestartKernel, want: 200}},
	"GET /api/kernels/{id}/channels":   {{op: brig.OpOpenKernel, want: http.StatusSwitchingProtocols}},
}

// kernelSpecs are the two kinds of kernels.
var kernelSpecs = []string{kernels.Stateful, kernels.Ephemeral}

// kernelCase creates a kernel of acme, and returns a test case that uses it.
func (m *matrix) kernelCase(t *testing.T, route, spec string, row apiRow) apiCase {
	t.Helper()
	list := func() string {
		got := m.request(t, http.MethodGet, "/api/kernels", "", "Authorization", "token "+m.keys["owner"])
		if got.status != http.StatusOK {
			t.Fatalf("the owner's list: %d %s", got.status, got.body)
		}
		return got.body
	}
	var others []struct{ ID string }
	if err := json.Unmarshal([]byte(list()), &others); err != nil {
		t.Fatal(err)
	}
	for _, k := range others { // remove the kernels of earlier rows, because the number of kernels is limited
		m.request(t, http.MethodDelete, "/api/kernels/"+k.ID, "", "Authorization", "token "+m.keys["owner"])
	}
	got := m.request(t, http.MethodPost, "/api/kernels", fmt.Sprintf(`{"name":%q}`, spec), "Authorization", "token "+m.keys["owner"])
	var k struct{ ID string }
	if err := json.Unmarshal([]byte(got.body), &k); err != nil || k.ID == "" {
		t.Fatalf("no kernel was created: %d %s", got.status, got.body)
	}
	method, path, _ := strings.Cut(route, " ")
	c := apiCase{
		m: m, errorf: t.Errorf, method: method, path: strings.NewReplacer("{id}", k.ID, "{spec}", spec).Replace(path), row: row,
		scheme: "token", keyless: http.StatusForbidden, // as with Jupyter's server
		names:   map[string]string{k.ID: k.ID[:len(k.ID)-4] + "0000"},
		secrets: []string{"acme", k.ID},
		state:   func() string { return m.state() + " " + list() },
	}
	if strings.HasSuffix(route, "/channels") {
		c.headers = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	}
	return c
}

// specsOf returns the kinds of kernels with which a route is tested.
func specsOf(route string) []string {
	if strings.Contains(route, "{") {
		return kernelSpecs
	}
	return kernelSpecs[:1]
}

// TestKernelTenancyMatrix tests every route of the kernel gateway, including its WebSocket, with
// all callers that lack access. Callers without a valid key must receive 403, as from Jupyter's
// server. Another tenant must receive the same bytes as for a kernel that never existed. Rejected
// requests must not change a kernel.
//
//suite:part hostile
func TestKernelTenancyMatrix(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	checkRows(t, "../api/kernels/routes.go", kernelRows)
	for _, route := range slices.Sorted(maps.Keys(kernelRows)) {
		for _, row := range kernelRows[route] {
			for _, spec := range specsOf(route) {
				name := route + " " + row.body + " " + spec
				t.Run(name, func(t *testing.T) {
					attack.Case(t, "API-01", "kernels: "+name+" by callers without access")
					m.kernelCase(t, route, spec, row).check(t)
				})
			}
		}
	}
	t.Run("key in the URL", func(t *testing.T) { m.kernelKeysInURL(t) })
}

// kernelKeysInURL verifies that a key in the URL has the same rights as a key in the header.
func (m *matrix) kernelKeysInURL(t *testing.T) {
	for _, spec := range kernelSpecs {
		c := m.kernelCase(t, "GET /api/kernels/{id}", spec, kernelRows["GET /api/kernels/{id}"][0])
		before := c.state()
		for _, who := range slices.Sorted(maps.Keys(m.keys)) {
			attack.Case(t, "API-01", "kernels: the key of "+who+" in the address")
			in := m.request(t, c.method, c.path+"?token="+m.keys[who], "")
			if got := c.send(t, who, false); got.status != in.status || got.body != in.body {
				t.Errorf("%s, %s: %d %s in the address, and %d %s in the header", spec, who, in.status, in.body, got.status, got.body)
			}
			if allowed := who == "owner" || who == "viewer"; (in.status == http.StatusOK) != allowed {
				t.Errorf("%s, %s: %d %s", spec, who, in.status, in.body)
			}
		}
		if after := c.state(); after != before {
			t.Errorf("acme has %s, before %s", after, before)
		}
	}
}

// leakyKeys gives the keys of all tenants access to acme's objects.
type leakyKeys struct{ *engine.Engine }

// KeyActor implements httpapi.Keys.
func (l leakyKeys) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	a, err := l.Engine.KeyActor(ctx, hash)
	a.Tenant = "acme"
	return a, err
}

// TestKernelTenancyMatrixDetectsIgnoredOwner verifies that the matrix detects a server that
// ignores the owner of sandboxes, and a server that ignores the tenant of keys, on which the
// protection of ephemeral kernels depends.
//
//suite:part hostile
func TestKernelTenancyMatrixDetectsIgnoredOwner(t *testing.T) {
	check := func(m *matrix, spec, off string) {
		for _, route := range []string{"GET /api/kernels/{id}", "GET /api/kernels/{id}/channels", "POST /api/kernels/{id}/interrupt", "DELETE /api/kernels/{id}"} {
			seen := 0
			c := m.kernelCase(t, route, spec, kernelRows[route][0])
			c.errorf = func(string, ...any) { seen++ }
			if c.checkForeign(t); seen == 0 {
				t.Errorf("%s of a kernel %s: the matrix does not detect the leak", route, spec)
			}
			attack.RecordMutant("API-01", "kernels: "+route+" "+spec, off, seen > 0)
		}
	}
	check(newMatrix(t, func(s brig.Store) brig.Store { return leakyStore{s} }), kernels.Stateful, "the tenant in the store's query")

	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	gateway := kernels.New(kernels.Options{Service: m.engine, Keys: leakyKeys{m.engine}})
	srv := httptest.NewServer(gateway)
	t.Cleanup(func() { srv.Close(); gateway.Close() })
	m.url = srv.URL
	check(m, kernels.Ephemeral, "the tenant of a key")
}
