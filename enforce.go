package brig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Area is one thing that is enforced, or not.
type Area string

// The areas.
const (
	AreaIsolation Area = "isolation"  // between the guest and its host
	AreaMemory    Area = "memory"     // Limits.Memory
	AreaCPUs      Area = "cpus"       // Limits.CPUs
	AreaProcesses Area = "processes"  // Limits.Processes
	AreaOpenFiles Area = "open_files" // Limits.OpenFiles
	AreaDisk      Area = "disk"       // Limits.Disk
	AreaOutput    Area = "output"     // Limits.Output
	AreaTime      Area = "time"       // leases and timeouts
	AreaEgress    Area = "egress"     // where it may connect to
	AreaSecrets   Area = "secrets"    // brokered ones, whose values stay outside
	AreaWorkspace Area = "workspace"  // files that outlive a sandbox
)

// Areas lists every area.
var Areas = []Area{
	AreaIsolation, AreaMemory, AreaCPUs, AreaProcesses, AreaOpenFiles, AreaDisk, AreaOutput, AreaTime,
	AreaEgress, AreaSecrets, AreaWorkspace,
}

// Level says how far an area is enforced.
type Level string

// The levels, the weakest first.
const (
	LevelNone     Level = "none"
	LevelGaps     Level = "gaps"     // it is, with gaps that are named
	LevelBoundary Level = "boundary" // a kernel or a proxy does it, whatever the guest does
)

// Levels lists every level, the weakest first.
var Levels = []Level{LevelNone, LevelGaps, LevelBoundary}

// Meets reports whether l is at least want. What is no level is below all.
func (l Level) Meets(want Level) bool { return slices.Index(Levels, l) >= slices.Index(Levels, want) }

// Enforcement says how far one area is enforced, and how that is known.
type Enforcement struct {
	Level Level
	// How is what enforces it.
	How string
	// Gaps are what it does not cover; a boundary has none.
	Gaps []string `json:",omitzero"`
	// Help is what would close them.
	Help string `json:",omitzero"`
	// Evidence is what was seen of it, and At when. What nobody has looked at
	// has neither: it is only what a provider says of itself.
	Evidence []string  `json:",omitzero"`
	At       time.Time `json:",omitzero"`
}

// Saw adds what was seen.
func (e *Enforcement) Saw(format string, args ...any) {
	e.Evidence = append(slices.Clone(e.Evidence), fmt.Sprintf(format, args...))
}

// Lower names a gap, and lowers the level to l. It never raises one.
func (e *Enforcement) Lower(l Level, format string, args ...any) {
	if gap := fmt.Sprintf(format, args...); !slices.Contains(e.Gaps, gap) {
		e.Gaps = append(slices.Clone(e.Gaps), gap)
	}
	if e.Level.Meets(l) {
		e.Level = l
	}
}

// Requirement is the least that areas must be enforced with. Areas that it
// does not name may be as they are.
type Requirement map[Area]Level

// Check refuses areas and levels that there are none of.
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

// With returns a requirement that is met when both are.
func (r Requirement) With(other Requirement) Requirement {
	out := maps.Clone(other)
	for a, l := range r {
		if has, ok := out[a]; !ok || !has.Meets(l) {
			if out == nil {
				out = Requirement{}
			}
			out[a] = l
		}
	}
	return out
}

// Unmet returns an error that names everything that is required and not so,
// and what would help.
func (r Requirement) Unmet(field, who string, have map[Area]Enforcement) error {
	var missing, help []string
	first := Area("")
	for _, a := range Areas { // in their order
		want, ok := r[a]
		is, known := have[a]
		if !known {
			is = Enforcement{Level: LevelNone, Gaps: []string{"nothing is said of it"}}
		}
		if !ok || is.Level.Meets(want) {
			continue
		}
		if first == "" {
			first = a
		}
		missing = append(missing, fmt.Sprintf("%s is %s, and %s is required (%s)", a, is.Level, want, strings.Join(is.Gaps, "; ")))
		if is.Help != "" && !slices.Contains(help, is.Help) {
			help = append(help, is.Help)
		}
	}
	if missing == nil {
		return nil
	}
	e := Errorf(FailedPrecondition, "%s does not enforce what is required: %s", who, strings.Join(missing, "; "))
	e.Field = field + "." + string(first)
	return e.WithHint("%s", strings.Join(append(help, "or require less"), "; "))
}
