package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/docker"
	"github.com/brig-run/brig/provider/e2b"
	"github.com/brig-run/brig/provider/execman"
	"github.com/brig-run/brig/provider/local"
	"github.com/brig-run/brig/provider/ssh"
)

// drivers returns the drivers of all providers except the built-in one. A new driver must be added
// here.
func drivers() []brig.Driver {
	return []brig.Driver{
		execman.Driver(os.Getenv),
		agentrun.Driver(os.Getenv),
		docker.Driver(),
		e2b.Driver(),
		ssh.Driver(),
		local.Driver(),
	}
}

// providersConfig configures providers until an administrator changes them.
type providersConfig struct {
	// Active is the active provider until an administrator selects another.
	Active string `yaml:"active"`
	// Configure has the configurations of providers that are not in the store,
	// by provider ID.
	Configure map[string]struct {
		Config map[string]any `yaml:"config"`
		Terms  struct {
			Region string  `yaml:"region"`
			Max    integer `yaml:"max"`
			Second float64 `yaml:"second"`
		} `yaml:"terms"`
	} `yaml:"configure"`
}

// options sets the engine's options for remote providers. If meter is not nil, it counts the calls
// to them.
func (c *providersConfig) options(dir, agent string, meter brig.Meter, o *engine.Options) error {
	server, err := readServerName(dir)
	if err != nil {
		return err
	}
	o.Active, o.Drivers = c.Active, drivers()
	o.DriverEnv = func(id string) brig.ProviderEnv {
		return brig.ProviderEnv{
			ID: id, Dir: filepath.Join(dir, "providers", id), Agent: agent, Log: o.Log.With("provider", id),
			Called: metered(meter, id), Server: server,
		}
	}
	return nil
}

// readServerName returns the name by which other servers recognize the server of a data folder.
func readServerName(dir string) (string, error) {
	return guest.ServerMark(filepath.Join(dir, "providers"))
}

// metered returns a function that reports a provider's calls to the meter.
func metered(meter brig.Meter, id string) func(brig.Call) {
	if meter == nil {
		return nil
	}
	return func(c brig.Call) {
		meter.Called(id, c.Region, c.Operation, c.Status, time.Duration(c.Seconds*float64(time.Second)))
		if c.Limit > 0 {
			meter.Allowance(id, c.Region, c.Limit, c.Limit-c.Used)
		}
	}
}

// configureMissing configures the providers that are in the configuration file
// but not in the store. It never overwrites later changes by an administrator.
func (c *providersConfig) configureMissing(ctx context.Context, store brig.Store, e *engine.Engine, log *slog.Logger) error {
	if len(c.Configure) == 0 {
		return nil
	}
	rows, err := store.Settings(ctx)
	if err != nil {
		return err
	}
	ctx = brig.WithActor(ctx, brig.Actor{Name: "configuration", Tenant: tenant, Role: brig.Operator})
	for _, id := range slices.Sorted(maps.Keys(c.Configure)) {
		if slices.ContainsFunc(rows, func(s brig.Setting) bool {
			return s.Name == brig.SettingConfig(id) || s.Name == brig.SettingTerms(id)
		}) {
			continue
		}
		entry := c.Configure[id]
		in := brig.ProviderConfig{ID: id, Terms: &brig.Terms{Region: entry.Terms.Region, Max: int(entry.Terms.Max), Second: entry.Terms.Second}}
		if len(entry.Config) > 0 {
			if in.Config, err = json.Marshal(entry.Config); err != nil {
				return brig.Errorf(brig.InvalidConfig, "providers.configure.%s.config cannot be converted to JSON", id).WithHint("use only strings, numbers, booleans and lists of strings").Because(err)
			}
		}
		if _, err := e.ConfigureProvider(ctx, in); err != nil {
			cause := brig.AsError(err)
			return brig.Errorf(brig.InvalidConfig, "providers.configure.%s: %s", id, cause.Message).WithHint("%s", cause.Hint)
		}
		log.Info("configured a provider from the configuration file", "provider", id)
	}
	return nil
}
