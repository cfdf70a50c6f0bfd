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

// Source measures a figure, over a window of time if it has one.
type Source func(window time.Duration) ([]brig.Sample, error)

// Options are what an Evaluator is made of.
type Options struct {
	Rules []Rule
	// Figures measure. A rule whose figure has no source is never looked at.
	Figures map[Figure]Source
	// Told is called with alerts that have begun to fire or have ended, and now
	// and then with those that go on.
	Told func([]brig.Alert)
	// Every is how often the rules are looked at. Default 15 s.
	Every time.Duration
	// Repeat is how often is told again of what goes on. Default 4 h.
	Repeat time.Duration
	// File keeps what fires over a restart, so that its end is told. Default
	// nowhere.
	File string
	Now  func() time.Time // default time.Now
	Log  *slog.Logger     // default none
}

// Evaluator looks at the rules again and again.
type Evaluator struct {
	Options

	mu     sync.Mutex // guards the field below
	alerts map[string]*standing
}

// standing is how an alert stands.
type standing struct {
	brig.Alert
	told time.Time // when its firing was last told
}

// keepResolved is for how long what has ended is listed.
const keepResolved = time.Hour

// NewEvaluator returns an Evaluator, which Run sets going.
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
	if o.Told == nil {
		o.Told = func([]brig.Alert) {}
	}
	e := &Evaluator{Options: o, alerts: map[string]*standing{}}
	e.load()
	return e
}

// Run looks at the rules until ctx ends.
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

// Step looks at all rules once.
func (e *Evaluator) Step(ctx context.Context) {
	var changed []brig.Alert
	for _, r := range e.Rules {
		measure := e.Figures[r.Figure]
		if measure == nil {
			continue
		}
		samples, err := measure(r.Window)
		if err != nil {
			// What is not known has not changed.
			e.Log.WarnContext(ctx, "measure for an alert", "rule", r.Name, "err", err)
			continue
		}
		changed = append(changed, e.judge(r, samples)...)
	}
	e.forget()
	if len(changed) == 0 {
		return
	}
	for _, a := range changed {
		e.Log.WarnContext(ctx, "alert", "name", a.Name, "severity", a.Severity, "state", a.State, "labels", a.Labels, "value", a.Value, "summary", a.Summary)
	}
	if err := e.save(); err != nil {
		e.Log.ErrorContext(ctx, "keep alerts over a restart", "err", err)
	}
	e.Told(changed)
}

// judge compares what was measured with a rule, and returns what is to be told.
func (e *Evaluator) judge(r Rule, samples []brig.Sample) (told []brig.Alert) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now().UTC()
	wrong := map[string]bool{}
	for _, s := range samples {
		if !r.holds(s) {
			continue
		}
		key := keyOf(r.Name, s.Labels)
		wrong[key] = true
		a := e.alerts[key]
		if a == nil || a.State == brig.AlertResolved {
			a = &standing{Alert: brig.Alert{Name: r.Name, Labels: s.Labels, State: brig.AlertPending, Since: now}}
			e.alerts[key] = a
		}
		a.Severity, a.Value, a.Threshold = r.Severity, s.Value, r.Threshold
		a.Summary, a.Hint = r.fill(r.Summary, s.Value, s.Labels), r.fill(r.Hint, s.Value, s.Labels)
		if a.State == brig.AlertPending && now.Sub(a.Since) >= r.For {
			a.State = brig.AlertFiring
		}
		if a.State == brig.AlertFiring && now.Sub(a.told) >= e.Repeat {
			a.told = now
			told = append(told, a.Alert)
		}
	}
	for key, a := range e.alerts {
		if a.Name != r.Name || wrong[key] {
			continue
		}
		switch a.State {
		case brig.AlertPending:
			delete(e.alerts, key)
		case brig.AlertFiring:
			a.State, a.Resolved = brig.AlertResolved, now
			told = append(told, a.Alert)
		}
	}
	return told
}

// forget drops what ended long ago, and what no rule is about any more.
func (e *Evaluator) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	maps.DeleteFunc(e.alerts, func(_ string, a *standing) bool {
		return a.State == brig.AlertResolved && now.Sub(a.Resolved) > keepResolved ||
			!slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Name == a.Name })
	})
}

// Alerts lists them: what fires, what is pending, what has ended; the critical
// ones before warnings.
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

// keyOf tells an alert apart.
func keyOf(name string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\x00" + k + "\x00" + labels[k])
	}
	return b.String()
}
