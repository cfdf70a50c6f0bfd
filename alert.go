package brig

import "time"

// Severity is how severe an alert is.
type Severity string

// The severities of alerts.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

// AlertState is the state of an alert.
type AlertState string

// The states of alerts. A pending alert does not fire yet: its condition has
// not held for long enough.
const (
	AlertPending  AlertState = "pending"
	AlertFiring   AlertState = "firing"
	AlertResolved AlertState = "resolved"
)

// Alert is a condition that holds now or has held in the past.
type Alert struct {
	Name     string
	Severity Severity
	State    AlertState
	// Labels distinguish alerts of the same name, for example by provider or
	// tenant.
	Labels map[string]string `json:",omitempty"`
	// Value is the last measurement, Threshold its limit.
	Value, Threshold float64
	Summary, Hint    string
	Since            time.Time // when the condition began
	Resolved         time.Time `json:",omitzero"` // when it ended
}

// Sample is one measured value.
type Sample struct {
	// Labels distinguish samples of the same kind.
	Labels map[string]string
	Value  float64
	// Count is the number of values in the sample. An average of few values is
	// not significant.
	Count int64
}
