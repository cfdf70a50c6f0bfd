package v1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// full returns a tenant in which every changeable field has a value.
func full() *brig.Tenant {
	return &brig.Tenant{
		Name: "acme", Budget: 7,
		Quota: brig.Quota{
			Sandboxes: 1, Paused: 13, Executions: 2, ExecutionsPerDay: 3, ExecutionTimePerDay: 4e6, CPUTimePerDay: 5e6, MemoryPerDay: 6,
			EgressPerDay: 7, Storage: 8, Workspaces: 9, Volumes: 14, Outputs: 10, Rate: 11, RatePerKey: 12,
		},
		Ceilings: brig.Ceilings{
			Limits: brig.Limits{Memory: 1, CPUs: 2, Processes: 3, OpenFiles: 4, Disk: 5, Output: 6},
			MaxTTL: 1e6, MaxLife: 2e6, MaxPause: 4e6, MaxTimeout: 3e6, Images: []string{"host"}, DigestsOnly: true,
			Screening: &brig.Screening{Others: true, Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Imports: []string{"os"}}}},
		},
	}
}

// leaves returns the paths of all values in a document that are not objects.
func leaves(doc map[string]any, path []string) (out [][]string) {
	for _, k := range slices.Sorted(maps.Keys(doc)) {
		at := append(slices.Clone(path), k)
		if sub, ok := doc[k].(map[string]any); ok && len(sub) > 0 {
			out = append(out, leaves(sub, at)...)
		} else {
			out = append(out, at)
		}
	}
	return out
}

// document converts a value to a document by encoding and decoding it as JSON.
func document(t *testing.T, v any) (doc map[string]any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestChangeAffectsOneField changes one field of a tenant at a time. It verifies that the other
// fields keep their values, and that null does not change a field.
func TestChangeAffectsOneField(t *testing.T) {
	before := full()
	whole := document(t, v1.FullTenant(*before))
	paths := leaves(whole, nil)
	if len(paths) < 30 {
		t.Fatalf("%d parts only: %v", len(paths), paths)
	}
	describe := func(tenant brig.Tenant) map[string]any { return document(t, v1.FullTenant(tenant)) }
	change := func(body any) brig.Tenant {
		in := v1.ChangeOf(full())
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, in); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		return in.Domain(full())
	}
	for _, p := range paths {
		if p[0] == "unscreened" || p[0] == "ceilings" && p[1] == "screening" {
			continue // tested below
		}
		for _, to := range []string{"zero", "null"} {
			body := any(nil)
			now := any(whole)
			for _, k := range p {
				now = now.(map[string]any)[k]
			}
			if to == "zero" {
				body = reflect.Zero(reflect.TypeOf(now)).Interface()
				if _, list := now.([]any); list {
					body = []any{}
				}
			}
			for _, k := range slices.Backward(p) {
				body = map[string]any{k: body}
			}
			var differ []string
			got := describe(change(body))
			for _, q := range paths {
				a, b := any(whole), any(got)
				for _, k := range q {
					a = a.(map[string]any)[k]
					b, _ = b.(map[string]any)[k]
				}
				if !reflect.DeepEqual(a, b) {
					differ = append(differ, fmt.Sprint(q))
				}
			}
			want := []string{fmt.Sprint(p)}
			if to == "null" {
				want = nil
			}
			if !reflect.DeepEqual(differ, want) {
				t.Errorf("%s to %s changed %v", fmt.Sprint(p), to, differ)
			}
		}
	}
	if got := change(map[string]any{"ceilings": map[string]any{"screening": nil}}); got.Ceilings.Screening == nil {
		t.Error("null took the screening away")
	}
	if got := change(map[string]any{"unscreened": true}); got.Ceilings.Screening != nil || got.Quota != before.Quota {
		t.Errorf("unscreened: %+v", got)
	}
}

// TestTenantRoundTrip verifies that a client can replace a whole tenant: zero values in the body
// overwrite the old values.
func TestTenantRoundTrip(t *testing.T) {
	for name, want := range map[string]brig.Tenant{"nothing": {Name: "acme"}, "full": *full()} {
		for from, was := range map[string]*brig.Tenant{"full": full(), "nothing": {Name: "acme"}} {
			in := v1.ChangeOf(was)
			b, err := json.Marshal(v1.FullTenant(want))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, in); err != nil {
				t.Fatal(err)
			}
			got := in.Domain(was)
			if len(got.Ceilings.Images) == 0 {
				got.Ceilings.Images = nil
			}
			if !reflect.DeepEqual(describe(got), describe(want)) {
				t.Errorf("%s over %s: %s", name, from, describe(got))
			}
		}
	}
}

func describe(t brig.Tenant) string {
	b, err := json.Marshal(v1.FromTenant(&t))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestPartialChanges verifies that changes of routings, terms and egress rules also affect only
// one field.
func TestPartialChanges(t *testing.T) {
	was := brig.Routing{
		Order: []string{"a"}, Split: map[string]int{"b": 1}, Overflow: []string{"c"},
		Prefer: brig.PreferRegion, Regions: []string{"eu"}, Attempts: 2,
	}
	for body, change := range map[string]func(r *brig.Routing){
		`{}`:              func(*brig.Routing) {},
		`{"order":["z"]}`: func(r *brig.Routing) { r.Order = []string{"z"} },
		`{"order":[]}`:    func(r *brig.Routing) { r.Order = nil },
		`{"split":{}}`:    func(r *brig.Routing) { r.Split = nil },
		`{"split":{"z":3},"attempts":0}`: func(r *brig.Routing) {
			r.Split, r.Attempts = map[string]int{"z": 3}, 0
		},
		`{"prefer":""}`: func(r *brig.Routing) { r.Prefer = "" },
	} {
		var in v1.RoutingChange
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		want := was
		change(&want)
		if got := in.Apply(was); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", body, got)
		}
	}
	var none v1.RoutingChange
	b, err := json.Marshal(v1.Explicit(v1.FromRouting(brig.Routing{})))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &none); err != nil {
		t.Fatal(err)
	}
	if got := none.Apply(was); !reflect.DeepEqual(got, brig.Routing{}) {
		t.Errorf("a client's no routing, %s, left %+v", b, got)
	}
	terms := brig.Terms{Region: "eu", Max: 3, Second: 0.5}
	five, nothing := 5, ""
	if got := (v1.TermsChange{Max: &five}).Apply(terms); got != (brig.Terms{Region: "eu", Max: 5, Second: 0.5}) {
		t.Errorf("terms: %+v", got)
	}
	if got := (v1.TermsChange{Region: &nothing}).Apply(terms); got != (brig.Terms{Max: 3, Second: 0.5}) {
		t.Errorf("terms: %+v", got)
	}
	if got := (v1.EgressChange{Rules: []v1.EgressRule{}}).Domain(); got.Bandwidth != brig.SameBandwidth {
		t.Errorf("rules alone change the bandwidth: %+v", got)
	}
	for _, bandwidth := range []int64{brig.SameBandwidth, 0, 5} {
		var in v1.EgressChange
		b, err := json.Marshal(v1.FromEgressChange(brig.Egress{Bandwidth: bandwidth}))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &in); err != nil || in.Domain().Bandwidth != bandwidth || in.Rules == nil {
			t.Errorf("%d became %s, %v", bandwidth, b, err)
		}
	}
}
