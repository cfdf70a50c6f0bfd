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
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/docker"
	"github.com/brig-run/brig/provider/e2b"
	"github.com/brig-run/brig/provider/execman"
	"github.com/brig-run/brig/provider/local"
	"github.com/brig-run/brig/provider/ssh"
)

// drivers are the kinds of providers that there are, besides this machine: a
// new one is a line here.
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

// providersConfig says which providers there are from the first start on.
type providersConfig struct {
	// Active is the one that is active until an administrator chooses another.
	Active string `yaml:"active"`
	// Configure is what is configured if nothing is kept of it, by id.
	Configure map[string]struct {
		Config map[string]any `yaml:"config"`
		Terms  struct {
			Region string  `yaml:"region"`
			Max    whole   `yaml:"max"`
			Second float64 `yaml:"second"`
		} `yaml:"terms"`
	} `yaml:"configure"`
}

// options are those of an engine that has them. The meter, if there is one, is
// told of what they call.
func (c *providersConfig) options(dir, agent string, meter brig.Meter, o *engine.Options) {
	o.Active, o.Drivers = c.Active, drivers()
	o.Site = func(id string) brig.Site {
		return brig.Site{
			ID: id, Dir: filepath.Join(dir, "providers", id), Agent: agent, Log: o.Log.With("provider", id),
			Called: metered(meter, id),
		}
	}
}

// metered tells a meter of a provider's calls.
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

// first configures what the configuration file has and the store has not. What
// an administrator has changed since stays.
func (c *providersConfig) first(ctx context.Context, store brig.Store, e *engine.Engine, log *slog.Logger) error {
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
		given := c.Configure[id]
		in := brig.ProviderConfig{ID: id, Terms: &brig.Terms{Region: given.Terms.Region, Max: int(given.Terms.Max), Second: given.Terms.Second}}
		if len(given.Config) > 0 {
			if in.Config, err = json.Marshal(given.Config); err != nil {
				return brig.Errorf(brig.InvalidConfig, "providers.configure.%s.config is not what JSON can be", id).WithHint("give text, numbers, true or false, and lists of text").Because(err)
			}
		}
		if _, err := e.ConfigureProvider(ctx, in); err != nil {
			told := brig.AsError(err)
			return brig.Errorf(brig.InvalidConfig, "providers.configure.%s: %s", id, told.Message).WithHint("%s", told.Hint)
		}
		log.Info("configured a provider from the configuration file", "provider", id)
	}
	return nil
}
