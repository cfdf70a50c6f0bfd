package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/schema"
)

// operate lets an operator's call about a provider in.
func (e *Engine) operate(ctx context.Context, op brig.Op, id string) (*visit, error) {
	return e.enter(ctx, op, "", func(v *visit) { v.say(brig.DetailProvider, clip(id)) })
}

// Providers implements brig.Service.
func (e *Engine) Providers(ctx context.Context) (_ []brig.ProviderInfo, err error) {
	v, err := e.enter(ctx, brig.OpProviders, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	now := e.fleet.now.Load()
	ids := map[string]bool{e.homeID: true}
	for id := range now.members {
		ids[id] = true
	}
	for id := range now.broken {
		ids[id] = true
	}
	for _, d := range e.Drivers {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(ids)), func(id string) bool { return brig.ProviderDriver(id) == d.Name }) {
			ids[d.Name] = true
		}
	}
	var out []brig.ProviderInfo
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		out = append(out, e.providerInfo(now, id))
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
}

// providerInfo is what may be known of one.
func (e *Engine) providerInfo(now *lineup, id string) brig.ProviderInfo {
	out := brig.ProviderInfo{ID: id, Driver: brig.ProviderDriver(id), Active: now.active == id, Terms: now.terms[id], Home: id == e.homeID}
	if out.Home {
		out.Title, out.Doc = "This machine", "Sandboxes of "+id+" on the machine of this server."
		out.Languages, out.Tags = brig.Languages, []string{"local", "self-hosted"}
	}
	if d, err := e.driver(id); err == nil {
		out.Title, out.Doc, out.Tags, out.Languages, out.Fields = d.Title, d.Doc, d.Tags, d.Languages, schema.Fields(d.Config())
	}
	row, kept := now.rows[brig.SettingConfig(id)]
	if out.Configured = kept || out.Home; kept {
		out.Config = e.masked(id, row.Value, out.Fields)
	}
	if m := now.members[id]; m != nil {
		broke, why := m.health.broke()
		if out.Up, out.Users = !broke, m.busy(); broke {
			out.Why = brig.AsError(why).Message
		}
		out.Capabilities = e.capabilities(m)
	}
	if why := now.broken[id]; why != nil {
		out.Why = brig.AsError(why).Message
	}
	return out
}

// masked is a kept configuration as it may be seen.
func (e *Engine) masked(id string, kept []byte, fields []brig.ConfigField) json.RawMessage {
	raw, err := e.unsealConfig(id, kept, fields)
	if err != nil {
		raw, err = schema.Replace(kept, fields, func(string, string) string { return "" })
	}
	if err == nil {
		raw, err = schema.Masked(raw, fields)
	}
	if err != nil {
		return json.RawMessage("{}")
	}
	return raw
}

// intended is a configuration that was given, with what it leaves as it is.
func (e *Engine) intended(now *lineup, c brig.ProviderConfig, d *brig.Driver) ([]byte, error) {
	fields := schema.Fields(d.Config())
	row, kept := now.rows[brig.SettingConfig(c.ID)]
	var before []byte
	if kept {
		var err error
		if before, err = e.unsealConfig(c.ID, row.Value, fields); err != nil && len(c.Config) == 0 {
			return nil, err
		}
	}
	if len(c.Config) == 0 {
		if !kept {
			return []byte("{}"), nil
		}
		return before, nil
	}
	return schema.Unmasked(c.Config, before, fields)
}

// ConfigureProvider implements brig.Service.
func (e *Engine) ConfigureProvider(ctx context.Context, c brig.ProviderConfig) (_ *brig.ProviderInfo, err error) {
	v, err := e.operate(ctx, brig.OpConfigureProvider, c.ID)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if !brig.ValidProviderID(c.ID) {
		return nil, brig.InvalidField("id", "%q cannot be a provider", clip(c.ID)).WithHint(`use a driver's name, or that with "@" and a name of your own: e2b@eu`)
	}
	if err := checkTerms(c.Terms); err != nil {
		return nil, err
	}
	if c.Test && c.ID != e.homeID { // before anybody has to wait for it
		if err := e.mustPass(ctx, v, c); err != nil {
			return nil, err
		}
	}
	// Not while everything is encrypted anew.
	e.sealing.RLock()
	defer e.sealing.RUnlock()
	e.fleet.changing.Lock()
	defer e.fleet.changing.Unlock()
	now := e.fleet.now.Load()
	at := e.Now().UTC()
	var rows []brig.Setting
	if c.ID == e.homeID {
		if len(bytes.TrimSpace(c.Config)) > 0 && string(bytes.TrimSpace(c.Config)) != "{}" {
			return nil, brig.InvalidField("config", "%s is configured by the server's own file", c.ID).WithHint("leave out config; terms can be set")
		}
	} else {
		d, raw, err := e.wanted(now, c)
		if err != nil {
			return nil, err
		}
		kept, err := e.sealConfig(c.ID, raw, schema.Fields(d.Config()))
		if err != nil {
			return nil, err
		}
		rows = append(rows, brig.Setting{Name: brig.SettingConfig(c.ID), Type: "json", Value: kept, Updated: at})
	}
	if c.Terms != nil {
		raw, err := json.Marshal(c.Terms)
		if err != nil {
			return nil, err
		}
		rows = append(rows, brig.Setting{Name: brig.SettingTerms(c.ID), Type: "json", Value: raw, Updated: at})
	}
	if c.Activate {
		rows = append(rows, brig.Setting{Name: brig.SettingProvider, Type: "string", Value: []byte(c.ID), Updated: at})
	}
	if err := e.change(ctx, v, rows...); err != nil {
		return nil, err
	}
	out := e.providerInfo(e.fleet.now.Load(), c.ID)
	return &out, nil
}

// wanted is a configuration that was given, with what it leaves as it is, and
// its driver, if there is nothing wrong with it.
func (e *Engine) wanted(now *lineup, c brig.ProviderConfig) (*brig.Driver, []byte, error) {
	d, err := e.driver(c.ID)
	if err != nil {
		return nil, nil, err
	}
	raw, err := e.intended(now, c, d)
	if err != nil {
		return nil, nil, err
	}
	if wrong := schema.Decode(raw, d.Config()); len(wrong) > 0 {
		return nil, nil, wrongConfig(wrong)
	}
	return d, raw, nil
}

// mustPass refuses a configuration with which no program runs.
func (e *Engine) mustPass(ctx context.Context, v *visit, c brig.ProviderConfig) error {
	d, raw, err := e.wanted(e.fleet.now.Load(), c)
	if err != nil {
		return err
	}
	t, err := e.tryProvider(ctx, v, c.ID, d, raw)
	if err != nil || t.OK {
		return err
	}
	return brig.Errorf(brig.ConnectionFailed, "Connection failed: %s", t.Message).
		WithHint("nothing was changed; %s", cmp.Or(t.Hint, "correct the configuration, or save it without test"))
}

// change writes settings, which hold when it returns. The caller holds
// fleet.changing.
func (e *Engine) change(ctx context.Context, v *visit, rows ...brig.Setting) error {
	if err := e.Store.PutSettings(ctx, rows, v.outcome()); err != nil {
		return err
	}
	return e.reloadHeld(ctx, false)
}

func checkTerms(t *brig.Terms) error {
	switch {
	case t == nil:
	case t.Max < 0:
		return brig.InvalidField("terms.max", "%d is negative", t.Max).WithHint("leave it out for no bound")
	case t.Second < 0 || t.Second != t.Second:
		return brig.InvalidField("terms.second", "a price cannot be %v", t.Second).WithHint("give what a second costs, or leave it out")
	case len(t.Region) > 63:
		return brig.InvalidField("terms.region", "it is too long").WithHint("give up to 63 bytes")
	}
	return nil
}

// TestProvider implements brig.Service.
func (e *Engine) TestProvider(ctx context.Context, c brig.ProviderConfig) (_ *brig.ProviderTest, err error) {
	v, err := e.operate(ctx, brig.OpTestProvider, c.ID)
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if c.ID == e.homeID {
		return e.tryMember(ctx, v, e.home()), nil
	}
	d, raw, err := e.wanted(e.fleet.now.Load(), c)
	if err != nil {
		return nil, err
	}
	return e.tryProvider(ctx, v, c.ID, d, raw)
}

// tryProvider opens a provider for a test. What is wrong with the configuration
// is an error; what goes wrong with it is the test's result.
func (e *Engine) tryProvider(ctx context.Context, v *visit, id string, d *brig.Driver, raw []byte) (*brig.ProviderTest, error) {
	begin := time.Now()
	m, err := e.open(ctx, id, d, raw)
	if err != nil {
		if told := brig.AsError(err); told.Kind == brig.InvalidConfig {
			return nil, err
		}
		return testFailed(err, begin), nil
	}
	t := e.tryMember(ctx, v, m)
	if err := m.retire(); err != nil {
		e.Log.WarnContext(ctx, "close a provider after its test", "provider", id, "err", err)
	}
	return t, nil
}

// testTime bounds the program of a test.
const testTime = 10 * time.Second

// tryMember runs the test program at a provider.
func (e *Engine) tryMember(ctx context.Context, v *visit, m *member) *brig.ProviderTest {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 6*testTime)
	defer cancel()
	p := brig.Program{Language: brig.Python, Code: brig.TestProgram, Timeout: testTime}
	j, err := e.plan(v, p)
	if err != nil {
		return testFailed(err, begin)
	}
	s := stop{at: m, route: brig.Route{Provider: m.id, Reason: "test"}}
	told := v.told
	run := e.runAt
	if m.runsOnly {
		run = func(ctx context.Context, v *visit, s stop, j *job, sio brig.IO) (*brig.Outcome, error) {
			return e.runWhole(ctx, v, s, p, j, sio)
		}
	}
	o, err := run(ctx, v, s, j, brig.IO{})
	v.told, v.id = told, "" // what was run is not what the call is about
	if err != nil {
		return testFailed(err, begin)
	}
	t := &brig.ProviderTest{
		Latency: time.Since(begin), ExitCode: o.ExitCode, Stdout: string(o.Stdout.Head) + string(o.Stdout.Tail), Stderr: string(o.Stderr.Head) + string(o.Stderr.Tail),
	}
	t.OK = o.ExitCode == 0 && strings.Contains(t.Stdout, brig.TestPassed)
	word := "FAILED"
	if t.OK {
		word = "PASSED"
	}
	t.Message = fmt.Sprintf("Test %s | Exit code: %d | Execution time: %.2fs", word, o.ExitCode, o.Duration.Seconds())
	return t
}

func testFailed(err error, begin time.Time) *brig.ProviderTest {
	told := brig.AsError(err)
	return &brig.ProviderTest{Message: told.Message, Code: told.Kind.Code(), Hint: told.Hint, Latency: time.Since(begin), ExitCode: -1}
}

// ActivateProvider implements brig.Service.
func (e *Engine) ActivateProvider(ctx context.Context, id string) (err error) {
	v, err := e.operate(ctx, brig.OpActivateProvider, id)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	e.fleet.changing.Lock()
	defer e.fleet.changing.Unlock()
	now := e.fleet.now.Load()
	if now.members[id] == nil && now.broken[id] == nil {
		if _, err := e.driver(id); err != nil {
			return err
		}
		return brig.Errorf(brig.InvalidConfig, "Provider not configured").WithHint("configure it first: brig provider configure %s", clip(id))
	}
	return e.change(ctx, v, brig.Setting{Name: brig.SettingProvider, Type: "string", Value: []byte(id), Updated: e.Now().UTC()})
}

// RemoveProvider implements brig.Service.
func (e *Engine) RemoveProvider(ctx context.Context, id string) (err error) {
	v, err := e.operate(ctx, brig.OpRemoveProvider, id)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	e.fleet.changing.Lock()
	defer e.fleet.changing.Unlock()
	now := e.fleet.now.Load()
	_, kept := now.rows[brig.SettingConfig(id)]
	switch {
	case id == e.homeID:
		return brig.Errorf(brig.FailedPrecondition, "%s is always there", id).WithHint("make another one active")
	case !kept:
		return brig.Errorf(brig.NotFound, "no provider %q", clip(id)).WithHint("list providers to see which are configured")
	case now.active == id:
		return brig.Errorf(brig.FailedPrecondition, "%s is the active provider", id).WithHint("make another one active first")
	}
	if m := now.members[id]; m != nil && m.busy() > 0 {
		return brig.Errorf(brig.FailedPrecondition, "%s has %d sandboxes and programs", id, m.busy()).WithHint("remove them first, or wait for their end")
	}
	return e.change(ctx, v, brig.Setting{Name: brig.SettingConfig(id)}, brig.Setting{Name: brig.SettingTerms(id)})
}

// Routing implements brig.Service.
func (e *Engine) Routing(ctx context.Context, tenant string) (_ *brig.Routing, err error) {
	v, err := e.enter(ctx, brig.OpRouting, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if tenant != "" { // one that there is not has no routing, either, but looks as if it had
		if _, err := e.Store.GetTenant(ctx, tenant); err != nil {
			return nil, err
		}
	}
	r := e.fleet.now.Load().routing[tenant]
	return &r, nil
}

// SetRouting implements brig.Service.
func (e *Engine) SetRouting(ctx context.Context, tenant string, r brig.Routing) (err error) {
	v, err := e.enter(ctx, brig.OpSetRouting, "", func(v *visit) { v.say(brig.DetailName, clip(tenant)) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := r.Check("routing"); err != nil {
		return err
	}
	if tenant != "" {
		if _, err := e.Store.GetTenant(ctx, tenant); err != nil {
			return err
		}
	}
	e.fleet.changing.Lock()
	defer e.fleet.changing.Unlock()
	now := e.fleet.now.Load()
	for field, id := range r.Providers("routing") {
		if now.members[id] == nil && now.broken[id] == nil {
			return brig.InvalidField(field, "the provider %q is not configured", clip(id)).WithHint("configure it first: brig provider configure")
		}
	}
	row := brig.Setting{Name: brig.SettingRouting(tenant), Type: "json", Updated: e.Now().UTC()}
	if raw, err := json.Marshal(r); err != nil {
		return err
	} else if string(raw) != "{}" {
		row.Value = raw
	}
	return e.change(ctx, v, row)
}
