package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func hash(i byte) [32]byte { return [32]byte{0, i, 31: 0xff} }

// newKey returns a key with every field set.
func newKey(tenant string, i byte) brig.Key {
	id := fmt.Sprintf("k%s%d", tenant, i)
	return brig.Key{
		ID: id, Hash: hash(i), Kind: brig.E2BKey, Prefix: "e2b_1234", Created: birth.Add(time.Duration(i)), Used: birth.Add(time.Hour),
		Actor: brig.Actor{
			Name: "ann", Tenant: tenant, Role: brig.Admin, Key: id, Scopes: []string{"run", "file."},
			Sandboxes: []string{"one"}, Expires: birth.Add(24 * time.Hour),
		},
	}
}

func testKeys(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.FindKey(ctx, hash(1))
	e := kind(t, err, brig.Unauthenticated)
	ann, too, bob := newKey("t", 1), newKey("t", 2), brig.Key{ID: "kb", Hash: hash(3), Actor: brig.Actor{Name: "bob", Tenant: "u", Role: brig.Viewer}}
	for _, k := range []brig.Key{ann, too, bob} {
		mustSucceed(t, s.PutKey(ctx, k))
	}
	for _, want := range []brig.Key{ann, too, bob} {
		got, err := s.FindKey(ctx, want.Hash)
		mustSucceed(t, err)
		checkEqual(t, "key "+want.ID, got, &want)
		got, err = s.GetKey(ctx, want.ID)
		mustSucceed(t, err)
		checkEqual(t, "key by id "+want.ID, got, &want)
	}
	found, err := s.FindKey(ctx, hash(1))
	mustSucceed(t, err)
	found.Actor.Scopes[0] = "scribbled"
	found, err = s.FindKey(ctx, hash(1))
	mustSucceed(t, err)
	checkEqual(t, "after its copy was changed", found, &ann)
	bob.Hash = hash(1)
	bob.ID = "k-new"
	mustSucceed(t, s.PutKey(ctx, bob)) // replaces the previous version
	got, err := s.FindKey(ctx, hash(1))
	mustSucceed(t, err)
	checkEqual(t, "a replaced key", got, &bob)
	_, err = s.GetKey(ctx, ann.ID)
	kind(t, err, brig.NotFound)
	a, err := s.FindKey(ctx, hash(4))
	checkEqual(t, "an unknown key's error", kind(t, err, brig.Unauthenticated), e)
	if a != nil {
		t.Errorf("an unknown key is %+v", a)
	}
}

func testKeyLists(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for _, k := range []brig.Key{newKey("t", 2), newKey("u", 3), newKey("t", 1)} {
		mustSucceed(t, s.PutKey(ctx, k))
	}
	ids := func(tenant string) (out []string) {
		list, err := s.ListKeys(ctx, tenant)
		mustSucceed(t, err)
		for _, k := range list {
			out = append(out, k.ID)
		}
		return out
	}
	checkEqual(t, "a tenant's keys", ids("t"), []string{"kt1", "kt2"})
	checkEqual(t, "all keys", ids(brig.AllTenants), []string{"kt1", "kt2", "ku3"})
	checkEqual(t, "nobody's keys", ids("nobody"), []string(nil))
	later := birth.Add(2 * time.Hour)
	mustSucceed(t, s.TouchKeys(ctx, map[string]time.Time{"kt1": later, "no such key": later}))
	for id, want := range map[string]time.Time{"kt1": later, "kt2": newKey("t", 2).Used} {
		k, err := s.GetKey(ctx, id)
		mustSucceed(t, err)
		checkEqual(t, "when "+id+" was used", k.Used, want)
	}
	mustSucceed(t, s.DeleteKey(ctx, "kt1"))
	mustSucceed(t, s.DeleteKey(ctx, "kt1")) // no error if it does not exist
	_, err := s.FindKey(ctx, hash(1))
	kind(t, err, brig.Unauthenticated)
	checkEqual(t, "what is left", ids(brig.AllTenants), []string{"kt2", "ku3"})
}

func testTenantRecords(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.GetTenant(ctx, "t")
	kind(t, err, brig.NotFound)
	want := filled[brig.Tenant](t, false)
	want.Name = "t"
	mustSucceed(t, s.PutTenant(ctx, want))
	mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: "a", Created: birth}))
	got, err := s.GetTenant(ctx, "t")
	mustSucceed(t, err)
	checkEqual(t, "a tenant", got, want)
	got.Ceilings.Images[0] = "scribbled"
	want.Quota.Sandboxes = 7
	mustSucceed(t, s.PutTenant(ctx, want)) // replaces
	all, err := s.Tenants(ctx)
	mustSucceed(t, err)
	checkEqual(t, "all tenants", all, []*brig.Tenant{{Name: "a", Created: birth}, want})
}

func testDeleteTenant(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for i, name := range []string{"t", "u"} {
		mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: name}))
		mustSucceed(t, s.PutKey(ctx, newKey(name, byte(i))))
		mustSucceed(t, s.PutRun(ctx, name, &brig.Outcome{Sandbox: "r"}))
		mustSucceed(t, s.PutSecret(ctx, sealed(name, "s", 1), 0))
		mustSucceed(t, s.AddUsage(ctx, []brig.UsageLine{{Tenant: name, Day: "2026-11-21", UsageTotals: brig.UsageTotals{Executions: 1}}}))
	}
	mustSucceed(t, s.PutSettings(ctx, []brig.Setting{
		{Name: brig.SettingRouting("t"), Type: "json", Value: []byte(`{}`), Updated: birth},
		{Name: brig.SettingRouting("u"), Type: "json", Value: []byte(`{}`), Updated: birth},
	}))
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	mustSucceed(t, s.DeleteTenant(ctx, "t")) // no error if it does not exist
	_, err := s.GetTenant(ctx, "t")
	kind(t, err, brig.NotFound)
	_, err = s.FindKey(ctx, hash(0))
	kind(t, err, brig.Unauthenticated)
	_, err = s.GetRun(ctx, "t", "r")
	kind(t, err, brig.NotFound)
	_, err = s.GetSecret(ctx, "t", "s")
	kind(t, err, brig.NotFound)
	_, err = s.GetSecret(ctx, "u", "s")
	mustSucceed(t, err)
	lines, err := s.Usage(ctx, brig.AllTenants, "", "9")
	mustSucceed(t, err)
	if len(lines) != 1 || lines[0].Tenant != "u" {
		t.Errorf("usage %+v is left, want that of u", lines)
	}
	settings, err := s.Settings(ctx)
	mustSucceed(t, err)
	if len(settings) != 1 || settings[0].Name != brig.SettingRouting("u") {
		t.Errorf("settings %+v are left, want the routing of u", settings)
	}
	_, err = s.GetTenant(ctx, "u")
	mustSucceed(t, err)
	_, err = s.FindKey(ctx, hash(1))
	mustSucceed(t, err)
	_, err = s.GetRun(ctx, "u", "r")
	mustSucceed(t, err)
}

func testUsage(t *testing.T, s brig.Store) {
	ctx := t.Context()
	spent := brig.UsageTotals{Executions: 1, ExecutionTime: time.Second, CPUTime: time.Minute, Memory: 0.25, Egress: 1 << 40, Cost: 0.5}
	line := func(tenant, day, label string) brig.UsageLine {
		return brig.UsageLine{Tenant: tenant, Day: day, Label: label, Value: label, UsageTotals: spent}
	}
	mustSucceed(t, s.AddUsage(ctx, []brig.UsageLine{line("t", "2026-11-21", ""), line("t", "2026-11-20", ""), line("u", "2026-11-21", "")}))
	mustSucceed(t, s.AddUsage(ctx, []brig.UsageLine{line("t", "2026-11-21", ""), line("t", "2026-11-21", "a")}))
	mustSucceed(t, s.AddUsage(ctx, nil))
	twice := line("t", "2026-11-21", "")
	twice.UsageTotals = spent.Add(spent)
	for _, c := range []struct {
		tenant, from, to string
		want             []brig.UsageLine
	}{
		{"t", "2026-11-21", "2026-11-21", []brig.UsageLine{twice, line("t", "2026-11-21", "a")}},
		{"t", "2026-11-01", "2026-11-20", []brig.UsageLine{line("t", "2026-11-20", "")}},
		{brig.AllTenants, "2026-11-21", "2026-11-30", []brig.UsageLine{twice, line("t", "2026-11-21", "a"), line("u", "2026-11-21", "")}},
		{"v", "2026-11-01", "2026-11-30", nil},
	} {
		got, err := s.Usage(ctx, c.tenant, c.from, c.to)
		mustSucceed(t, err)
		checkEqual(t, fmt.Sprintf("usage of %s from %s to %s", c.tenant, c.from, c.to), got, c.want)
	}
	mustSucceed(t, s.PruneUsage(ctx, "2026-11-21"))
	got, err := s.Usage(ctx, "t", "2026-11-01", "2026-11-20")
	mustSucceed(t, err)
	checkEqual(t, "after older days were forgotten", got, []brig.UsageLine(nil))
}

// testUsageIsAtomic verifies that either all lines are added or none.
func testUsageIsAtomic(t *testing.T, s brig.Store) {
	line := brig.UsageLine{Tenant: "t", Day: "2026-11-21", UsageTotals: brig.UsageTotals{Executions: 1}}
	if err := s.AddUsage(canceled(t), []brig.UsageLine{line, line}); err == nil {
		t.Error("usage was added for a caller who had gone")
	}
	got, err := s.Usage(t.Context(), "t", "", "9")
	mustSucceed(t, err)
	checkEqual(t, "usage", got, []brig.UsageLine(nil))
	mustSucceed(t, s.AddUsage(t.Context(), []brig.UsageLine{line, line})) // the same line twice counts twice
	got, err = s.Usage(t.Context(), "t", "", "9")
	mustSucceed(t, err)
	if len(got) != 1 || got[0].Executions != 2 {
		t.Errorf("usage %+v, want two executions", got)
	}
}
