package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// Alert is one condition that holds.
type Alert struct {
	Name      string            `json:"name"`
	Severity  string            `json:"severity" doc:"critical or warning"`
	State     string            `json:"state" doc:"pending while it has not lasted long enough, then firing; resolved for an hour after its end"`
	Labels    map[string]string `json:"labels,omitempty" doc:"what tells it apart from others of its name: the provider, the tenant"`
	Value     float64           `json:"value" doc:"what was measured last"`
	Threshold float64           `json:"threshold"`
	Summary   string            `json:"summary"`
	Hint      string            `json:"hint,omitempty"`
	Since     time.Time         `json:"since"`
	Resolved  time.Time         `json:"resolved,omitzero"`
}

// Alerts lists alerts.
type Alerts struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
}

// FromAlerts writes alerts.
func FromAlerts(list []brig.Alert) Alerts {
	out := Alerts{Alerts: []Alert{}}
	for _, a := range list {
		out.Alerts = append(out.Alerts, Alert{
			Name: a.Name, Severity: string(a.Severity), State: string(a.State), Labels: a.Labels, Value: a.Value,
			Threshold: a.Threshold, Summary: a.Summary, Hint: a.Hint, Since: a.Since, Resolved: a.Resolved,
		})
	}
	return out
}

// Noun returns the alerts.
func (l Alerts) Noun() (out []brig.Alert) {
	for _, a := range l.Alerts {
		out = append(out, brig.Alert{
			Name: a.Name, Severity: brig.Severity(a.Severity), State: brig.AlertState(a.State), Labels: a.Labels, Value: a.Value,
			Threshold: a.Threshold, Summary: a.Summary, Hint: a.Hint, Since: a.Since, Resolved: a.Resolved,
		})
	}
	return out
}
