package servicetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// tenancyCases are the cases about tenants, keys, sessions and usage.
type tenancyCases struct{ Harness }

// testTenancy runs the tests that need the operator role.
func (h tenancyCases) testTenancy(t *testing.T) {
	t.Run("keys", h.testKeys)
	t.Run("sessions", h.testSessions)
	t.Run("tenant", h.testTenantLife)
	t.Run("usage", h.testUsage)
}

func (h tenancyCases) testKeys(t *testing.T) {
	ctx := h.Context(t)
	k, err := h.Service.CreateKey(ctx, brig.KeySpec{Name: "ci " + name(), Role: brig.Member, Scopes: []string{"run"}, TTL: time.Hour})
	if err != nil {
		t.Fatalf("CreateKey: %v", err)
	}
	if k.Secret == "" || k.ID == "" || k.Actor.Role != brig.Member || k.Created.IsZero() || time.Until(k.Actor.Expires) < 50*time.Minute {
		t.Errorf("CreateKey = %+v", k)
	}
	find := func() *brig.Key {
		list, err := h.Service.Keys(ctx, "")
		if err != nil {
			t.Fatalf("Keys: %v", err)
		}
		for _, x := range list {
			if x.ID == k.ID {
				return x
			}
		}
		return nil
	}
	if got := find(); got == nil || got.Actor.Name != k.Actor.Name || got.Actor.Tenant != k.Actor.Tenant || len(got.Actor.Scopes) != 1 || got.Prefix != k.Prefix || got.Hash != [32]byte{} {
		t.Errorf("the key is listed as %+v", got)
	}
	for field, spec := range map[string]brig.KeySpec{
		"name": {Role: brig.Viewer}, "role": {Name: "x"}, "scopes": {Name: "x", Role: brig.Viewer, Scopes: []string{"nonsense"}},
		"kind": {Name: "x", Role: brig.Viewer, Kind: "nonsense"}, "ttl_ms": {Name: "x", Role: brig.Viewer, TTL: -time.Hour},
	} {
		_, err := h.Service.CreateKey(ctx, spec)
		wantField(t, "CreateKey", err, field)
	}
	_, err = h.Service.CreateKey(ctx, brig.KeySpec{Name: "x", Role: brig.Viewer, Tenant: name()})
	wantKind(t, "CreateKey for no tenant", err, brig.NotFound)
	_, err = h.Service.CreateGrant(ctx, brig.GrantSpec{TTL: 1000 * time.Hour})
	if err == nil {
		t.Error("a grant for a thousand hours is made")
	}
	if err := h.Service.RevokeKey(ctx, k.ID); err != nil {
		t.Errorf("RevokeKey: %v", err)
	}
	wantKind(t, "RevokeKey again", h.Service.RevokeKey(ctx, k.ID), brig.NotFound)
	if find() != nil {
		t.Error("a revoked key is listed")
	}
}

func (h tenancyCases) testSessions(t *testing.T) {
	ctx := h.Context(t)
	s, err := h.Service.CreateSession(ctx)
	if err != nil {
		t.Fatalf("CreateSession: %v", err)
	}
	if !strings.HasPrefix(s.Secret, brig.SessionPrefix) || s.ID == "" || s.Hash != [32]byte{} || s.Actor.Name == "" || !s.Expires.After(s.Created) {
		t.Errorf("CreateSession = %+v", s)
	}
	find := func(ctx context.Context) *brig.Session {
		list, err := h.Service.Sessions(ctx, "")
		if err != nil {
			t.Fatalf("Sessions: %v", err)
		}
		for _, x := range list {
			if x.ID == s.ID {
				return x
			}
		}
		return nil
	}
	if got := find(ctx); got == nil || got.Actor.Name != s.Actor.Name || got.Actor.Tenant != s.Actor.Tenant || got.Actor.Key != s.Actor.Key || !got.Expires.Equal(s.Expires) || got.Hash != [32]byte{} {
		t.Errorf("the session is listed as %+v", got)
	}
	_, err = h.Service.Sessions(ctx, name())
	wantKind(t, "Sessions of no tenant", err, brig.NotFound)
	wantKind(t, "EndSession by whoever is in none", h.Service.EndSession(ctx, ""), brig.FailedPrecondition)
	if err := h.Service.EndSession(ctx, s.ID); err != nil {
		t.Errorf("EndSession: %v", err)
	}
	wantKind(t, "EndSession again", h.Service.EndSession(ctx, s.ID), brig.NotFound)
	if find(ctx) != nil {
		t.Error("a session that has ended is listed")
	}
}

func (h tenancyCases) testTenantLife(t *testing.T) {
	ctx := h.Context(t)
	own, err := h.Service.GetTenant(ctx, "")
	if err != nil || own.Name == "" {
		t.Fatalf("GetTenant of one's own = %+v, %v", own, err)
	}
	want := brig.Tenant{
		Name: name(), Quota: brig.Quota{
			Sandboxes: 1, Executions: 2, ExecutionsPerDay: 3, ExecutionTimePerDay: 4 * time.Second, CPUTimePerDay: 5 * time.Second,
			MemoryPerDay: 6.5, EgressPerDay: 7, Storage: 8, Workspaces: 11, Rate: 9.5, RatePerKey: 10.5,
		},
		Ceilings: brig.Ceilings{
			Limits: brig.Limits{Memory: brig.GiB, CPUs: 0.5, Processes: 10, OpenFiles: 100, Disk: brig.GiB, Output: brig.MiB},
			MaxTTL: time.Minute, MaxLife: time.Hour, MaxPause: 2 * time.Hour, MaxTimeout: time.Second, Images: []string{"host", "python:*"}, DigestsOnly: true,
		},
	}
	if _, err := h.Service.CreateTenant(ctx, want); err != nil {
		t.Fatalf("CreateTenant: %v", err)
	}
	_, err = h.Service.CreateTenant(ctx, want)
	wantKind(t, "CreateTenant again", err, brig.AlreadyExists)
	got, err := h.Service.GetTenant(ctx, want.Name)
	if err != nil || got.Quota != want.Quota || got.Ceilings.Limits != want.Ceilings.Limits || got.Ceilings.MaxLife != time.Hour || got.Ceilings.MaxPause != 2*time.Hour ||
		len(got.Ceilings.Images) != 2 || !got.Ceilings.DigestsOnly || got.Created.IsZero() {
		t.Errorf("GetTenant = %+v, %v; want %+v", got, err, want)
	}
	if got, err := h.Service.UpdateTenant(ctx, brig.Tenant{Name: want.Name, Quota: brig.Quota{Rate: 1}}); err != nil || got.Quota != (brig.Quota{Rate: 1}) || got.Ceilings.DigestsOnly {
		t.Errorf("UpdateTenant = %+v, %v", got, err)
	}
	if list, err := h.Service.Tenants(ctx); err != nil || len(list) < 2 {
		t.Errorf("Tenants = %d, %v", len(list), err)
	}
	if err := h.Service.RemoveTenant(ctx, want.Name); err != nil {
		t.Errorf("RemoveTenant: %v", err)
	}
	_, err = h.Service.GetTenant(ctx, want.Name)
	wantKind(t, "GetTenant after that", err, brig.NotFound)
	_, err = h.Service.UpdateTenant(ctx, want)
	wantKind(t, "UpdateTenant after that", err, brig.NotFound)
	wantKind(t, "RemoveTenant after that", h.Service.RemoveTenant(ctx, want.Name), brig.NotFound)
	_, err = h.Service.CreateTenant(ctx, brig.Tenant{Name: "Not A Name"})
	wantField(t, "CreateTenant", err, "name")
}

func (h tenancyCases) testUsage(t *testing.T) {
	ctx, mark := h.Context(t), name()
	if _, err := h.Service.Run(ctx, brig.Program{Command: h.argv("echo"), Labels: map[string]string{"mark": mark}}, brig.IO{}); err != nil {
		t.Fatalf("Run: %v", err)
	}
	lines, err := h.Service.TenantUsage(ctx, brig.UsageQuery{Label: "mark"})
	if err != nil {
		t.Fatalf("TenantUsage: %v", err)
	}
	found := 0
	for _, l := range lines {
		if l.Value == mark && l.Executions == 1 && l.ExecutionTime > 0 && l.CPUTime > 0 && l.Memory > 0 {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the run is not in %+v", lines)
	}
	for field, q := range map[string]brig.UsageQuery{"from": {From: "yesterday"}, "to": {To: "2026-13-01"}} {
		_, err := h.Service.TenantUsage(ctx, q)
		wantField(t, "TenantUsage", err, field)
	}
}
