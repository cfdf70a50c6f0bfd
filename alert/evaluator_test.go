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

// bench is an evaluator of one rule, whose figure and clock a test sets.
type bench struct {
	*alert.Evaluator
	now     time.Time
	samples []brig.Sample
	err     error
	told    []brig.AlertState
}

func newBench(r alert.Rule, file string) *bench {
	b := &bench{now: time.Unix(1e9, 0)}
	b.Evaluator = alert.NewEvaluator(alert.Options{
		Rules: []alert.Rule{r}, File: file, Now: func() time.Time { return b.now }, Repeat: time.Hour,
		Figures: map[alert.Figure]alert.Source{"x": func(time.Duration) ([]brig.Sample, error) { return b.samples, b.err }},
		Told: func(list []brig.Alert) {
			for _, a := range list {
				b.told = append(b.told, a.State)
			}
		},
	})
	return b
}

func (b *bench) at(t *testing.T, after time.Duration, v float64, count int64) brig.AlertState {
	t.Helper()
	b.now = b.now.Add(after)
	b.samples = []brig.Sample{{Labels: map[string]string{"provider": "p"}, Value: v, Count: count}}
	b.Step(t.Context())
	for _, a := range b.Alerts() {
		return a.State
	}
	return ""
}

// rule fires above 5, of at least 10 things, when that holds for a minute.
var rule = alert.Rule{Name: "R", Severity: brig.Warning, Figure: "x", Threshold: 5, For: time.Minute, Least: 10, Summary: "{provider} has {value}"}

func TestAlertsLast(t *testing.T) {
	b := newBench(rule, "")
	for i, c := range []struct {
		after time.Duration
		v     float64
		count int64
		want  brig.AlertState
	}{
		{0, 5, 10, ""},                               // not over it
		{time.Second, 6, 9, ""},                      // of too few
		{time.Second, 6, 10, brig.AlertPending},      // not for long enough
		{59 * time.Second, 6, 10, brig.AlertPending}, //
		{time.Second, 4, 10, ""},                     // it was nothing
		{time.Second, 6, 10, brig.AlertPending},      // from the beginning
		{time.Minute, 7, 10, brig.AlertFiring},       //
		{time.Minute, 8, 10, brig.AlertFiring},       // told once
		{time.Hour, 8, 10, brig.AlertFiring},         // and once an hour
		{time.Second, 4, 10, brig.AlertResolved},     //
		{time.Second, 6, 10, brig.AlertPending},      // again
		{time.Minute, 6, 10, brig.AlertFiring},       //
		{time.Second, 6, 3, brig.AlertResolved},      // nothing is known any more
		{time.Hour + time.Second, 1, 10, ""},         // long ago
	} {
		if got := b.at(t, c.after, c.v, c.count); got != c.want {
			t.Fatalf("step %d: %q, want %q", i, got, c.want)
		}
	}
	want := []brig.AlertState{brig.AlertFiring, brig.AlertFiring, brig.AlertResolved, brig.AlertFiring, brig.AlertResolved}
	if !slices.Equal(b.told, want) {
		t.Errorf("told %v, want %v", b.told, want)
	}
}

// A figure that cannot be had changes nothing.
func TestUnknownFigure(t *testing.T) {
	b := newBench(rule, "")
	b.at(t, 0, 6, 10)
	b.at(t, time.Minute, 6, 10)
	b.err = errors.New("the disk is on fire")
	if got := b.at(t, time.Minute, 1, 10); got != brig.AlertFiring {
		t.Errorf("it is %q", got)
	}
	b.err = nil
	if got := b.at(t, time.Minute, 1, 10); got != brig.AlertResolved {
		t.Errorf("it is %q", got)
	}
}

// What fires when a server ends is told to have ended by the next.
func TestAlertsOutliveTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "alerts.json")
	first := newBench(rule, file)
	first.at(t, 0, 6, 10)
	first.at(t, time.Minute, 6, 10)
	next := newBench(rule, file)
	if got := next.at(t, 2*time.Minute, 6, 10); got != brig.AlertFiring || len(next.told) != 0 {
		t.Errorf("it is %q, and was told again: %v", got, next.told)
	}
	if got := next.at(t, time.Second, 1, 10); got != brig.AlertResolved || !slices.Equal(next.told, []brig.AlertState{brig.AlertResolved}) {
		t.Errorf("it is %q, told %v", got, next.told)
	}
	if third := newBench(rule, file); len(third.Alerts()) != 0 {
		t.Errorf("what has ended comes back: %+v", third.Alerts())
	}
	if err := os.WriteFile(file, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken := newBench(rule, file); len(broken.Alerts()) != 0 {
		t.Error("a broken file has alerts")
	}
}

// The table is whole: what each row needs is there, and thresholds and names
// are those that the requirements have.
func TestRules(t *testing.T) {
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
