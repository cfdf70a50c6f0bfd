package alert_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
)

// testEvaluator is an evaluator of one rule. The test sets its figure and clock.
type testEvaluator struct {
	*alert.Evaluator
	now          time.Time
	samples      []brig.Sample
	err          error
	notification []brig.AlertState
}

func newTestEvaluator(r alert.Rule, file string) *testEvaluator {
	b := &testEvaluator{now: time.Unix(1e9, 0)}
	b.Evaluator = alert.NewEvaluator(alert.Options{
		Rules: []alert.Rule{r}, File: file, Now: func() time.Time { return b.now }, Repeat: time.Hour,
		Figures: map[alert.Figure]alert.Source{"x": func(time.Duration) ([]brig.Sample, error) { return b.samples, b.err }},
		Notify: func(list []brig.Alert) {
			for _, a := range list {
				b.notification = append(b.notification, a.State)
			}
		},
	})
	return b
}

func (b *testEvaluator) evaluateAfter(t *testing.T, after time.Duration, v float64, count int64) brig.AlertState {
	t.Helper()
	b.now = b.now.Add(after)
	b.samples = []brig.Sample{{Labels: map[string]string{"provider": "p"}, Value: v, Count: count}}
	b.Step(t.Context())
	for _, a := range b.Alerts() {
		return a.State
	}
	return ""
}

// rule fires if a value measured over at least 10 items exceeds 5 for a minute.
var rule = alert.Rule{Name: "R", Severity: brig.Warning, Figure: "x", Threshold: 5, For: time.Minute, Least: 10, Summary: "{provider} has {value}"}

func TestAlertIsPendingThenFiringThenResolved(t *testing.T) {
	b := newTestEvaluator(rule, "")
	for i, c := range []struct {
		after time.Duration
		v     float64
		count int64
		want  brig.AlertState
	}{
		{0, 5, 10, ""},                               // not above the threshold
		{time.Second, 6, 9, ""},                      // too few items
		{time.Second, 6, 10, brig.AlertPending},      // not for long enough to fire
		{59 * time.Second, 6, 10, brig.AlertPending}, //
		{time.Second, 4, 10, ""},                     // cleared while pending
		{time.Second, 6, 10, brig.AlertPending},      // the time starts again
		{time.Minute, 7, 10, brig.AlertFiring},       //
		{time.Minute, 8, 10, brig.AlertFiring},       // not reported again
		{time.Hour, 8, 10, brig.AlertFiring},         // reported again after an hour
		{time.Second, 4, 10, brig.AlertResolved},     //
		{time.Second, 6, 10, brig.AlertPending},      // again
		{time.Minute, 6, 10, brig.AlertFiring},       //
		{time.Second, 6, 3, brig.AlertResolved},      // too few items to measure
		{time.Hour + time.Second, 1, 10, ""},         // no longer listed
	} {
		if got := b.evaluateAfter(t, c.after, c.v, c.count); got != c.want {
			t.Fatalf("step %d: %q, want %q", i, got, c.want)
		}
	}
	want := []brig.AlertState{brig.AlertFiring, brig.AlertFiring, brig.AlertResolved, brig.AlertFiring, brig.AlertResolved}
	if !slices.Equal(b.notification, want) {
		t.Errorf("told %v, want %v", b.notification, want)
	}
}

// TestUnknownFigureKeepsAlertState checks that alerts keep their state if a figure cannot be
// measured.
func TestUnknownFigureKeepsAlertState(t *testing.T) {
	b := newTestEvaluator(rule, "")
	b.evaluateAfter(t, 0, 6, 10)
	b.evaluateAfter(t, time.Minute, 6, 10)
	b.err = errors.New("the disk is on fire")
	if got := b.evaluateAfter(t, time.Minute, 1, 10); got != brig.AlertFiring {
		t.Errorf("it is %q", got)
	}
	b.err = nil
	if got := b.evaluateAfter(t, time.Minute, 1, 10); got != brig.AlertResolved {
		t.Errorf("it is %q", got)
	}
}

// TestAlertsSurviveRestart checks that a server reports the end of an alert
// that fired when the previous server stopped.
func TestAlertsSurviveRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.json")
	first := newTestEvaluator(rule, file)
	first.evaluateAfter(t, 0, 6, 10)
	first.evaluateAfter(t, time.Minute, 6, 10)
	next := newTestEvaluator(rule, file)
	if got := next.evaluateAfter(t, 2*time.Minute, 6, 10); got != brig.AlertFiring || len(next.notification) != 0 {
		t.Errorf("it is %q, and was told again: %v", got, next.notification)
	}
	if got := next.evaluateAfter(t, time.Second, 1, 10); got != brig.AlertResolved || !slices.Equal(next.notification, []brig.AlertState{brig.AlertResolved}) {
		t.Errorf("it is %q, told %v", got, next.notification)
	}
	if third := newTestEvaluator(rule, file); len(third.Alerts()) != 0 {
		t.Errorf("what has ended comes back: %+v", third.Alerts())
	}
	if err := os.WriteFile(file, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken := newTestEvaluator(rule, file); len(broken.Alerts()) != 0 {
		t.Error("a broken file has alerts")
	}
}

// TestRulesAreComplete checks that the table is complete: each row has the required
// fields, and thresholds and names match the requirements.
func TestRulesAreComplete(t *testing.T) {
	type wanted struct {
		severity  brig.Severity
		threshold float64
	}
	want := map[string]wanted{
		"BrigAvailability": {brig.Critical, 0.99}, "BrigErrorRate": {brig.Critical, 0.05}, "BrigSlowExecutions": {brig.Critical, 10},
		"BrigPoolExhausted": {brig.Critical, 1}, "BrigCostSpike": {brig.Warning, 2}, "BrigRateLimitNear": {brig.Warning, 0.8},
		"BrigMemoryHigh": {brig.Warning, 0.9}, "BrigSlowTail": {brig.Warning, 5}, "BrigBudgetSpent": {brig.Critical, 1},
		"BrigBudgetNear": {brig.Warning, 0.8}, "BrigProviderDown": {brig.Critical, 1},
	}
	for _, r := range alert.Rules() {
		if w, ok := want[r.Name]; !ok || w.severity != r.Severity || w.threshold != r.Threshold {
			t.Errorf("%s: %s at %v", r.Name, r.Severity, r.Threshold)
		}
		delete(want, r.Name)
		if r.Summary == "" || r.Hint == "" || r.Measure == "" || strings.Contains(r.Measure+r.Guard, "{window}") != (r.Window > 0) {
			t.Errorf("%s is not whole: %+v", r.Name, r)
		}
	}
	if len(want) > 0 {
		t.Errorf("no rules for %v", want)
	}
}
