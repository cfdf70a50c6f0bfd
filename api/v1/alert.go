package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// Alert is one active alert.
type Alert struct {
	Name      string            `json:"name"`
	Severity  string            `json:"severity" doc:"critical or warning"`
	State     string            `json:"state" doc:"pending until it has lasted long enough, then firing; resolved for an hour after its end"`
	Labels    map[string]string `json:"labels,omitempty" doc:"labels that distinguish alerts of one name: provider, tenant"`
	Value     float64           `json:"value" doc:"the last measured value"`
	Threshold float64           `json:"threshold"`
	Summary   string            `json:"summary"`
	Hint      string            `json:"hint,omitempty"`
	Since     time.Time         `json:"since"`
	Resolved  time.Time         `json:"resolved,omitzero"`
}

// Alerts is a list of alerts.
type Alerts struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
}

// FromAlerts converts list to its wire type.
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

// Domain converts l to domain types.
func (l Alerts) Domain() (out []brig.Alert) {
	for _, a := range l.Alerts {
		out = append(out, brig.Alert{
			Name: a.Name, Severity: brig.Severity(a.Severity), State: brig.AlertState(a.State), Labels: a.Labels, Value: a.Value,
			Threshold: a.Threshold, Summary: a.Summary, Hint: a.Hint, Since: a.Since, Resolved: a.Resolved,
		})
	}
	return out
}
