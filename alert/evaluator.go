package alert

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Source measures a figure, over a time window if the rule has one.
type Source func(window time.Duration) ([]brig.Sample, error)

// Options are the options of an Evaluator.
type Options struct {
	Rules []Rule
	// Figures are the sources of figures. A rule whose figure has no source is
	// not evaluated.
	Figures map[Figure]Source
	// Notify is called with alerts that start to fire or resolve, and every
	// Repeat with those that still fire.
	Notify func([]brig.Alert)
	// Every is the interval at which the rules are evaluated. The default is 15 s.
	Every time.Duration
	// Repeat is the interval at which notifications of a firing alert are repeated. The default is
	// 4 h.
	Repeat time.Duration
	// File is the path of a file that stores the firing alerts across restarts, so that their end
	// is reported. By default, they are not stored.
	File string
	Now  func() time.Time // default time.Now
	Log  *slog.Logger     // default discards
}

// Evaluator evaluates the rules periodically.
type Evaluator struct {
	Options

	mu     sync.Mutex // guards the field below
	alerts map[string]*alertState
}

// alertState is the state of an alert.
type alertState struct {
	brig.Alert
	notified time.Time // time of the last notification while firing
}

// keepResolved is the time for which a resolved alert is listed.
const keepResolved = time.Hour

// NewEvaluator returns an Evaluator. Run starts it.
func NewEvaluator(o Options) *Evaluator {
	if o.Every == 0 {
		o.Every = 15 * time.Second
	}
	if o.Repeat == 0 {
		o.Repeat = 4 * time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func([]brig.Alert) {}
	}
	e := &Evaluator{Options: o, alerts: map[string]*alertState{}}
	e.load()
	return e
}

// Run evaluates the rules until ctx is done.
func (e *Evaluator) Run(ctx context.Context) {
	t := time.NewTicker(e.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			e.Step(ctx)
		}
	}
}

// Step evaluates all rules once.
func (e *Evaluator) Step(ctx context.Context) {
	var changed []brig.Alert
	for _, r := range e.Rules {
		measure := e.Figures[r.Figure]
		if measure == nil {
			continue
		}
		samples, err := measure(r.Window)
		if err != nil {
			// Without a measurement the alert keeps its state.
			e.Log.WarnContext(ctx, "failed to measure the value of an alert rule", "rule", r.Name, "err", err)
			continue
		}
		changed = append(changed, e.evaluate(r, samples)...)
	}
	e.forget()
	if len(changed) == 0 {
		return
	}
	for _, a := range changed {
		e.Log.WarnContext(ctx, "alert", "name", a.Name, "severity", a.Severity, "state", a.State, "labels", a.Labels, "value", a.Value, "summary", a.Summary)
	}
	if err := e.save(); err != nil {
		e.Log.ErrorContext(ctx, "failed to store the alerts for a restart", "err", err)
	}
	e.Notify(changed)
}

// evaluate compares samples with a rule, and returns the alerts to report.
func (e *Evaluator) evaluate(r Rule, samples []brig.Sample) (notified []brig.Alert) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now().UTC()
	failing := map[string]bool{}
	for _, s := range samples {
		if !r.isMet(s) {
			continue
		}
		key := keyOf(r.Name, s.Labels)
		failing[key] = true
		a := e.alerts[key]
		if a == nil || a.State == brig.AlertResolved {
			a = &alertState{Alert: brig.Alert{Name: r.Name, Labels: s.Labels, State: brig.AlertPending, Since: now}}
			e.alerts[key] = a
		}
		a.Severity, a.Value, a.Threshold = r.Severity, s.Value, r.Threshold
		a.Summary, a.Hint = r.fill(r.Summary, s.Value, s.Labels), r.fill(r.Hint, s.Value, s.Labels)
		if a.State == brig.AlertPending && now.Sub(a.Since) >= r.For {
			a.State = brig.AlertFiring
		}
		if a.State == brig.AlertFiring && now.Sub(a.notified) >= e.Repeat {
			a.notified = now
			notified = append(notified, a.Alert)
		}
	}
	for key, a := range e.alerts {
		if a.Name != r.Name || failing[key] {
			continue
		}
		switch a.State {
		case brig.AlertPending:
			delete(e.alerts, key)
		case brig.AlertFiring:
			a.State, a.Resolved = brig.AlertResolved, now
			notified = append(notified, a.Alert)
		}
	}
	return notified
}

// forget deletes alerts that were resolved long ago or no longer have a rule.
func (e *Evaluator) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	maps.DeleteFunc(e.alerts, func(_ string, a *alertState) bool {
		return a.State == brig.AlertResolved && now.Sub(a.Resolved) > keepResolved ||
			!slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Name == a.Name })
	})
}

// Alerts lists firing alerts first, then pending, then resolved alerts. In each
// group, critical alerts precede warnings.
func (e *Evaluator) Alerts() []brig.Alert {
	e.mu.Lock()
	defer e.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(e.alerts), func(a, b string) int {
		x, y := e.alerts[a], e.alerts[b]
		if d := rank(x.Alert) - rank(y.Alert); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	out := make([]brig.Alert, 0, len(keys))
	for _, k := range keys {
		a := e.alerts[k].Alert
		a.Labels = maps.Clone(a.Labels)
		out = append(out, a)
	}
	return out
}

func rank(a brig.Alert) int {
	n := map[brig.AlertState]int{brig.AlertFiring: 0, brig.AlertPending: 2, brig.AlertResolved: 4}[a.State]
	if a.Severity != brig.Critical {
		n++
	}
	return n
}

// keyOf returns the identity of an alert: its name and labels.
func keyOf(name string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\x00" + k + "\x00" + labels[k])
	}
	return b.String()
}
