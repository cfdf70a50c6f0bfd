package main

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/version"
	"github.com/brig-run/brig/observe"
)

// rateConfig is the price of a provider's executions.
type rateConfig struct {
	PerCall      float64 `yaml:"per_call"`
	PerSecond    float64 `yaml:"per_second"`
	PerGiBSecond float64 `yaml:"per_gib_second"`
}

// rates returns the prices of executions by provider.
func (c *config) rates() (map[string]brig.Rate, error) {
	out := map[string]brig.Rate{}
	for name, r := range c.Rates {
		out[name] = brig.Rate(r)
		if err := out[name].Check("rates." + name); err != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "rates.%s: %s", name, brig.AsError(err).Message).WithHint("%s", brig.AsError(err).Hint)
		}
	}
	return out, nil
}

// defaultHealthCheckInterval is the default interval of trial runs.
const defaultHealthCheckInterval = time.Minute

// healthCheckInterval returns the interval of trial runs.
func (c *config) healthCheckInterval() time.Duration {
	if c.Metrics.Trial == nil {
		return defaultHealthCheckInterval
	}
	return c.Metrics.Trial.toDuration()
}

// monitor is the monitoring of the server: metrics and alerts.
type monitor struct {
	registry *prometheus.Registry
	metrics  *observe.Metrics
	machines *observe.Machines
	host     *observe.Host
	spending *observe.Spending
	alerts   *alert.Evaluator
	webhook  *alert.Webhook // nil if none is configured
}

// monitor creates the monitoring of a server, and connects it to the engine's
// options.
func (c *config) monitor(dir string, o *engine.Options) (*monitor, error) {
	rules, err := c.Alerts.rules()
	if err != nil {
		return nil, err
	}
	if o.Rates, err = c.rates(); err != nil {
		return nil, err
	}
	var windows []time.Duration
	for _, r := range rules {
		if r.Window > 0 {
			windows = append(windows, r.Window)
		}
	}
	w := &monitor{registry: prometheus.NewRegistry(), machines: &observe.Machines{}, host: &observe.Host{Dir: dir}}
	w.metrics, err = observe.New(w.registry, observe.Options{Providers: []string{o.Provider.Capabilities().Name}, Windows: windows, HealthInterval: c.healthCheckInterval()})
	if err != nil {
		return nil, err
	}
	w.spending = &observe.Spending{Tenants: o.Store.Tenants, Usage: o.Store.Usage, Now: time.Now, Every: c.Alerts.Every.toDuration()}
	if w.webhook, err = c.Alerts.webhook(o.Log); err != nil {
		return nil, err
	}
	ao := alert.Options{
		Rules: rules, Figures: w.figures(), Every: c.Alerts.Every.toDuration(), Repeat: c.Alerts.Repeat.toDuration(),
		File: filepath.Join(dir, alertsFile), Log: o.Log,
	}
	if w.webhook != nil {
		ao.Notify = w.webhook.Notify
	}
	w.alerts = alert.NewEvaluator(ao)
	o.Observer, o.Alerts, o.HealthCheckInterval = w.metrics, w.alerts.Alerts, c.healthCheckInterval()
	return w, nil
}

// buildInfo exports the version of this build.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "brig_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version.String()},
	})
	g.Set(1)
	return g
}

// begin starts to monitor an engine. The returned function stops it.
func (w *monitor) begin(ctx context.Context, e *engine.Engine) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	w.machines.Load, w.machines.Pool = e.Load, e.Pool
	w.machines.Context = brig.WithActor(ctx, brig.Actor{Name: "metrics", Tenant: tenant, Role: brig.Operator})
	w.spending.Context = ctx
	for _, c := range []prometheus.Collector{
		w.machines, w.host, w.spending, buildInfo(), firing{w.alerts},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := w.registry.Register(c); err != nil {
			cancel()
			return nil, err
		}
	}
	var work sync.WaitGroup
	work.Go(func() { w.alerts.Run(ctx) })
	if w.webhook != nil {
		work.Go(func() { w.webhook.Run(ctx) })
	}
	return func() { cancel(); work.Wait() }, nil
}
