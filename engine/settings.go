package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/schema"
)

const (
	// reloadEvery is the interval at which the engine checks the store for changes by other
	// servers.
	reloadEvery = 400 * time.Millisecond
	// providerOpenTimeout is the timeout for opening a provider.
	providerOpenTimeout = 10 * time.Second
	// sealedPrefix is the prefix of an encrypted secret in a stored
	// configuration.
	sealedPrefix = "sealed:"
)

// reloadSettings reads the settings and applies changes.
func (ps *providers) reloadSettings(ctx context.Context) error {
	ps.backends.Lock()
	defer ps.backends.Unlock()
	return ps.reloadLocked(ctx, false)
}

// reloadLocked is like reloadSettings, for a caller that holds the lock of backends. If retry is
// set, it also retries providers that could not be opened before.
func (ps *providers) reloadLocked(ctx context.Context, retry bool) error {
	list, err := ps.Store.Settings(ctx)
	if err != nil {
		return err
	}
	rows := map[string]brig.Setting{}
	for _, s := range list {
		rows[s.Name] = s
	}
	old := ps.backends.Current()
	retry = retry && len(old.Broken) > 0
	if !retry && maps.EqualFunc(rows, old.Settings, isSameSetting) {
		return nil
	}
	next := &placement.Snapshot{
		Active:   ps.initialActive(),
		Backends: map[string]*placement.Backend{ps.builtinID: old.Backends[ps.builtinID]}, Broken: map[string]error{},
		Terms: map[string]brig.Terms{}, Routing: map[string]brig.Routing{}, Settings: rows,
	}
	for name, s := range rows {
		ps.applySetting(ctx, next, old, name, s)
	}
	ps.backends.Replace(next)
	for id, m := range old.Backends {
		if next.Backends[id] == m {
			continue
		}
		if err := m.Retire(); err != nil {
			ps.Log.WarnContext(ctx, "failed to close a provider", "provider", id, "err", err)
		}
	}
	return nil
}

func isSameSetting(a, b brig.Setting) bool {
	return a.Type == b.Type && a.Updated.Equal(b.Updated) && bytes.Equal(a.Value, b.Value)
}

// applySetting applies one setting to next.
func (ps *providers) applySetting(ctx context.Context, next, old *placement.Snapshot, name string, s brig.Setting) {
	bad := func(err error) {
		if err != nil {
			ps.Log.ErrorContext(ctx, "failed to read a setting; it has no effect", "setting", name, "err", err)
		}
	}
	if name == brig.SettingProvider {
		next.Active = string(s.Value)
		return
	}
	if id, ok := strings.CutPrefix(name, brig.SettingConfig("")); ok {
		if oldSetting, same := old.Settings[name]; same && isSameSetting(oldSetting, s) && old.Backends[id] != nil {
			next.Backends[id] = old.Backends[id]
			return
		}
		m, err := ps.openStored(ctx, id, s.Value)
		if err != nil {
			ps.Log.ErrorContext(ctx, "failed to open a provider", "provider", id, "err", err)
			next.Broken[id] = err
			return
		}
		next.Backends[id] = m
		return
	}
	if id, ok := strings.CutPrefix(name, brig.SettingTerms("")); ok {
		var t brig.Terms
		bad(json.Unmarshal(s.Value, &t))
		next.Terms[id] = t
	}
	if tenant, ok := strings.CutPrefix(name, brig.SettingRouting("")); ok {
		var r brig.Routing
		bad(json.Unmarshal(s.Value, &r))
		next.Routing[tenant] = r
	}
}

// driverOf returns the driver of a provider.
func (ps *providers) driverOf(id string) (*brig.Driver, error) {
	kind := brig.ProviderDriver(id)
	var names []string
	for i := range ps.Drivers {
		if ps.Drivers[i].Name == kind {
			return &ps.Drivers[i], nil
		}
		names = append(names, ps.Drivers[i].Name)
	}
	err := brig.Errorf(brig.InvalidConfig, "Unknown provider type: %s", brig.Clip(kind, 63))
	err.Field = "provider_type"
	return nil, err.WithHint("use one of: %s", strings.Join(names, ", "))
}

// openStored opens a provider with its stored configuration.
func (ps *providers) openStored(ctx context.Context, id string, kept []byte) (*placement.Backend, error) {
	d, err := ps.driverOf(id)
	if err != nil {
		return nil, err
	}
	raw, err := ps.unsealConfig(id, kept, schema.Fields(d.Config()))
	if err != nil {
		return nil, err
	}
	return ps.openProvider(ctx, id, d, raw)
}

// openProvider opens a provider.
func (ps *providers) openProvider(ctx context.Context, id string, d *brig.Driver, raw []byte) (*placement.Backend, error) {
	config := d.Config()
	if invalid := schema.Decode(raw, config); len(invalid) > 0 {
		return nil, configError(invalid)
	}
	ctx, cancel := context.WithTimeout(ctx, providerOpenTimeout)
	defer cancel()
	env := brig.ProviderEnv{ID: id}
	if ps.DriverEnv != nil {
		env = ps.DriverEnv(id)
	}
	if env.Called == nil {
		env.Called = func(brig.Call) {}
	}
	if env.Log == nil {
		env.Log = ps.Log.With("provider", id)
	}
	p, err := d.Open(ctx, env, config)
	if err != nil {
		return nil, err
	}
	return placement.NewBackend(id, p), nil
}

// configError returns the error for a configuration with invalid fields.
func configError(invalid []brig.FieldError) error {
	err := brig.Errorf(brig.InvalidConfig, "%s", invalid[0].Message)
	err.Field, err.Fields = invalid[0].Field, invalid
	if more := len(invalid) - 1; more > 0 {
		return err.WithHint("there are %d more wrong fields; see brig provider describe", more)
	}
	return err.WithHint("see brig provider describe")
}

// sealConfig encrypts the secrets of a configuration, for the store.
func (ps *providers) sealConfig(id string, raw []byte, fields []brig.ConfigField) ([]byte, error) {
	return ps.replaceSecrets(raw, fields, func(name, value string) (string, error) {
		if value == "" {
			return "", nil
		}
		if err := ps.vault.checkSecretsStored(); err != nil {
			return "", err
		}
		key, sealed := ps.Options.Keys.Seal([]byte(value), "settings", id, name)
		return sealedPrefix + key + ":" + base64.StdEncoding.EncodeToString(sealed), nil
	})
}

// unsealConfig is the inverse of sealConfig.
func (ps *providers) unsealConfig(id string, kept []byte, fields []brig.ConfigField) ([]byte, error) {
	return ps.replaceSecrets(kept, fields, func(name, value string) (string, error) {
		rest, ok := strings.CutPrefix(value, sealedPrefix)
		if !ok {
			return value, nil // written directly to the database; the next save encrypts it
		}
		if err := ps.vault.checkSecretsStored(); err != nil {
			return "", err
		}
		key, text, _ := strings.Cut(rest, ":")
		sealed, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			var plain []byte
			if plain, err = ps.Options.Keys.Open(key, sealed, "settings", id, name); err == nil {
				return string(plain), nil
			}
		}
		return "", brig.Errorf(brig.InvalidConfig, "the field %s of provider %s does not open: it was encrypted with another key, or changed", name, id).
			WithHint("save it again, or start the server with the key that it had").Because(err)
	})
}

// resealSettings re-encrypts the secrets of all providers with the newest key.
func (ps *providers) resealSettings(ctx context.Context) error {
	rows, err := ps.Store.Settings(ctx)
	if err != nil {
		return err
	}
	var changed []brig.Setting
	for _, s := range rows {
		id, ok := strings.CutPrefix(s.Name, brig.SettingConfig(""))
		d, lost := ps.driverOf(id)
		if !ok || lost != nil {
			continue
		}
		fields := schema.Fields(d.Config())
		raw, err := ps.unsealConfig(id, s.Value, fields)
		if err != nil {
			ps.Log.ErrorContext(ctx, "failed to re-encrypt the secrets of a provider", "provider", id, "err", err)
			continue
		}
		if s.Value, err = ps.sealConfig(id, raw, fields); err != nil {
			return err
		}
		changed = append(changed, s)
	}
	return ps.Store.PutSettings(ctx, changed)
}

// replaceSecrets replaces each secret of a configuration with the result of f.
func (ps *providers) replaceSecrets(raw []byte, fields []brig.ConfigField, f func(name, value string) (string, error)) (out []byte, err error) {
	out, lost := schema.ReplaceSecrets(raw, fields, func(name, value string) string {
		replaced, failed := f(name, value)
		if failed != nil && err == nil {
			err = failed
		}
		return replaced
	})
	if err != nil {
		return nil, err
	}
	return out, lost
}

// watchSettings applies changes by other servers, and direct writes to the
// database.
func (ps *providers) watchSettings() {
	n := 0
	ps.runEvery(reloadEvery, func() {
		n++
		ps.backends.Lock()
		err := ps.reloadLocked(ps.ctx, n%reopenAfter == 0)
		ps.backends.Unlock()
		if err != nil && ps.ctx.Err() == nil {
			ps.Log.Error("failed to read the settings", "err", err)
		}
	})
}

// reopenAfter is the number of reloads before the engine tries again to open a
// failed provider.
const reopenAfter = 25

// The intervals of health checks, for providers that responded to the last check and for providers
// that did not respond.
const (
	pingInterval       = 5 * time.Second
	pingFailedInterval = time.Second
)

// pingProviders checks the health of each provider that implements brig.Checker.
func (ps *providers) pingProviders() {
	ps.runEvery(pingFailedInterval/2, func() {
		now := ps.backends.Current()
		for _, m := range now.Backends {
			c, ok := m.Provider.(brig.Checker)
			if !ok {
				continue
			}
			every := pingInterval
			if broke, _ := m.Health.LastFailure(); broke {
				every = pingFailedInterval
			}
			if m.Health.StartCheckIfDue(ps.Now(), every) {
				ps.background.Go(func() { ps.ping(ps.ctx, m, c) })
			}
		}
		for id, cause := range now.Broken {
			ps.Observer.ProviderChecked(id, cause)
		}
	})
}

// ping checks whether a provider responds, and records and reports the result.
func (ps *providers) ping(ctx context.Context, m *placement.Backend, c brig.Checker) {
	ctx, cancel := context.WithTimeout(ctx, providerCheckTimeout)
	defer cancel()
	err := c.Check(ctx)
	if ps.ctx.Err() != nil {
		return
	}
	if !ps.isBuiltin(m) || ps.HealthCheckInterval <= 0 {
		ps.Observer.ProviderChecked(m.ID, err)
	}
	if err != nil && !brig.CanRetryElsewhere(err) {
		err = brig.Errorf(brig.Unavailable, "%s", brig.AsError(err).Message).WithHint("%s", brig.AsError(err).Hint).Because(err)
	}
	broke, _ := m.Health.LastFailure()
	ps.noteHealth(m, err)
	if broke && err == nil {
		ps.Log.Info("a provider is available again", "provider", m.ID)
	}
}
