package brig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Area is one aspect of a sandbox that a provider may enforce.
type Area string

// Areas of enforcement.
const (
	AreaIsolation Area = "isolation"  // separation of the guest from its host
	AreaMemory    Area = "memory"     // Limits.Memory
	AreaCPUs      Area = "cpus"       // Limits.CPUs
	AreaProcesses Area = "processes"  // Limits.Processes
	AreaOpenFiles Area = "open_files" // Limits.OpenFiles
	AreaDisk      Area = "disk"       // Limits.Disk
	AreaOutput    Area = "output"     // Limits.Output
	AreaTime      Area = "time"       // leases and timeouts
	AreaEgress    Area = "egress"     // outbound connections
	AreaSecrets   Area = "secrets"    // brokered secrets, whose values remain outside of the sandbox
	AreaWorkspace Area = "workspace"  // files that outlive a sandbox
)

// Areas lists every area.
var Areas = []Area{
	AreaIsolation, AreaMemory, AreaCPUs, AreaProcesses, AreaOpenFiles, AreaDisk, AreaOutput, AreaTime,
	AreaEgress, AreaSecrets, AreaWorkspace,
}

// Level is the degree to which an area is enforced.
type Level string

// Levels of enforcement, weakest first.
const (
	LevelNone     Level = "none"
	LevelGaps     Level = "gaps"     // enforced, with known gaps
	LevelBoundary Level = "boundary" // enforced by a kernel or a proxy, regardless of the guest
)

// Levels lists every level, the weakest first.
var Levels = []Level{LevelNone, LevelGaps, LevelBoundary}

// Meets reports whether l is at least want. An unknown level is lower than
// every known level.
func (l Level) Meets(want Level) bool { return slices.Index(Levels, l) >= slices.Index(Levels, want) }

// Enforcement is the enforcement level of one area, with the evidence.
type Enforcement struct {
	Level Level
	// How describes the enforcement mechanism.
	How string
	// Gaps are the cases that the mechanism does not cover. There are none at
	// LevelBoundary.
	Gaps []string `json:",omitzero"`
	// Help describes how to close the gaps.
	Help string `json:",omitzero"`
	// Evidence lists the observations that were made at the time At. Both are empty
	// if the level is only a claim of the provider.
	Evidence []string  `json:",omitzero"`
	At       time.Time `json:",omitzero"`
}

// AddEvidence adds an observation.
func (e *Enforcement) AddEvidence(format string, args ...any) {
	e.Evidence = append(slices.Clone(e.Evidence), fmt.Sprintf(format, args...))
}

// Lower adds a gap and lowers the level to l. It never raises the level.
func (e *Enforcement) Lower(l Level, format string, args ...any) {
	if gap := fmt.Sprintf(format, args...); !slices.Contains(e.Gaps, gap) {
		e.Gaps = append(slices.Clone(e.Gaps), gap)
	}
	if e.Level.Meets(l) {
		e.Level = l
	}
}

// Requirement is the minimum enforcement level of areas. Other areas may have
// any level.
type Requirement map[Area]Level

// Check returns an error for an unknown area or level.
func (r Requirement) Check(field string) error {
	for _, a := range slices.Sorted(maps.Keys(r)) {
		if !slices.Contains(Areas, a) {
			return InvalidField(field, "no area %q", Clip(string(a), 40)).WithHint("use one of: %v", Areas)
		}
		if !slices.Contains(Levels, r[a]) {
			return InvalidField(field+"."+string(a), "no level %q", Clip(string(r[a]), 40)).WithHint("use one of: %v", Levels)
		}
	}
	return nil
}

// With returns a requirement that is met only if both r and other are met.
func (r Requirement) With(other Requirement) Requirement {
	out := maps.Clone(other)
	for a, l := range r {
		if existing, ok := out[a]; !ok || !existing.Meets(l) {
			if out == nil {
				out = Requirement{}
			}
			out[a] = l
		}
	}
	return out
}

// UnmetError returns an error that lists every unmet level and how to meet it.
func (r Requirement) UnmetError(field, who string, have map[Area]Enforcement) error {
	var missing, help []string
	first := Area("")
	for _, a := range Areas { // in the order of Areas
		want, ok := r[a]
		actual, known := have[a]
		if !known {
			actual = Enforcement{Level: LevelNone, Gaps: []string{"nothing is said of it"}}
		}
		if !ok || actual.Level.Meets(want) {
			continue
		}
		if first == "" {
			first = a
		}
		missing = append(missing, fmt.Sprintf("%s is %s, and %s is required (%s)", a, actual.Level, want, strings.Join(actual.Gaps, "; ")))
		if actual.Help != "" && !slices.Contains(help, actual.Help) {
			help = append(help, actual.Help)
		}
	}
	if missing == nil {
		return nil
	}
	e := Errorf(FailedPrecondition, "%s does not enforce the requirements: %s", who, strings.Join(missing, "; "))
	e.Field = field + "." + string(first)
	return e.WithHint("%s", strings.Join(append(help, "or require less"), "; "))
}
