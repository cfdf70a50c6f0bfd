package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// Enforcement is the level of enforcement in one area, with its evidence.
type Enforcement struct {
	Level    string    `json:"level" doc:"boundary (enforced by a kernel or the proxy, whatever the sandbox does), gaps (enforced with the named gaps) or none" enum:"none,gaps,boundary"`
	How      string    `json:"how,omitempty" doc:"the mechanism"`
	Gaps     []string  `json:"gaps,omitempty" doc:"the gaps"`
	Help     string    `json:"help,omitempty" doc:"how to close the gaps"`
	Evidence []string  `json:"evidence,omitempty" doc:"the evidence"`
	At       time.Time `json:"at,omitzero" doc:"time of the verification; without it, the level is only the provider's claim"`
}

// Capabilities describes the enforcement that is available on this server.
type Capabilities struct {
	Provider  string                 `json:"provider"`
	Isolation string                 `json:"isolation" doc:"the isolation between a sandbox and its host"`
	Uplinks   bool                   `json:"uplinks" doc:"whether sandboxes can connect to other hosts, if egress rules allow it"`
	Enforces  map[string]Enforcement `json:"enforces" nullable:"false" doc:"by area: isolation, memory, cpus, processes, open_files, disk, output, time, egress, secrets, workspace"`
}

// AttestRequest is the request to attest a sandbox. It has no fields.
type AttestRequest struct{}

// FromEnforcement converts m to its wire type. It returns nil for nil.
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

// ToEnforcement is the inverse of FromEnforcement.
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

// FromRequirement converts r to its wire type. It returns nil if r is empty.
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

// ToRequirement is the inverse of FromRequirement.
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

// FromCapabilities converts c to its wire type.
func FromCapabilities(c *brig.Capabilities) Capabilities {
	out := Capabilities{Provider: c.Name, Isolation: c.Isolation, Uplinks: c.Uplinks, Enforces: FromEnforcement(c.Enforces)}
	if out.Enforces == nil {
		out.Enforces = map[string]Enforcement{}
	}
	return out
}

// Domain converts c to its domain type.
func (c Capabilities) Domain() *brig.Capabilities {
	return &brig.Capabilities{Name: c.Provider, Isolation: c.Isolation, Uplinks: c.Uplinks, Enforces: ToEnforcement(c.Enforces)}
}
