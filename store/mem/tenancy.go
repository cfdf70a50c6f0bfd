package mem

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// usageKey identifies a line of usage.
type usageKey struct{ tenant, day, label, value string }

// PutKey implements brig.Store.
func (s *tenancy) PutKey(ctx context.Context, k brig.Key) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.keys[k.Hash] = cloneKey(&k)
	return nil
}

// FindKey implements brig.Store.
func (s *tenancy) FindKey(ctx context.Context, hash [32]byte) (*brig.Key, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	k, ok := s.keys[hash]
	if !ok {
		return nil, contract.UnknownKeyError()
	}
	return cloneKey(k), nil
}

// GetKey implements brig.Store.
func (s *tenancy) GetKey(ctx context.Context, id string) (*brig.Key, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.ID == id {
			return cloneKey(k), nil
		}
	}
	return nil, contract.KeyNotFoundError(id)
}

// ListKeys implements brig.Store.
func (s *tenancy) ListKeys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Key
	for _, k := range s.keys {
		if tenant == brig.AllTenants || k.Actor.Tenant == tenant {
			out = append(out, cloneKey(k))
		}
	}
	slices.SortFunc(out, func(a, b *brig.Key) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// DeleteKey implements brig.Store.
func (s *tenancy) DeleteKey(ctx context.Context, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	maps.DeleteFunc(s.keys, func(_ [32]byte, k *brig.Key) bool { return k.ID == id })
	maps.DeleteFunc(s.sessions, func(_ [32]byte, x *brig.Session) bool { return x.Actor.Key == id })
	return nil
}

// TouchKeys implements brig.Store.
func (s *tenancy) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if at, ok := used[k.ID]; ok {
			k.Used = at.UTC()
		}
	}
	return nil
}

// PutTenant implements brig.Store.
func (s *tenancy) PutTenant(ctx context.Context, t *brig.Tenant) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.tenants[t.Name] = cloneTenant(t)
	return nil
}

// GetTenant implements brig.Store.
func (s *tenancy) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	t, ok := s.tenants[name]
	if !ok {
		return nil, contract.TenantNotFoundError(name)
	}
	return cloneTenant(t), nil
}

// Tenants implements brig.Store.
func (s *tenancy) Tenants(ctx context.Context) ([]*brig.Tenant, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Tenant
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		out = append(out, cloneTenant(s.tenants[name]))
	}
	return out, nil
}

// DeleteTenant implements brig.Store.
func (s *tenancy) DeleteTenant(ctx context.Context, tenant string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.tenants, tenant)
	maps.DeleteFunc(s.keys, func(_ [32]byte, k *brig.Key) bool { return k.Actor.Tenant == tenant })
	maps.DeleteFunc(s.sessions, func(_ [32]byte, x *brig.Session) bool { return x.Actor.Tenant == tenant })
	maps.DeleteFunc(s.runs, func(n name, _ run) bool { return n.tenant == tenant })
	maps.DeleteFunc(s.secrets, func(n name, _ *brig.SealedSecret) bool { return n.tenant == tenant })
	maps.DeleteFunc(s.setups, func(_ string, x *brig.ToolSetup) bool { return x.Tenant == tenant })
	maps.DeleteFunc(s.variables, func(_ string, x *brig.SealedToolVariable) bool { return x.Tenant == tenant })
	maps.DeleteFunc(s.built, func(n name, _ *brig.BuiltTemplate) bool { return n.tenant == tenant })
	maps.DeleteFunc(s.volumeRecords, func(n name, _ *brig.Volume) bool { return n.tenant == tenant })
	maps.DeleteFunc(s.hooks, func(n name, _ *brig.Webhook) bool { return n.tenant == tenant })
	maps.DeleteFunc(s.deliveries, func(k deliveryKey, _ *brig.Delivery) bool { return k.tenant == tenant })
	maps.DeleteFunc(s.builds, func(k buildKey, _ *brig.TemplateBuild) bool { return k.tenant == tenant })
	maps.DeleteFunc(s.usage, func(l usageKey, _ brig.UsageTotals) bool { return l.tenant == tenant })
	delete(s.settings, brig.SettingRouting(tenant))
	return nil
}

// AddUsage implements brig.Store.
func (s *tenancy) AddUsage(ctx context.Context, lines []brig.UsageLine) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, l := range lines {
		k := usageKey{l.Tenant, l.Day, l.Label, l.Value}
		s.usage[k] = s.usage[k].Add(l.UsageTotals)
	}
	return nil
}

// Usage implements brig.Store.
func (s *tenancy) Usage(ctx context.Context, tenant, from, to string) ([]brig.UsageLine, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []brig.UsageLine
	for k, spent := range s.usage {
		if (tenant == brig.AllTenants || k.tenant == tenant) && from <= k.day && k.day <= to {
			out = append(out, brig.UsageLine{Tenant: k.tenant, Day: k.day, Label: k.label, Value: k.value, UsageTotals: spent})
		}
	}
	slices.SortFunc(out, func(a, b brig.UsageLine) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Day, b.Day), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Value, b.Value))
	})
	return out, nil
}

// PruneUsage implements brig.Store.
func (s *tenancy) PruneUsage(ctx context.Context, before string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	maps.DeleteFunc(s.usage, func(l usageKey, _ brig.UsageTotals) bool { return l.day < before })
	return nil
}

func cloneKey(k *brig.Key) *brig.Key {
	out := *k
	out.Created, out.Used, out.Actor.Expires = k.Created.UTC(), k.Used.UTC(), k.Actor.Expires.UTC()
	out.Actor.Scopes, out.Actor.Sandboxes = slices.Clone(k.Actor.Scopes), slices.Clone(k.Actor.Sandboxes)
	out.Actor.Person = clonePerson(k.Actor.Person)
	return &out
}

func cloneTenant(t *brig.Tenant) *brig.Tenant {
	out := *t
	out.Created, out.Ceilings.Images = t.Created.UTC(), slices.Clone(t.Ceilings.Images)
	out.Ceilings.Screening = t.Ceilings.Screening.Clone()
	return &out
}
