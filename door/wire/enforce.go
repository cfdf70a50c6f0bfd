package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// Enforcement says how far one area is enforced, and how that is known.
type Enforcement struct {
	Level    string    `json:"level" doc:"boundary (a kernel or a proxy does it, whatever the guest does), gaps (it is, with gaps that are named) or none"`
	How      string    `json:"how,omitempty" doc:"what enforces it"`
	Gaps     []string  `json:"gaps,omitempty" doc:"what it does not cover"`
	Help     string    `json:"help,omitempty" doc:"what would close the gaps"`
	Evidence []string  `json:"evidence,omitempty" doc:"what was seen of it"`
	At       time.Time `json:"at,omitzero" doc:"when somebody looked; without it, it is only claimed"`
}

// Capabilities says what can be enforced here.
type Capabilities struct {
	Provider  string                 `json:"provider"`
	Isolation string                 `json:"isolation" doc:"what stands between a sandbox and its host"`
	Uplinks   bool                   `json:"uplinks" doc:"whether sandboxes can connect to anything, where rules allow it"`
	Enforces  map[string]Enforcement `json:"enforces" nullable:"false" doc:"by area: isolation, memory, cpus, processes, open_files, disk, output, time, egress, secrets, workspace"`
}

// AttestRequest has no fields.
type AttestRequest struct{}

// FromEnforcement returns the form of what is enforced; nil for nothing known.
func FromEnforcement(m map[brig.Area]brig.Enforcement) map[string]Enforcement {
	if m == nil {
		return nil
	}
	out := map[string]Enforcement{}
	for a, e := range m {
		out[string(a)] = Enforcement{Level: string(e.Level), How: e.How, Gaps: e.Gaps, Help: e.Help, Evidence: e.Evidence, At: e.At}
	}
	return out
}

// ToEnforcement is FromEnforcement the other way.
func ToEnforcement(m map[string]Enforcement) map[brig.Area]brig.Enforcement {
	if m == nil {
		return nil
	}
	out := map[brig.Area]brig.Enforcement{}
	for a, e := range m {
		out[brig.Area(a)] = brig.Enforcement{Level: brig.Level(e.Level), How: e.How, Gaps: e.Gaps, Help: e.Help, Evidence: e.Evidence, At: e.At}
	}
	return out
}

// FromRequirement returns the form of what is required; nil for nothing.
func FromRequirement(r brig.Requirement) map[string]string {
	if len(r) == 0 {
		return nil
	}
	out := map[string]string{}
	for a, l := range r {
		out[string(a)] = string(l)
	}
	return out
}

// ToRequirement is FromRequirement the other way.
func ToRequirement(m map[string]string) brig.Requirement {
	if len(m) == 0 {
		return nil
	}
	out := brig.Requirement{}
	for a, l := range m {
		out[brig.Area(a)] = brig.Level(l)
	}
	return out
}

// FromCapabilities returns the form of c.
func FromCapabilities(c *brig.Capabilities) Capabilities {
	out := Capabilities{Provider: c.Name, Isolation: c.Isolation, Uplinks: c.Uplinks, Enforces: FromEnforcement(c.Enforces)}
	if out.Enforces == nil {
		out.Enforces = map[string]Enforcement{}
	}
	return out
}

// Noun returns what the form means.
func (c Capabilities) Noun() *brig.Capabilities {
	return &brig.Capabilities{Name: c.Provider, Isolation: c.Isolation, Uplinks: c.Uplinks, Enforces: ToEnforcement(c.Enforces)}
}
