package brig

import "time"

// Severity says how bad an alert is.
type Severity string

// How bad alerts are.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

// AlertState says how far an alert is.
type AlertState string

// The states of alerts. What is pending has not lasted long enough yet.
const (
	AlertPending  AlertState = "pending"
	AlertFiring   AlertState = "firing"
	AlertResolved AlertState = "resolved"
)

// Alert is one condition that holds, or has held.
type Alert struct {
	Name     string
	Severity Severity
	State    AlertState
	// Labels tell it apart from others of its name: the provider, the tenant.
	Labels map[string]string `json:",omitempty"`
	// Value is what was measured last, Threshold what it must not pass.
	Value, Threshold float64
	Summary, Hint    string
	Since            time.Time // since when it holds
	Resolved         time.Time `json:",omitzero"` // when it ended
}

// Sample is one measured value.
type Sample struct {
	// Labels tell it apart from others of its kind.
	Labels map[string]string
	Value  float64
	// Count is of how many things it is the measure; an average of few says
	// little.
	Count int64
}
