package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestChangesKeepOtherFields verifies that changing one field of any mutable object, through
// REST, E2B's API or the brig command, leaves the other fields unchanged.
//
//suite:part core
func TestChangesKeepOtherFields(t *testing.T) {
	s := startServer(t, dataDir(t), "--pool", "-1")
	svc, ctx := s.client(), t.Context()
	put := func(path, body string) {
		t.Helper()
		if status, got := s.do("PUT", path, body); status != 200 {
			t.Fatalf("PUT %s %s: %d %s", path, body, status, got)
		}
	}
	same := func(what string, got, want any) {
		t.Helper()
		a, err := json.Marshal(got)
		b, err2 := json.Marshal(want)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s, want %s", what, a, b)
		}
	}

	want := brig.Tenant{
		Name: "kept", Budget: 3, Quota: brig.Quota{Sandboxes: 4, Executions: 5, Rate: 6, Outputs: brig.MiB},
		Ceilings: brig.Ceilings{Limits: brig.Limits{Memory: brig.GiB, CPUs: 1}, MaxTTL: time.Hour, Images: []string{"host"}, DigestsOnly: true},
	}
	made, err := svc.CreateTenant(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	want.Created = made.Created
	rev := made.Rev
	tenant := func(what string, change func()) {
		t.Helper()
		change()
		got, err := svc.GetTenant(ctx, "kept")
		if err != nil {
			t.Fatal(err)
		}
		if got.Rev <= rev {
			t.Errorf("%s: revision %d after %d", what, got.Rev, rev)
		}
		rev, got.Rev = got.Rev, 0
		same(what, got, want)
	}
	tenant("a budget by REST", func() { put("/v1/tenants/kept", `{"budget":9}`); want.Budget = 9 })
	tenant("a quota by REST", func() { put("/v1/tenants/kept", `{"quota":{"sandboxes":0}}`); want.Quota.Sandboxes = 0 })
	tenant("a ceiling by REST", func() {
		put("/v1/tenants/kept", `{"ceilings":{"limits":{"cpus":2}}}`)
		want.Ceilings.Limits.CPUs = 2
	})
	tenant("a quota on the command line", func() {
		brigCommand(t, s.dir, "tenant", "update", "kept", "--rate", "50")
		want.Quota.Rate = 50
	})
	tenant("all of it by a client", func() {
		want.Quota, want.Ceilings.Images, want.Budget = brig.Quota{Rate: 1}, nil, 0
		if _, err := svc.UpdateTenant(ctx, want); err != nil {
			t.Fatal(err)
		}
	})

	put("/v1/routing", `{"order":["gvisor"],"attempts":2}`)
	put("/v1/routing", `{"prefer":"cheapest"}`)
	brigCommand(t, s.dir, "provider", "route", "--overflow", "gvisor")
	r, err := svc.Routing(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Rev = 0
	same("routing", r, brig.Routing{Order: []string{"gvisor"}, Attempts: 2, Prefer: brig.PreferCheapest, Overflow: []string{"gvisor"}})
	brigCommand(t, s.dir, "provider", "route", "--none")
	if r, err = svc.Routing(ctx, ""); err != nil {
		t.Fatal(err)
	}
	r.Rev = 0
	same("no routing", r, brig.Routing{})

	put("/v1/providers/gvisor", `{"terms":{"region":"eu","max":50}}`)
	put("/v1/providers/gvisor", `{"terms":{"second":0.25}}`)
	list, err := svc.Providers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.ID == "gvisor" {
			same("terms", p.Terms, brig.Terms{Region: "eu", Max: 50, Second: 0.25})
		}
	}

	needRoot(t)
	rule := brig.EgressRule{Host: "example.com"}
	_, err = svc.Create(ctx, brig.Spec{Name: "box", Egress: brig.Egress{Rules: []brig.EgressRule{rule}, Bandwidth: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	bandwidth := func(what string, rules int, want int64) {
		t.Helper()
		now, err := svc.Get(ctx, "box")
		if err != nil || now.Spec.Egress.Bandwidth != want || len(now.Spec.Egress.Rules) != rules {
			t.Errorf("%s: %+v, %v", what, now.Spec.Egress, err)
		}
	}
	put("/v1/sandboxes/box/egress", `{"rules":[{"host":"example.com"},{"host":"example.org"}]}`)
	bandwidth("rules by REST", 2, 1<<20)
	brigCommand(t, s.dir, "sandbox", "egress", "box", "--allow", "example.net")
	bandwidth("rules on the command line", 1, 1<<20)
	brigCommand(t, s.dir, "sandbox", "egress", "box", "--bandwidth", "2MiB")
	bandwidth("a bandwidth on the command line", 1, 2<<20)
	key, err := os.ReadFile(filepath.Join(s.dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	e2b := func(method, path, body string, want int) (out struct{ SandboxID string }) {
		t.Helper()
		req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-API-Key", strings.TrimSpace(string(key)))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
		}
		if want == 201 {
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	sandbox := e2b("POST", "/v2/sandboxes", `{"templateID":"base","timeout":600}`, 201)
	put("/v1/sandboxes/"+sandbox.SandboxID+"/egress", `{"rules":[{"host":"example.com"}],"bandwidth":1048576}`)
	e2b("PUT", "/sandboxes/"+sandbox.SandboxID+"/network", `{"allowOut":["1.1.1.1"]}`, 204)
	now, err := svc.Get(ctx, sandbox.SandboxID)
	if err != nil || now.Spec.Egress.Bandwidth != 1<<20 || len(now.Spec.Egress.Rules) != 1 || now.Spec.Egress.Rules[0].CIDR == "" {
		t.Errorf("rules by E2B's API: %+v, %v", now.Spec.Egress, err)
	}
}

// brigCommand runs a brig command on a data folder, and returns its output.
func brigCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command(bin(t, "brig"), append([]string{"--data-dir", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("brig %v: %v\n%s", args, err, out)
	}
	return string(out)
}
