package main

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
)

// alertsFile stores the state of the alerts across restarts.
const alertsFile = "alerts.json"

// alertsConfig is the alerts section of the configuration.
type alertsConfig struct {
	// Every is the interval at which the rules are evaluated.
	Every duration `yaml:"every"`
	// Repeat is the interval at which notifications of a firing alert are
	// repeated.
	Repeat duration `yaml:"repeat"`
	// Rules overrides built-in rules by name.
	Rules map[string]ruleConfig `yaml:"rules"`
	// Webhook is the receiver of alert notifications.
	Webhook struct {
		URL string `yaml:"url"`
		// Insecure allows plain HTTP to other hosts.
		Insecure bool `yaml:"insecure"`
		// Bearer and Secret are the names of files with the bearer token and the signing key.
		Bearer   string `yaml:"bearer"`
		Secret   string `yaml:"secret"`
		External string `yaml:"external"`
	} `yaml:"webhook"`
}

// ruleConfig overrides parts of a rule. Omitted fields keep their default.
type ruleConfig struct {
	Threshold *float64  `yaml:"threshold"`
	Window    *duration `yaml:"window"`
	For       *duration `yaml:"for"`
	Least     *integer  `yaml:"least"`
	Off       bool      `yaml:"off"`
}

// rules returns the rules to evaluate: the built-in ones with the overrides
// applied.
func (c *alertsConfig) rules() ([]alert.Rule, error) {
	rules := alert.Rules()
	for name, change := range c.Rules {
		i := slices.IndexFunc(rules, func(r alert.Rule) bool { return r.Name == name })
		if i < 0 {
			var names []string
			for _, r := range rules {
				names = append(names, r.Name)
			}
			return nil, brig.Errorf(brig.InvalidConfig, "alerts.rules: no rule %q", brig.Clip(name, 80)).
				WithHint("the rules are %s", strings.Join(names, ", "))
		}
		r := &rules[i]
		set := func(to *time.Duration, d *duration) {
			if d != nil {
				*to = d.toDuration()
			}
		}
		if change.Threshold != nil {
			r.Threshold = *change.Threshold
		}
		if change.Least != nil {
			r.Least = int64(*change.Least)
		}
		if change.Window != nil && r.Window == 0 {
			return nil, brig.Errorf(brig.InvalidConfig, "alerts.rules.%s.window: the rule has no window", name).WithHint("leave it out, or set for")
		}
		set(&r.Window, change.Window)
		set(&r.For, change.For)
		if r.For < 0 || r.Least < 0 || change.Window != nil && (r.Window < time.Second || r.Window > 24*time.Hour) {
			return nil, brig.Errorf(brig.InvalidConfig, "alerts.rules.%s is out of bounds", name).
				WithHint("give a window from 1s to 24h, and no negative for or least")
		}
		if change.Off {
			r.Name = ""
		}
	}
	return slices.DeleteFunc(rules, func(r alert.Rule) bool { return r.Name == "" }), nil
}

// webhook returns the receiver of alert notifications, or nil if none is
// configured.
func (c *alertsConfig) webhook(log *slog.Logger) (*alert.Webhook, error) {
	w := c.Webhook
	if w.URL == "" {
		return nil, nil
	}
	o := alert.WebhookOptions{URL: w.URL, Insecure: w.Insecure, External: w.External, Log: log}
	for _, f := range []struct {
		field, file string
		to          *string
	}{{"bearer", w.Bearer, &o.Bearer}, {"secret", w.Secret, &o.Secret}} {
		if f.file == "" {
			continue
		}
		b, err := os.ReadFile(f.file)
		if *f.to = strings.TrimSpace(string(b)); err != nil || *f.to == "" {
			return nil, brig.Errorf(brig.InvalidConfig, "alerts.webhook.%s: the file is unreadable or empty", f.field).
				WithHint("check its name and mode").Because(err)
		}
	}
	return alert.NewWebhook(o)
}

// figures returns the source of each value that the alert rules evaluate.
func (w *monitor) figures() map[alert.Figure]alert.Source {
	withoutError := func(f func(time.Duration) []brig.Sample) alert.Source {
		return func(window time.Duration) ([]brig.Sample, error) { return f(window), nil }
	}
	withoutWindow := func(f func() ([]brig.Sample, error)) alert.Source {
		return func(time.Duration) ([]brig.Sample, error) { return f() }
	}
	return map[alert.Figure]alert.Source{
		alert.Availability: withoutError(w.metrics.Availability), alert.ErrorRate: withoutError(w.metrics.ErrorRate),
		alert.MeanSeconds: withoutError(w.metrics.MeanSeconds), alert.P95Seconds: withoutError(w.metrics.P95Seconds),
		alert.ProviderUp: withoutError(w.metrics.Up), alert.RateLimit: withoutError(w.metrics.RateLimit),
		alert.PoolFree: withoutWindow(w.machines.PoolFree), alert.Memory: withoutWindow(w.host.Memory),
		alert.CostRatio: withoutWindow(w.spending.CostRatio), alert.Budget: withoutWindow(w.spending.Budgets),
	}
}

// firing exports the number of firing alerts to Prometheus.
type firing struct{ alerts *alert.Evaluator }

var firingDesc = prometheus.NewDesc("brig_alerts_firing", "Alerts that fire.", []string{"alert", "severity"}, nil)

// Describe implements prometheus.Collector.
func (firing) Describe(ch chan<- *prometheus.Desc) { ch <- firingDesc }

// Collect implements prometheus.Collector.
func (f firing) Collect(ch chan<- prometheus.Metric) {
	n := map[[2]string]int{}
	for _, r := range f.alerts.Rules {
		n[[2]string{r.Name, string(r.Severity)}] = 0
	}
	for _, a := range f.alerts.Alerts() {
		if a.State == brig.AlertFiring {
			n[[2]string{a.Name, string(a.Severity)}]++
		}
	}
	for k, v := range n {
		ch <- prometheus.MustNewConstMetric(firingDesc, prometheus.GaugeValue, float64(v), k[0], k[1])
	}
}
