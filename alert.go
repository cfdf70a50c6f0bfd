package brig

import "time"

// Severity is the severity of an alert.
type Severity string

// The severities of alerts.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

// AlertState is the state of an alert.
type AlertState string

// The states of alerts. The condition of a pending alert has not yet held long
// enough for the alert to fire.
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
	// Value is the last measured value, and Threshold is the limit that it is
	// compared with.
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
