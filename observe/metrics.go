package observe

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
)

// DefaultWindow is the period for quantiles and ratios.
const DefaultWindow = 5 * time.Minute

// Options configure Metrics.
type Options struct {
	// Providers lists the providers that are known from the start. Their series begin at zero.
	Providers []string
	// Windows are the windows of alerts, in addition to DefaultWindow.
	Windows []time.Duration
	// HealthInterval is the interval of provider trials. The result of a trial remains valid for
	// two intervals, and at least for DefaultWindow. Without an interval, there are no trials.
	HealthInterval time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// Metrics counts the events that it receives.
type Metrics struct {
	now     func() time.Time
	started time.Time
	windows map[time.Duration]*window // of executions, by provider
	apis    *window                   // of calls of provider APIs, by provider and region

	executions, attempts, errors, createFailures, ends, restarts, healthChecks *prometheus.CounterVec
	cost, calls, apiErrors, throttled                                          *prometheus.CounterVec
	seconds, making, api                                                       *prometheus.HistogramVec
	healthCheckSeconds                                                         *prometheus.GaugeVec

	upStates, answers, rateLimits latestValues
}

var (
	_ brig.Observer = (*Metrics)(nil)
	_ brig.Meter    = (*Metrics)(nil)
)

// runBuckets are the buckets of execution durations, from a millisecond for
// code in a context to half an hour.
var runBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// makeBuckets are the buckets of sandbox creation times, from a pool claim to a
// slow cloud.
var makeBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .4, .8, 1.5, 3, 6, 15, 60}

// apiBuckets are the buckets of the durations of network calls.
var apiBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New returns metrics registered with reg.
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Metrics{now: o.Now, started: o.Now(), windows: map[time.Duration]*window{}, apis: newWindow(DefaultWindow)}
	m.upStates.lifetime, m.rateLimits.lifetime = max(DefaultWindow, 2*o.HealthInterval), DefaultWindow
	m.answers.lifetime = answerLifetime
	for _, d := range append(o.Windows, DefaultWindow) {
		if m.windows[d] == nil {
			m.windows[d] = newWindow(d)
		}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m.executions = counter("brig_executions_total", "Completed executions by status; code is the code of the error or verdict.", "provider", "operation", "language", "status", "code")
	m.attempts = counter("brig_attempts_total", "Executions and health checks that count towards availability, by result.", "provider", "result")
	m.errors = counter("brig_errors_total", "Operations that ended with an error, by its code.", "operation", "code", "kind")
	m.createFailures = counter("brig_sandbox_failures_total", "Failed creations of sandboxes, by purpose and error code.", "provider", "for", "code")
	m.ends = counter("brig_sandboxes_ended_total", "Persistent sandboxes that have ended, by reason.", "provider", "reason")
	m.restarts = counter("brig_restarts_total", "Pooled sandboxes and interpreters that died and were replaced.", "provider", "what")
	m.healthChecks = counter("brig_trials_total", "Health checks of the provider, by result.", "provider", "result")
	m.cost = counter("brig_cost_total", "Cost of executions at the configured rates.", "provider")
	m.calls = counter("brig_api_calls_total", "Calls of a provider's API, by response status; none if there was no response.", "provider", "region", "code")
	m.apiErrors = counter("brig_api_errors_total", "Calls of a provider's API without a response or with a status of 400 or above.", "provider", "region", "code")
	m.throttled = counter("brig_api_throttled_total", "Calls of a provider's API that returned 429.", "provider", "region")
	m.seconds = histogram("brig_execution_seconds", "Duration of executions that ran.", runBuckets, "provider", "operation", "language")
	m.making = histogram("brig_sandbox_create_seconds", "Time to create a sandbox, or to claim one from the pool (claim).", makeBuckets, "provider", "for")
	m.api = histogram("brig_api_seconds", "Duration of calls of a provider's API.", apiBuckets, "provider", "region", "operation")
	m.healthCheckSeconds = gauge("brig_trial_seconds", "Duration of the last health check, including the creation of its sandbox.", "provider")
	for _, c := range []prometheus.Collector{
		m.executions, m.attempts, m.errors, m.createFailures, m.ends, m.restarts, m.healthChecks, m.cost, m.calls, m.apiErrors, m.throttled,
		m.seconds, m.making, m.api, m.healthCheckSeconds, computed{m},
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	for _, p := range o.Providers {
		m.begin(p)
	}
	return m, nil
}

// begin initializes a provider's series to zero, so that their first increase
// is visible.
func (m *Metrics) begin(provider string) {
	m.attempts.WithLabelValues(provider, "ok")
	m.attempts.WithLabelValues(provider, "failed")
	m.cost.WithLabelValues(provider)
	for _, what := range []string{"sandbox", "interpreter"} {
		m.restarts.WithLabelValues(provider, what)
	}
}

// ExecutionEnded implements brig.Observer.
func (m *Metrics) ExecutionEnded(r brig.ExecutionReport) {
	code := ""
	if r.Kind != "" {
		code = r.Kind.Code()
	}
	m.executions.WithLabelValues(r.Provider, r.Op, r.Language, string(r.Status), code).Inc()
	if r.Cost > 0 {
		m.cost.WithLabelValues(r.Provider).Add(r.Cost)
	}
	if !r.Status.CountsForAvailability() {
		return
	}
	s := sums{attempts: 1, counted: 1}
	if r.Status.IsServiceError() {
		s.errored = 1
	}
	if r.Status == brig.RunSuccess {
		s.good = 1
	}
	if r.Status == brig.RunFailed {
		s.failed = 1
	} else {
		m.seconds.WithLabelValues(r.Provider, r.Op, r.Language).Observe(r.Duration.Seconds())
		s.timed, s.seconds = 1, r.Duration.Seconds()
	}
	m.addAttempt(r.Provider, s)
}

func (m *Metrics) addAttempt(provider string, s sums) {
	result := "ok"
	if s.failed > 0 {
		result = "failed"
	}
	m.attempts.WithLabelValues(provider, result).Inc()
	now := m.now()
	for _, w := range m.windows {
		w.add(provider, now, s)
	}
}

// Refused implements brig.Observer.
func (m *Metrics) Refused(op string, kind brig.Kind) {
	m.errors.WithLabelValues(op, kind.Code(), string(kind)).Inc()
}

// InstanceCreated implements brig.Observer.
func (m *Metrics) InstanceCreated(k brig.CreationReport) {
	if k.Err != nil {
		m.createFailures.WithLabelValues(k.Provider, string(k.For), brig.KindOf(k.Err).Code()).Inc()
		return
	}
	m.making.WithLabelValues(k.Provider, string(k.For)).Observe(k.Took.Seconds())
}

// SandboxEnded implements brig.Observer.
func (m *Metrics) SandboxEnded(provider string, reason brig.ExitReason) {
	m.ends.WithLabelValues(provider, string(reason)).Inc()
}

// Restarted implements brig.Observer.
func (m *Metrics) Restarted(provider, what string) { m.restarts.WithLabelValues(provider, what).Inc() }

// ProviderTested implements brig.Observer.
func (m *Metrics) ProviderTested(provider string, duration time.Duration, err error) {
	s, result, up := sums{attempts: 1}, "ok", 1.0
	if err != nil {
		s.failed, result, up = 1, "failed", 0
	}
	m.healthChecks.WithLabelValues(provider, result).Inc()
	m.upStates.set(provider, "", up, m.now())
	m.healthCheckSeconds.WithLabelValues(provider).Set(duration.Seconds())
	m.addAttempt(provider, s)
}

// answerLifetime is the time for which a provider's last response counts. A
// provider that was removed from the configuration disappears after this time.
const answerLifetime = time.Minute

// ProviderChecked implements brig.Observer.
func (m *Metrics) ProviderChecked(provider string, err error) {
	up := 1.0
	if err != nil {
		up = 0
	}
	m.answers.set(provider, "", up, m.now())
}

// Called implements brig.Meter.
func (m *Metrics) Called(provider, region, operation string, status int, duration time.Duration) {
	code := "none"
	if status != 0 {
		code = strconv.Itoa(status)
	}
	m.calls.WithLabelValues(provider, region, code).Inc()
	m.api.WithLabelValues(provider, region, operation).Observe(duration.Seconds())
	s := sums{attempts: 1}
	if status == 0 || status >= 400 {
		m.apiErrors.WithLabelValues(provider, region, code).Inc()
	}
	if status == http.StatusTooManyRequests {
		m.throttled.WithLabelValues(provider, region).Inc()
	}
	if status == 0 || status >= 500 {
		s.failed = 1
	}
	m.apis.add(provider+"\x00"+region, m.now(), s)
}

// Allowance implements brig.Meter.
func (m *Metrics) Allowance(provider, region string, limit, remaining float64) {
	if limit > 0 {
		m.rateLimits.set(provider, region, min(max(1-remaining/limit, 0), 1), m.now())
	}
}
