package engine_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestFallbackUsesNextProvider(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	if err := h.SetRouting(ctx, "", brig.Routing{Order: []string{"cloud", "fake"}}); err != nil {
		t.Fatal(err)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "cloud (first of the order)" {
		t.Error(got)
	}
	s.newestCloud("cloud").down.Store(true)
	// The first call detects the failure, and later calls skip the provider.
	if got := providerOf(t, h, brig.Placement{}); got != "fake (fallback: cloud failed) cloud SB003" {
		t.Error(got)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "fake (fallback: cloud is unavailable)" {
		t.Error(got)
	}
	box, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil || box.Provider != "fake" || box.Route.Reason != "fallback: cloud is unavailable" {
		t.Fatalf("%+v, %v", box, err)
	}
	// A placement with Only has no fallback.
	if got := providerOf(t, h, brig.Placement{Provider: "cloud", Only: true}); !strings.HasPrefix(got, "SB003: the cloud does not answer") {
		t.Error(got)
	}
	s.newestCloud("cloud").down.Store(false)
	eventually(t, func() bool { return providerOf(t, h, brig.Placement{}) == "cloud (first of the order)" })
}

// Each attempt of an operation has one intent and one outcome in the audit log, and
// only one attempt succeeds.
func TestFallbackAuditsEachAttempt(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	if err := h.SetRouting(ctx, "acme", brig.Routing{Order: []string{"cloud", "fake"}}); err != nil {
		t.Fatal(err)
	}
	s.newestCloud("cloud").down.Store(true)
	if got := providerOf(t, h, brig.Placement{}); !strings.HasPrefix(got, "fake") {
		t.Fatal(got)
	}
	events, err := h.store.Events(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	type pair struct{ intents, finished, failed int }
	by := map[brig.ID]*pair{}
	for _, x := range events {
		if x.Op != "run" {
			continue
		}
		p := by[x.Sandbox]
		if p == nil {
			p = &pair{}
			by[x.Sandbox] = p
		}
		switch {
		case x.Phase == brig.Intent:
			p.intents++
		case x.Kind == "":
			p.finished++
		default:
			p.failed++
		}
	}
	good := 0
	for id, p := range by {
		if p.intents != 1 || p.finished+p.failed != 1 {
			t.Errorf("%s: %+v", id, *p)
		}
		good += p.finished
	}
	if good != 1 || len(by) != 2 {
		t.Errorf("%d attempts, of which %d succeeded", len(by), good)
	}
}

// A run that no provider could execute is not counted as usage.
func TestFailedFallbackIsNotBilled(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	if err := h.SetRouting(ctx, "", brig.Routing{Order: []string{"cloud", "fake"}}); err != nil {
		t.Fatal(err)
	}
	s.newestCloud("cloud").down.Store(true)
	h.provider.CreateError = brig.Errorf(brig.CreationFailed, "no room")
	for _, place := range []brig.Placement{{}, {Provider: "fake", Only: true}} {
		if got := providerOf(t, h, place); !strings.HasPrefix(got, "SB004: no room") {
			t.Error(got)
		}
	}
	lines, err := h.TenantUsage(ctx, brig.UsageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Executions != 0 {
			t.Errorf("%d executions are counted", l.Executions)
		}
	}
}

func TestFullProviderOverflows(t *testing.T) {
	h, _ := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	if _, err := h.ConfigureProvider(ctx, brig.ProviderConfig{ID: "fake", Terms: &brig.Terms{Max: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := h.SetRouting(ctx, "", brig.Routing{Overflow: []string{"cloud"}}); err != nil {
		t.Fatal(err)
	}
	first, err := h.Create(ctx, brig.Spec{Name: "base"})
	if err != nil || first.Provider != "fake" {
		t.Fatalf("%+v, %v", first, err)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "cloud (overflow: fake is full)" {
		t.Error(got)
	}
	if got := providerOf(t, h, brig.Placement{Provider: "fake", Only: true}); !strings.HasPrefix(got, "SB008: the provider fake is full") {
		t.Error(got)
	}
	if err := h.Remove(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "fake (active)" {
		t.Error(got)
	}
}
