package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/schema"
)

// ConfigureProvider implements brig.Service.
func (rs *runs) ConfigureProvider(ctx context.Context, c brig.ProviderConfig) (*brig.ProviderInfo, error) {
	return doWithDetails(ctx, rs.gate, brig.OpConfigureProvider, "", withDetail(brig.DetailProvider, truncate(c.ID)), func(v *call) (*brig.ProviderInfo, error) {
		if !brig.ValidProviderID(c.ID) {
			return nil, brig.InvalidField("id", "%q cannot be a provider", truncate(c.ID)).WithHint(`use a driver's name, or that with "@" and a name of your own: e2b@eu`)
		}
		if err := checkTerms(c.Terms); err != nil {
			return nil, err
		}
		if c.Test && c.ID != rs.builtinID { // before the locks, so that no other call waits for the test
			if err := rs.requireTest(ctx, v, c); err != nil {
				return nil, err
			}
		}
		// Wait while another call re-encrypts all values.
		rs.vault.resealMu.RLock()
		defer rs.vault.resealMu.RUnlock()
		rs.backends.Lock()
		defer rs.backends.Unlock()
		now := rs.backends.Current()
		names := []string{brig.SettingConfig(c.ID), brig.SettingTerms(c.ID)}
		if err := brig.CheckRev(c.Rev, now.Rev(names...)); err != nil {
			return nil, err
		}
		changeTime := now.ChangeTime(rs.Now(), names...)
		var rows []brig.Setting
		if c.ID == rs.builtinID {
			if len(bytes.TrimSpace(c.Config)) > 0 && string(bytes.TrimSpace(c.Config)) != "{}" {
				return nil, brig.InvalidField("config", "%s is configured by the server's own file", c.ID).WithHint("leave out config; terms can be set")
			}
		} else {
			d, raw, err := rs.providers.checkConfig(now, c)
			if err != nil {
				return nil, err
			}
			kept, err := rs.providers.sealConfig(c.ID, raw, schema.Fields(d.Config()))
			if err != nil {
				return nil, err
			}
			rows = append(rows, brig.Setting{Name: brig.SettingConfig(c.ID), Type: "json", Value: kept, Updated: changeTime})
		}
		if c.Terms != nil {
			raw, err := json.Marshal(c.Terms)
			if err != nil {
				return nil, err
			}
			rows = append(rows, brig.Setting{Name: brig.SettingTerms(c.ID), Type: "json", Value: raw, Updated: changeTime})
		}
		if c.Activate {
			rows = append(rows, brig.Setting{Name: brig.SettingProvider, Type: "string", Value: []byte(c.ID), Updated: changeTime})
		}
		if err := rs.providers.applySettings(ctx, v, rows...); err != nil {
			return nil, err
		}
		out := rs.providers.providerInfo(rs.backends.Current(), c.ID)
		return &out, nil
	})
}

// requireTest rejects a configuration if the test program fails with it.
func (rs *runs) requireTest(ctx context.Context, v *call, c brig.ProviderConfig) error {
	d, raw, err := rs.providers.checkConfig(rs.backends.Current(), c)
	if err != nil {
		return err
	}
	t, err := rs.openAndTest(ctx, v, c.ID, d, raw)
	if err != nil || t.OK {
		return err
	}
	return brig.Errorf(brig.ConnectionFailed, "Connection failed: %s", t.Message).
		WithHint("nothing was changed; %s", cmp.Or(t.Hint, "correct the configuration, or save it without test"))
}

// TestProvider implements brig.Service.
func (rs *runs) TestProvider(ctx context.Context, c brig.ProviderConfig) (*brig.ProviderTest, error) {
	return doWithDetails(ctx, rs.gate, brig.OpTestProvider, "", withDetail(brig.DetailProvider, truncate(c.ID)), func(v *call) (*brig.ProviderTest, error) {
		if c.ID == rs.builtinID {
			return rs.testBackend(ctx, v, rs.providers.builtin()), nil
		}
		d, raw, err := rs.providers.checkConfig(rs.backends.Current(), c)
		if err != nil {
			return nil, err
		}
		return rs.openAndTest(ctx, v, c.ID, d, raw)
	})
}

// openAndTest opens and tests a provider. It returns an error for an invalid
// configuration, and any other failure as the result of the test.
func (rs *runs) openAndTest(ctx context.Context, v *call, id string, d *brig.Driver, raw []byte) (*brig.ProviderTest, error) {
	begin := time.Now()
	m, err := rs.providers.openProvider(ctx, id, d, raw)
	if err != nil {
		if apiErr := brig.AsError(err); apiErr.Kind == brig.InvalidConfig {
			return nil, err
		}
		return newFailedTest(err, begin), nil
	}
	t := rs.testBackend(ctx, v, m)
	if err := m.Retire(); err != nil {
		rs.Log.WarnContext(ctx, "failed to close a provider after its test", "provider", id, "err", err)
	}
	return t, nil
}

// testBackend runs the test program with a provider.
func (rs *runs) testBackend(ctx context.Context, v *call, m *placement.Backend) *brig.ProviderTest {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 6*providerTestTimeout)
	defer cancel()
	p := brig.Program{Language: brig.Python, Code: brig.TestProgram, Timeout: providerTestTimeout}
	j, err := rs.plan(v, p)
	if err != nil {
		return newFailedTest(err, begin)
	}
	s := candidate{backend: m, route: brig.Route{Provider: m.ID, Reason: "test"}}
	finished := v.flushed
	run := rs.runAt
	if m.RunsOnly {
		run = func(ctx context.Context, v *call, s candidate, j *job, sio brig.IO, _ *output.Relay) (*brig.Outcome, error) {
			return rs.runAtRunner(ctx, v, s, p, j, sio)
		}
	}
	o, err := run(ctx, v, s, j, brig.IO{}, nil)
	v.flushed, v.id = finished, "" // the audit event must not name the test's sandbox
	if err != nil {
		return newFailedTest(err, begin)
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
