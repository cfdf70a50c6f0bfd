package alert

import (
	"fmt"
	"strings"
	"time"
)

// Format formats a value for people.
func (u Unit) Format(v float64) string {
	switch u {
	case Share:
		return fmt.Sprintf("%.3g %%", 100*v)
	case Seconds:
		return fmt.Sprintf("%.3g s", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// fill replaces the placeholders in braces with the value and labels.
func (r Rule) fill(text string, v float64, labels map[string]string) string {
	pairs := []string{"{value}", r.Unit.Format(v), "{threshold}", r.Unit.Format(r.Threshold)}
	for k, l := range labels {
		pairs = append(pairs, "{"+k+"}", l)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// labelsOf returns the labels that a rule's text uses.
func labelsOf(text string) (out []string) {
	for _, l := range []string{"provider", "region", "tenant"} {
		if strings.Contains(text, "{"+l+"}") {
			out = append(out, l)
		}
	}
	return out
}

// fillQuery replaces the placeholders of a query with the rule's values.
func (r Rule) fillQuery(q string) string {
	return strings.NewReplacer("{window}", formatDuration(r.Window), "{least}", fmt.Sprint(r.Least)).Replace(q)
}

// Expr returns the whole condition in PromQL.
func (r Rule) Expr() string {
	op := ">"
	if r.Under {
		op = "<"
	}
	expr := fmt.Sprintf("(%s) %s %g", r.fillQuery(r.Measure), op, r.Threshold)
	if r.Guard != "" {
		expr += " and " + r.fillQuery(r.Guard)
	}
	return expr
}

// formatDuration formats a duration as Prometheus does: 90s, 5m, 1h.
func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
