package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/schema"
)

// Providers implements brig.Service.
func (ps *providers) Providers(ctx context.Context) ([]brig.ProviderInfo, error) {
	return do(ctx, ps.gate, brig.OpProviders, "", func(v *call) ([]brig.ProviderInfo, error) {
		now := ps.backends.Current()
		ids := map[string]bool{ps.builtinID: true}
		for id := range now.Backends {
			ids[id] = true
		}
		for id := range now.Broken {
			ids[id] = true
		}
		for _, d := range ps.Drivers {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(ids)), func(id string) bool { return brig.ProviderDriver(id) == d.Name }) {
				ids[d.Name] = true
			}
		}
		var out []brig.ProviderInfo
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			out = append(out, ps.providerInfo(now, id))
		}
		slices.SortStableFunc(out, func(a, b brig.ProviderInfo) int {
			rank := func(p brig.ProviderInfo) int {
				switch {
				case p.Home:
					return 0
				case p.Configured:
					return 1
				}
				return 2
			}
			return cmp.Compare(rank(a), rank(b))
		})
		return out, nil
	})
}

// providerInfo returns the public information about a provider.
func (ps *providers) providerInfo(now *placement.Snapshot, id string) brig.ProviderInfo {
	out := brig.ProviderInfo{ID: id, Driver: brig.ProviderDriver(id), Active: now.Active == id, Terms: now.Terms[id], Home: id == ps.builtinID,
		Rev: now.Rev(brig.SettingConfig(id), brig.SettingTerms(id))}
	if out.Home {
		out.Title, out.Doc = "This machine", "Sandboxes of "+id+" on the machine of this server."
		out.Languages, out.Tags = brig.Languages, []string{"local", "self-hosted"}
	}
	if d, err := ps.driverOf(id); err == nil {
		out.Title, out.Doc, out.Tags, out.Languages, out.Fields = d.Title, d.Doc, d.Tags, d.Languages, schema.Fields(d.Config())
	}
	row, kept := now.Settings[brig.SettingConfig(id)]
	if out.Configured = kept || out.Home; kept {
		out.Config = ps.maskConfig(id, row.Value, out.Fields)
	}
	if m := now.Backends[id]; m != nil {
		broke, cause := m.Health.LastFailure()
		if out.Up, out.Users = !broke, m.Users(); broke {
			out.Why = brig.AsError(cause).Message
		}
		out.Capabilities = ps.capabilities(m)
	}
	if cause := now.Broken[id]; cause != nil {
		out.Why = brig.AsError(cause).Message
	}
	return out
}

// maskConfig returns a stored configuration with its secrets masked.
func (ps *providers) maskConfig(id string, kept []byte, fields []brig.ConfigField) json.RawMessage {
	raw, err := ps.unsealConfig(id, kept, fields)
	if err != nil {
		raw, err = schema.ReplaceSecrets(kept, fields, func(string, string) string { return "" })
	}
	if err == nil {
		raw, err = schema.MaskSecrets(raw, fields)
	}
	if err != nil {
		return json.RawMessage("{}")
	}
	return raw
}

// mergeConfig returns the given configuration, with the stored values of the fields that the caller
// left unchanged.
func (ps *providers) mergeConfig(now *placement.Snapshot, c brig.ProviderConfig, d *brig.Driver) ([]byte, error) {
	fields := schema.Fields(d.Config())
	row, kept := now.Settings[brig.SettingConfig(c.ID)]
	var before []byte
	if kept {
		var err error
		if before, err = ps.unsealConfig(c.ID, row.Value, fields); err != nil && len(c.Config) == 0 {
			return nil, err
		}
	}
	if len(c.Config) == 0 {
		if !kept {
			return []byte("{}"), nil
		}
		return before, nil
	}
	return schema.RestoreSecrets(c.Config, before, fields)
}

// checkConfig returns the provider's driver, and the given configuration as completed by
// mergeConfig. It returns an error if the configuration is invalid.
func (ps *providers) checkConfig(now *placement.Snapshot, c brig.ProviderConfig) (*brig.Driver, []byte, error) {
	d, err := ps.driverOf(c.ID)
	if err != nil {
		return nil, nil, err
	}
	raw, err := ps.mergeConfig(now, c, d)
	if err != nil {
		return nil, nil, err
	}
	if invalid := schema.Decode(raw, d.Config()); len(invalid) > 0 {
		return nil, nil, configError(invalid)
	}
	return d, raw, nil
}

// applySettings writes settings and applies them before it returns. The caller holds the lock of
// backends.
func (ps *providers) applySettings(ctx context.Context, v *call, rows ...brig.Setting) error {
	if err := ps.Store.PutSettings(ctx, rows, v.outcomeEvent()); err != nil {
		return err
	}
	return ps.reloadLocked(ctx, false)
}

func checkTerms(t *brig.Terms) error {
	switch {
	case t == nil:
	case t.Max < 0:
		return brig.InvalidField("terms.max", "%d is negative", t.Max).WithHint("leave it out for no limit")
	case t.Second < 0 || t.Second != t.Second:
		return brig.InvalidField("terms.second", "a price cannot be %v", t.Second).WithHint("give what a second costs, or leave it out")
	case len(t.Region) > 63:
		return brig.InvalidField("terms.region", "it is too long").WithHint("give up to 63 bytes")
	}
	return nil
}

// providerTestTimeout is the timeout of the test program.
const providerTestTimeout = 10 * time.Second

func newFailedTest(err error, begin time.Time) *brig.ProviderTest {
	apiErr := brig.AsError(err)
	return &brig.ProviderTest{Message: apiErr.Message, Code: apiErr.Kind.Code(), Hint: apiErr.Hint, Latency: time.Since(begin), ExitCode: -1}
}

// ActivateProvider implements brig.Service.
func (ps *providers) ActivateProvider(ctx context.Context, id string) error {
	return ps.doWithDetails(ctx, brig.OpActivateProvider, "", withDetail(brig.DetailProvider, truncate(id)), func(v *call) error {
		ps.backends.Lock()
		defer ps.backends.Unlock()
		now := ps.backends.Current()
		if now.Backends[id] == nil && now.Broken[id] == nil {
			if _, err := ps.driverOf(id); err != nil {
				return err
			}
			return brig.Errorf(brig.InvalidConfig, "Provider not configured").WithHint("configure it first: brig provider configure %s", truncate(id))
		}
		if err := ps.checkConfigured(ctx, now.Backends[id]); err != nil {
			return err
		}
		return ps.applySettings(ctx, v, brig.Setting{Name: brig.SettingProvider, Type: "string", Value: []byte(id), Updated: ps.Now().UTC()})
	})
}

// checkConfigured returns an error if a provider can never work with its configuration. A provider
// that does not respond is not misconfigured, because it may recover.
func (ps *providers) checkConfigured(ctx context.Context, m *placement.Backend) error {
	if m == nil {
		return nil
	}
	c, ok := m.Provider.(brig.Checker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, providerCheckTimeout)
	defer cancel()
	if err := c.Check(ctx); brig.KindOf(err) == brig.InvalidConfig {
		return err
	}
	return nil
}

// RemoveProvider implements brig.Service.
func (ps *providers) RemoveProvider(ctx context.Context, id string) error {
	return ps.doWithDetails(ctx, brig.OpRemoveProvider, "", withDetail(brig.DetailProvider, truncate(id)), func(v *call) error {
		ps.backends.Lock()
		defer ps.backends.Unlock()
		now := ps.backends.Current()
		_, kept := now.Settings[brig.SettingConfig(id)]
		switch {
		case id == ps.builtinID:
			return brig.Errorf(brig.FailedPrecondition, "%s is always there", id).WithHint("make another one active")
		case !kept:
			return brig.Errorf(brig.NotFound, "no provider %q", truncate(id)).WithHint("list providers to see which are configured")
		case now.Active == id:
			return brig.Errorf(brig.FailedPrecondition, "%s is the active provider", id).WithHint("make another one active first")
		}
		if m := now.Backends[id]; m != nil && m.Users() > 0 {
			return brig.Errorf(brig.FailedPrecondition, "%s has %d sandboxes and programs", id, m.Users()).WithHint("remove them first, or wait for their end")
		}
		return ps.applySettings(ctx, v, brig.Setting{Name: brig.SettingConfig(id)}, brig.Setting{Name: brig.SettingTerms(id)})
	})
}

// Routing implements brig.Service.
func (ps *providers) Routing(ctx context.Context, tenant string) (*brig.Routing, error) {
	return do(ctx, ps.gate, brig.OpRouting, "", func(v *call) (*brig.Routing, error) {
		if tenant != "" { // reject a tenant that does not exist; its empty routing would look valid
			if _, err := ps.Store.GetTenant(ctx, tenant); err != nil {
				return nil, err
			}
		}
		now := ps.backends.Current()
		r := now.Routing[tenant]
		r.Rev = now.Rev(brig.SettingRouting(tenant))
		return &r, nil
	})
}

// SetRouting implements brig.Service.
func (ps *providers) SetRouting(ctx context.Context, tenant string, r brig.Routing) error {
	return ps.doWithDetails(ctx, brig.OpSetRouting, "", withDetail(brig.DetailName, truncate(tenant)), func(v *call) error {
		if err := r.Check("routing"); err != nil {
			return err
		}
		ps.backends.Lock()
		defer ps.backends.Unlock()
		if tenant != "" { // checked under the lock, so that it cannot be removed before the write
			if _, err := ps.Store.GetTenant(ctx, tenant); err != nil {
				return err
			}
		}
		now := ps.backends.Current()
		for field, id := range r.Providers("routing") {
			if now.Backends[id] == nil && now.Broken[id] == nil {
				return brig.InvalidField(field, "the provider %q is not configured", truncate(id)).WithHint("configure it first: brig provider configure")
			}
		}
		name := brig.SettingRouting(tenant)
		if err := brig.CheckRev(r.Rev, now.Rev(name)); err != nil {
			return err
		}
		r.Rev = 0 // the revision is the time of the setting
		row := brig.Setting{Name: name, Type: "json", Updated: now.ChangeTime(ps.Now(), name)}
		if raw, err := json.Marshal(r); err != nil {
			return err
		} else if string(raw) != "{}" {
			row.Value = raw
		}
		return ps.applySettings(ctx, v, row)
	})
}
