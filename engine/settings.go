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
	"github.com/brig-run/brig/schema"
)

const (
	// reloadEvery is how soon a change that another server made is seen here.
	reloadEvery = 400 * time.Millisecond
	// openTime bounds the opening of a provider.
	openTime = 10 * time.Second
	// sealedMark begins a secret of a configuration as it is kept.
	sealedMark = "sealed:"
)

// reload reads the settings, and lets what has changed hold.
func (e *Engine) reload(ctx context.Context) error {
	e.fleet.changing.Lock()
	defer e.fleet.changing.Unlock()
	return e.reloadHeld(ctx, false)
}

// reloadHeld is reload by whoever holds changing. What could not be opened is
// tried again if retry.
func (e *Engine) reloadHeld(ctx context.Context, retry bool) error {
	list, err := e.Store.Settings(ctx)
	if err != nil {
		return err
	}
	rows := map[string]brig.Setting{}
	for _, s := range list {
		rows[s.Name] = s
	}
	old := e.fleet.now.Load()
	retry = retry && len(old.broken) > 0
	if !retry && maps.EqualFunc(rows, old.rows, sameSetting) {
		return nil
	}
	next := &lineup{
		active:  e.firstActive(),
		members: map[string]*member{e.homeID: old.members[e.homeID]}, broken: map[string]error{},
		terms: map[string]brig.Terms{}, routing: map[string]brig.Routing{}, rows: rows,
	}
	for name, s := range rows {
		e.apply(ctx, next, old, name, s)
	}
	e.fleet.now.Store(next)
	for id, m := range old.members {
		if next.members[id] == m {
			continue
		}
		if err := m.retire(); err != nil {
			e.Log.WarnContext(ctx, "close a provider", "provider", id, "err", err)
		}
	}
	return nil
}

func sameSetting(a, b brig.Setting) bool {
	return a.Type == b.Type && a.Updated.Equal(b.Updated) && bytes.Equal(a.Value, b.Value)
}

// apply lets one setting hold in next.
func (e *Engine) apply(ctx context.Context, next, old *lineup, name string, s brig.Setting) {
	bad := func(err error) {
		if err != nil {
			e.Log.ErrorContext(ctx, "a setting cannot be read; it does not hold", "setting", name, "err", err)
		}
	}
	if name == brig.SettingProvider {
		next.active = string(s.Value)
		return
	}
	if id, ok := strings.CutPrefix(name, brig.SettingConfig("")); ok {
		if was, same := old.rows[name]; same && sameSetting(was, s) && old.members[id] != nil {
			next.members[id] = old.members[id]
			return
		}
		m, err := e.openKept(ctx, id, s.Value)
		if err != nil {
			e.Log.ErrorContext(ctx, "open a provider", "provider", id, "err", err)
			next.broken[id] = err
			return
		}
		next.members[id] = m
		return
	}
	if id, ok := strings.CutPrefix(name, brig.SettingTerms("")); ok {
		var t brig.Terms
		bad(json.Unmarshal(s.Value, &t))
		next.terms[id] = t
	}
	if tenant, ok := strings.CutPrefix(name, brig.SettingRouting("")); ok {
		var r brig.Routing
		bad(json.Unmarshal(s.Value, &r))
		next.routing[tenant] = r
	}
}

// driver finds the kind of a provider.
func (e *Engine) driver(id string) (*brig.Driver, error) {
	kind := brig.ProviderDriver(id)
	var known []string
	for i := range e.Drivers {
		if e.Drivers[i].Name == kind {
			return &e.Drivers[i], nil
		}
		known = append(known, e.Drivers[i].Name)
	}
	err := brig.Errorf(brig.InvalidConfig, "Unknown provider type: %s", brig.Clip(kind, 63))
	err.Field = "provider_type"
	return nil, err.WithHint("use one of: %s", strings.Join(known, ", "))
}

// openKept opens a provider with a configuration as it is kept.
func (e *Engine) openKept(ctx context.Context, id string, kept []byte) (*member, error) {
	d, err := e.driver(id)
	if err != nil {
		return nil, err
	}
	raw, err := e.unsealConfig(id, kept, schema.Fields(d.Config()))
	if err != nil {
		return nil, err
	}
	return e.open(ctx, id, d, raw)
}

// open opens a provider.
func (e *Engine) open(ctx context.Context, id string, d *brig.Driver, raw []byte) (*member, error) {
	config := d.Config()
	if wrong := schema.Decode(raw, config); len(wrong) > 0 {
		return nil, wrongConfig(wrong)
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	site := brig.Site{ID: id}
	if e.Site != nil {
		site = e.Site(id)
	}
	if site.Called == nil {
		site.Called = func(brig.Call) {}
	}
	if site.Log == nil {
		site.Log = e.Log.With("provider", id)
	}
	p, err := d.Open(ctx, site, config)
	if err != nil {
		return nil, err
	}
	return newMember(id, p), nil
}

// wrongConfig is the error of a configuration with wrong fields.
func wrongConfig(wrong []brig.FieldError) error {
	err := brig.Errorf(brig.InvalidConfig, "%s", wrong[0].Message)
	err.Field, err.Fields = wrong[0].Field, wrong
	if more := len(wrong) - 1; more > 0 {
		return err.WithHint("there are %d more wrong fields; see brig provider describe", more)
	}
	return err.WithHint("see brig provider describe")
}

// sealConfig encrypts the secrets of a configuration, for the store.
func (e *Engine) sealConfig(id string, raw []byte, fields []brig.ConfigField) ([]byte, error) {
	return e.eachSecret(raw, fields, func(name, value string) (string, error) {
		if value == "" {
			return "", nil
		}
		if err := e.noSecrets(); err != nil {
			return "", err
		}
		key, sealed := e.Options.Keys.Seal([]byte(value), "settings", id, name)
		return sealedMark + key + ":" + base64.StdEncoding.EncodeToString(sealed), nil
	})
}

// unsealConfig is the inverse of sealConfig.
func (e *Engine) unsealConfig(id string, kept []byte, fields []brig.ConfigField) ([]byte, error) {
	return e.eachSecret(kept, fields, func(name, value string) (string, error) {
		rest, ok := strings.CutPrefix(value, sealedMark)
		if !ok {
			return value, nil // written by hand; it is sealed when it is saved again
		}
		if err := e.noSecrets(); err != nil {
			return "", err
		}
		key, text, _ := strings.Cut(rest, ":")
		sealed, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			var plain []byte
			if plain, err = e.Options.Keys.Open(key, sealed, "settings", id, name); err == nil {
				return string(plain), nil
			}
		}
		return "", brig.Errorf(brig.InvalidConfig, "the field %s of provider %s does not open: it was encrypted with another key, or changed", name, id).
			WithHint("save it again, or start the server with the key that it had").Because(err)
	})
}

// resealSettings encrypts the secrets of all providers with the newest key.
func (e *Engine) resealSettings(ctx context.Context) error {
	rows, err := e.Store.Settings(ctx)
	if err != nil {
		return err
	}
	var changed []brig.Setting
	for _, s := range rows {
		id, ok := strings.CutPrefix(s.Name, brig.SettingConfig(""))
		d, lost := e.driver(id)
		if !ok || lost != nil {
			continue
		}
		fields := schema.Fields(d.Config())
		raw, err := e.unsealConfig(id, s.Value, fields)
		if err != nil {
			e.Log.ErrorContext(ctx, "a provider's secrets cannot be encrypted anew", "provider", id, "err", err)
			continue
		}
		if s.Value, err = e.sealConfig(id, raw, fields); err != nil {
			return err
		}
		changed = append(changed, s)
	}
	return e.Store.PutSettings(ctx, changed)
}

// eachSecret replaces the secrets of a configuration.
func (e *Engine) eachSecret(raw []byte, fields []brig.ConfigField, f func(name, value string) (string, error)) (out []byte, err error) {
	out, lost := schema.Replace(raw, fields, func(name, value string) string {
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

// watchSettings sees what other servers, and whoever writes to the database,
// change.
func (e *Engine) watchSettings() {
	n := 0
	e.every(reloadEvery, func() {
		n++
		e.fleet.changing.Lock()
		err := e.reloadHeld(e.ctx, n%retryOpen == 0)
		e.fleet.changing.Unlock()
		if err != nil && e.ctx.Err() == nil {
			e.Log.Error("read the settings", "err", err)
		}
	})
}

// retryOpen is after how many reloads a provider that could not be opened is
// tried again.
const retryOpen = 25

// The question whether providers answer: how often it is asked of those that
// did, and of those that did not.
const (
	askEvery  = 5 * time.Second
	askFailed = time.Second
)

// askProviders asks each provider that can be out of reach whether it is.
func (e *Engine) askProviders() {
	e.every(askFailed/2, func() {
		for _, m := range e.fleet.now.Load().members {
			c, ok := m.provider.(brig.Checker)
			if !ok {
				continue
			}
			every := askEvery
			if broke, _ := m.health.broke(); broke {
				every = askFailed
			}
			if m.health.look(e.Now(), every) {
				e.work.Go(func() { e.ask(m, c) })
			}
		}
	})
}

func (e *Engine) ask(m *member, c brig.Checker) {
	ctx, cancel := context.WithTimeout(e.ctx, checkTime)
	defer cancel()
	err := c.Check(ctx)
	if e.ctx.Err() != nil {
		return
	}
	if err != nil && !brig.Elsewhere(err) {
		err = brig.Errorf(brig.Unavailable, "%s", brig.AsError(err).Message).WithHint("%s", brig.AsError(err).Hint).Because(err)
	}
	broke, _ := m.health.broke()
	e.noteHealth(m, err)
	if broke && err == nil {
		e.Log.Info("a provider answers again", "provider", m.id)
	}
}
