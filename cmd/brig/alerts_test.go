package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
	"github.com/brig-run/brig/observe"
)

// alertHarness simulates a server whose alert rules are evaluated. The test sets the measured
// values and the clock. The metrics, the default rules and the webhook are the production code.
type alertHarness struct {
	*monitor
	now    time.Time
	free   int // idle sandboxes in the pool
	tenant brig.Tenant
	usage  []brig.UsageLine
	hook   *receiver
	steps  []map[string]float64 // the samples that Prometheus would have scraped
}

const sampleInterval = 15 * time.Second

func newAlertHarness(t *testing.T) *alertHarness {
	t.Helper()
	// The clock starts a quarter of an hour before midnight, so that a day ends
	// during the test.
	s := &alertHarness{now: time.Date(2026, 11, 14, 23, 45, 0, 0, time.UTC), free: 3, tenant: brig.Tenant{Name: "acme", Budget: 100}, hook: newReceiver(t)}
	clock := func() time.Time { return s.now }
	w := &monitor{registry: prometheus.NewRegistry()}
	var err error
	if w.metrics, err = observe.New(w.registry, observe.Options{Providers: []string{"gvisor"}, Now: clock}); err != nil {
		t.Fatal(err)
	}
	w.machines = &observe.Machines{Context: t.Context(), Load: func() brig.Load { return brig.Load{} },
		Pool: func(context.Context) ([]brig.PoolClass, error) {
			return []brig.PoolClass{{Provider: "gvisor", Target: 3, Ready: s.free}}, nil
		}}
	w.host = &observe.Host{Dir: t.TempDir(), Meminfo: filepath.Join(t.TempDir(), "meminfo")}
	w.spending = &observe.Spending{
		Now: clock, Context: t.Context(),
		Tenants: func(context.Context) ([]*brig.Tenant, error) { return []*brig.Tenant{&s.tenant}, nil },
		Usage: func(_ context.Context, _, from, to string) ([]brig.UsageLine, error) {
			return s.usageBetween(from, to), nil
		},
	}
	for _, c := range []prometheus.Collector{w.machines, w.host, w.spending} {
		w.registry.MustRegister(c)
	}
	hook, err := alert.NewWebhook(alert.WebhookOptions{URL: s.hook.url, RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.webhook = hook
	w.alerts = alert.NewEvaluator(alert.Options{Rules: alert.Rules(), Figures: w.figures(), Notify: hook.Notify, Now: clock})
	s.monitor = w
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { hook.Run(ctx) })
	t.Cleanup(func() { end(); work.Wait() })
	s.memory(t, 40)
	// The tenant spent 1 per day for a week.
	for day := 7; day < 14; day++ {
		s.usage = append(s.usage, brig.UsageLine{Tenant: "acme", Day: fmt.Sprintf("2026-11-%02d", day), UsageTotals: brig.UsageTotals{Cost: 1}})
	}
	return s
}

func (s *alertHarness) usageBetween(from, to string) (out []brig.UsageLine) {
	for _, l := range s.usage {
		if l.Day >= from && l.Day <= to {
			out = append(out, l)
		}
	}
	return out
}

func (s *alertHarness) memory(t *testing.T, used int) {
	t.Helper()
	text := fmt.Sprintf("MemTotal: 1000 kB\nMemAvailable: %d kB\n", 1000-10*used)
	if err := os.WriteFile(s.host.Meminfo, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *alertHarness) recordExecutions(status brig.RunStatus, kind brig.Kind, took time.Duration, n int) {
	for range n {
		s.metrics.ExecutionEnded(brig.ExecutionReport{Provider: "gvisor", Op: "run", Language: "python", Status: status, Kind: kind, Duration: took})
	}
}

// advance simulates 15 seconds of a healthy server and then calls the function
// what.
func (s *alertHarness) advance(t *testing.T, what func()) {
	t.Helper()
	s.now = s.now.Add(sampleInterval)
	s.recordExecutions(brig.RunSuccess, "", 100*time.Millisecond, 2)
	s.metrics.ProviderTested("gvisor", 50*time.Millisecond, nil)
	what()
	s.alerts.Step(t.Context())
	s.steps = append(s.steps, s.read(t))
}

// read returns the samples of /metrics.
func (s *alertHarness) read(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := func(suffix string, more ...string) string {
				return f.GetName() + suffix + "{" + strings.Join(append(slices.Clone(labels), more...), ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				out[name("")] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name("")] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				h := m.GetHistogram()
				out[name("_sum")], out[name("_count")] = h.GetSampleSum(), float64(h.GetSampleCount())
				out[name("_bucket", `le="+Inf"`)] = float64(h.GetSampleCount())
				for _, b := range h.GetBucket() {
					out[name("_bucket", `le="`+strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)+`"`)] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return out
}

func (s *alertHarness) state(name string) brig.AlertState {
	for _, a := range s.alerts.Alerts() {
		if a.Name == name {
			return a.State
		}
	}
	return ""
}

// causes defines how to make each rule fire. Where the end of the cause does not clear the alert,
// right is an additional step that clears it.
var causes = map[string]struct {
	wrong, right func(*testing.T, *alertHarness)
	labels       map[string]string
}{
	"BrigAvailability": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.recordExecutions(brig.RunFailed, brig.CreationFailed, 0, 1) },
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigErrorRate": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.recordExecutions(brig.RunTimeout, brig.Timeout, time.Second, 1) },
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigSlowExecutions": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.recordExecutions(brig.RunSuccess, "", 30*time.Second, 4) },
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigSlowTail": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.recordExecutions(brig.RunSuccess, "", 7*time.Second, 1) },
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigPoolExhausted": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.free = 0 },
		right:  func(_ *testing.T, s *alertHarness) { s.free = 1 },
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigProviderDown": {
		wrong: func(_ *testing.T, s *alertHarness) {
			s.metrics.ProviderTested("gvisor", time.Second, errors.New("broken"))
		},
		labels: map[string]string{"provider": "gvisor"},
	},
	"BrigCostSpike": {
		wrong: func(_ *testing.T, s *alertHarness) {
			if s.now.Day() == 14 && len(s.usage) == 7 {
				s.usage = append(s.usage, brig.UsageLine{Tenant: "acme", Day: "2026-11-14", UsageTotals: brig.UsageTotals{Cost: 2.5}})
			}
		},
	},
	"BrigRateLimitNear": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.metrics.Allowance("cloud", "eu", 100, 10) },
		right:  func(_ *testing.T, s *alertHarness) { s.metrics.Allowance("cloud", "eu", 100, 95) },
		labels: map[string]string{"provider": "cloud", "region": "eu"},
	},
	"BrigMemoryHigh": {
		wrong: func(t *testing.T, s *alertHarness) { s.memory(t, 93) },
		right: func(t *testing.T, s *alertHarness) { s.memory(t, 50) },
	},
	"BrigBudgetNear": {
		wrong:  func(_ *testing.T, s *alertHarness) { s.tenant.Budget = 8 },
		right:  func(_ *testing.T, s *alertHarness) { s.tenant.Budget = 100 },
		labels: map[string]string{"tenant": "acme"},
	},
	"BrigBudgetSpent": {
		// The tenant has spent 7 of a budget of 1.
		wrong:  func(_ *testing.T, s *alertHarness) { s.tenant.Budget = 1 },
		right:  func(_ *testing.T, s *alertHarness) { s.tenant.Budget = 100 },
		labels: map[string]string{"tenant": "acme"},
	},
}

// TestEveryAlertFiresAndClears makes each rule fire and clear, and checks that the webhook receives
// both notifications. Prometheus must reach the same results from the exported rules and the
// recorded samples.
func TestEveryAlertFiresAndClears(t *testing.T) {
	for _, r := range alert.Rules() {
		t.Run(r.Name, func(t *testing.T) {
			c, ok := causes[r.Name]
			if !ok {
				t.Fatal("nothing makes this alert fire")
			}
			s := newAlertHarness(t)
			for range 24 { // six minutes without any problem
				s.advance(t, func() {})
			}
			if got := s.alerts.Alerts(); len(got) != 0 {
				t.Fatalf("got alerts %+v on a healthy server, want none", got)
			}
			fires := 0
			for range 24 {
				s.advance(t, func() { c.wrong(t, s) })
				if s.state(r.Name) == brig.AlertFiring && fires == 0 {
					fires = len(s.steps)
				}
			}
			if fires == 0 {
				t.Fatalf("alert does not fire: state %q", s.state(r.Name))
			}
			if held := time.Duration(fires-24-1) * sampleInterval; held < r.For {
				t.Errorf("fired after %v, want at least %v", held, r.For)
			}
			// The webhook sends only the current state, so check for the firing
			// notification before the alert clears.
			s.hook.expect(t, r, "firing", c.labels)
			// Midnight passes during these steps.
			for range 48 {
				s.advance(t, func() {
					if c.right != nil {
						c.right(t, s)
					}
				})
			}
			if s.state(r.Name) != brig.AlertResolved {
				t.Fatalf("alert does not clear: state %q", s.state(r.Name))
			}
			s.hook.expect(t, r, "resolved", c.labels)
			t.Run("promtool", func(t *testing.T) { s.prometheus(t, r) })
		})
	}
}

// prometheus uses promtool to check that the exported rules fire and clear like the built-in
// evaluation.
func (s *alertHarness) prometheus(t *testing.T, r alert.Rule) {
	tool := findPromtool(t)
	dir := t.TempDir()
	rules, err := alert.PrometheusRules(alert.Rules())
	if err != nil {
		t.Fatal(err)
	}
	series := map[string][]string{}
	for i, read := range s.steps {
		for name, v := range read {
			if !strings.HasPrefix(name, "brig_") {
				continue
			}
			for len(series[name]) < i {
				series[name] = append(series[name], "_")
			}
			series[name] = append(series[name], strconv.FormatFloat(v, 'f', -1, 64))
		}
		for name := range series {
			if len(series[name]) <= i {
				series[name] = append(series[name], "_")
			}
		}
	}
	var b strings.Builder
	b.WriteString("rule_files: [rules.yml]\nevaluation_interval: 15s\ntests:\n- interval: 15s\n  input_series:\n")
	for name, values := range series {
		fmt.Fprintf(&b, "  - series: '%s'\n    values: '%s'\n", name, strings.Join(values, " "))
	}
	firing := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"})`, r.Name)
	fmt.Fprintf(&b, "  promql_expr_test:\n")
	fmt.Fprintf(&b, "  - {expr: '%s', eval_time: %s, exp_samples: []}\n", firing, 23*sampleInterval)
	fmt.Fprintf(&b, "  - {expr: '%s', eval_time: %s, exp_samples: [{labels: '{}', value: 1}]}\n", firing, 47*sampleInterval)
	fmt.Fprintf(&b, "  - {expr: '%s', eval_time: %s, exp_samples: []}\n", firing, 95*sampleInterval)
	for file, text := range map[string]string{"rules.yml": string(rules), "test.yml": b.String()} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(tool, "test", "rules", filepath.Join(dir, "test.yml")).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// findPromtool returns the path of promtool, and skips the test if promtool is not installed.
func findPromtool(t testing.TB) string {
	t.Helper()
	for _, file := range []string{os.Getenv("BRIG_PROMTOOL"), "promtool", "/var/cache/brig-test/promtool"} {
		if found, err := exec.LookPath(file); file != "" && err == nil {
			return found
		}
	}
	t.Skip("no promtool here; `make setup` gets one")
	return ""
}

// receiver is a webhook receiver for Alertmanager notifications.
type receiver struct {
	url string

	mu     sync.Mutex // guards the fields below
	bodies []hookBody
}

// hookBody is the request body that Alertmanager's documentation specifies.
type hookBody struct {
	Version     string            `json:"version"`
	GroupKey    string            `json:"groupKey"`
	Status      string            `json:"status"`
	Receiver    string            `json:"receiver"`
	GroupLabels map[string]string `json:"groupLabels"`
	Alerts      []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		StartsAt    time.Time         `json:"startsAt"`
		EndsAt      time.Time         `json:"endsAt"`
		Fingerprint string            `json:"fingerprint"`
	} `json:"alerts"`
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, err := io.ReadAll(q.Body)
		var body hookBody
		if err == nil {
			err = json.Unmarshal(b, &body)
		}
		if err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v: %v", q.Method, q.Header, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, body)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// expect waits until the webhook has reported state for the rule, and checks all notifications of
// the rule.
func (r *receiver) expect(t *testing.T, rule alert.Rule, state string, labels map[string]string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		var states, prints []string
		r.mu.Lock()
		for _, b := range r.bodies {
			if b.GroupLabels["alertname"] != rule.Name {
				continue
			}
			if b.Version != "4" || b.GroupKey == "" || b.Receiver != "brig" || len(b.Alerts) != 1 || b.Status != b.Alerts[0].Status {
				t.Errorf("invalid notification %+v", b)
				continue
			}
			a := b.Alerts[0]
			states, prints = append(states, a.Status), append(prints, a.Fingerprint)
			want := map[string]string{"alertname": rule.Name, "severity": string(rule.Severity)}
			for k, v := range labels {
				want[k] = v
			}
			if fmt.Sprint(a.Labels) != fmt.Sprint(want) {
				t.Errorf("labels %v, want %v", a.Labels, want)
			}
			if strings.ContainsAny(a.Annotations["summary"]+a.Annotations["description"], "{}") || a.Annotations["summary"] == "" {
				t.Errorf("annotations %v", a.Annotations)
			}
			if v, err := strconv.ParseFloat(a.Annotations["value"], 64); err != nil || math.IsNaN(v) {
				t.Errorf("value %q", a.Annotations["value"])
			}
			if a.StartsAt.IsZero() || (a.Status == "resolved") == a.EndsAt.IsZero() {
				t.Errorf("%s from %v to %v", a.Status, a.StartsAt, a.EndsAt)
			}
		}
		r.mu.Unlock()
		if i := slices.Index(states, state); i >= 0 {
			if states[0] != "firing" || prints[0] != prints[i] {
				t.Errorf("got states %v with fingerprints %v", states, prints)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got states %v, want %v", states, state)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
