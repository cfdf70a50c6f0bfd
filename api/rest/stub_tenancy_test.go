package rest_test

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

func (s *stub) tenant(name string) *brig.Tenant {
	return &brig.Tenant{Name: name, Created: epoch, Quota: brig.Quota{Executions: 10, EgressPerDay: 1 << 30}, Ceilings: brig.Ceilings{MaxTTL: time.Hour, Images: []string{"host"}}}
}

func (s *stub) key() brig.Key {
	return brig.Key{ID: "k1", Kind: brig.NativeKey, Prefix: "brig_abcd", Created: epoch,
		Actor: brig.Actor{Name: "ci", Tenant: "acme", Role: brig.Member, Key: "k1", Scopes: []string{"run"}, Expires: epoch.Add(time.Hour)}}
}

func (s *stub) CreateKey(_ context.Context, spec brig.KeySpec) (*brig.NewKey, error) {
	s.record(spec)
	return &brig.NewKey{Key: s.key(), Secret: "brig_secret"}, nil
}

func (s *stub) Keys(_ context.Context, tenant string) ([]*brig.Key, error) {
	s.record(tenant)
	k := s.key()
	return []*brig.Key{&k}, nil
}

func (s *stub) RevokeKey(_ context.Context, id string) error {
	if id != "k1" {
		return brig.Errorf(brig.NotFound, "no key %q", id)
	}
	return nil
}

func (s *stub) CreateGrant(_ context.Context, spec brig.GrantSpec) (*brig.NewGrant, error) {
	s.record(spec)
	return &brig.NewGrant{Secret: "brig_grant_x.y", Actor: brig.Actor{
		Tenant: "acme", Role: brig.Viewer, Key: "k1", Grant: "g1", Sandboxes: []string{"box"}, Expires: epoch.Add(time.Hour)}}, nil
}

func (s *stub) CreateTenant(_ context.Context, t brig.Tenant) (*brig.Tenant, error) {
	s.record(t)
	return s.tenant(t.Name), nil
}

func (s *stub) Tenants(context.Context) ([]*brig.Tenant, error) {
	return []*brig.Tenant{s.tenant("acme"), {Name: "bare", Created: epoch}}, nil
}

func (s *stub) GetTenant(_ context.Context, name string) (*brig.Tenant, error) {
	if name == "" {
		name = "acme"
	}
	if name != "acme" {
		return nil, brig.Errorf(brig.NotFound, "no tenant %q", name)
	}
	return s.tenant(name), nil
}

func (s *stub) UpdateTenant(_ context.Context, t brig.Tenant) (*brig.Tenant, error) {
	s.record(t)
	return s.tenant(t.Name), nil
}

func (s *stub) RemoveTenant(_ context.Context, name string) error {
	if name == "acme" {
		return brig.Errorf(brig.FailedPrecondition, "the tenant has sandboxes")
	}
	return nil
}

func (s *stub) TenantUsage(_ context.Context, q brig.UsageQuery) ([]brig.UsageLine, error) {
	s.record(q)
	return []brig.UsageLine{{Tenant: "acme", Day: "2026-01-02", Label: q.Label, UsageTotals: brig.UsageTotals{
		Executions: 3, ExecutionTime: 1500 * time.Millisecond, CPUTime: time.Second, Memory: 0.5, Egress: 7}}}, nil
}

func (s *stub) session() brig.Session {
	return brig.Session{ID: "s1", Created: epoch, Used: epoch, Expires: epoch.Add(time.Hour),
		Actor: brig.Actor{Name: "ci", Tenant: "acme", Role: brig.Member, Person: &brig.Person{Issuer: "https://login.example.com", Subject: "42", Email: "ci@example.com"}}}
}

func (s *stub) CreateSession(context.Context) (*brig.NewSession, error) {
	s.record("CreateSession")
	return &brig.NewSession{Session: s.session(), Secret: brig.SessionPrefix + "0123456789012345678901234567890123456789", CSRFToken: "a-token"}, nil
}

func (s *stub) Sessions(_ context.Context, tenant string) ([]*brig.Session, error) {
	s.record(tenant)
	one := s.session()
	return []*brig.Session{&one}, nil
}

func (s *stub) EndSession(_ context.Context, id string) error {
	s.record(id)
	if id != "s1" && id != "" {
		return brig.Errorf(brig.NotFound, "no session %q", id)
	}
	return nil
}
