package brig_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestLevelMeets(t *testing.T) {
	for i, a := range brig.Levels {
		for j, b := range brig.Levels {
			if got := a.Meets(b); got != (i >= j) {
				t.Errorf("%s meets %s: %v", a, b, got)
			}
		}
	}
	for _, wrong := range []brig.Level{"", "Boundary", "all"} {
		if wrong.Meets(brig.LevelNone) {
			t.Errorf("%q is no level and meets one", wrong)
		}
	}
}

// TestLowerEnforcement checks that Lower lowers a level and never raises it.
func TestLowerEnforcement(t *testing.T) {
	for _, from := range brig.Levels {
		for _, to := range brig.Levels {
			e := brig.Enforcement{Level: from}
			e.Lower(to, "it leaks")
			e.Lower(to, "it leaks")
			want := to
			if to.Meets(from) {
				want = from
			}
			if e.Level != want || !reflect.DeepEqual(e.Gaps, []string{"it leaks"}) {
				t.Errorf("%s lowered to %s is %+v, want %s", from, to, e, want)
			}
		}
	}
}

// TestEnforcementCopiesAreIndependent checks that appending to a copy does not change the
// original.
func TestEnforcementCopiesAreIndependent(t *testing.T) {
	e := brig.Enforcement{Evidence: make([]string, 0, 4), Gaps: make([]string, 0, 4)}
	a, b := e, e
	a.AddEvidence("a")
	b.AddEvidence("b")
	a.Lower(brig.LevelNone, "a")
	b.Lower(brig.LevelNone, "b")
	if a.Evidence[0] != "a" || a.Gaps[0] != "a" || b.Evidence[0] != "b" || b.Gaps[0] != "b" {
		t.Errorf("%+v, %+v", a, b)
	}
}

func TestRequirementCheck(t *testing.T) {
	for _, c := range []struct {
		r     brig.Requirement
		field string
	}{
		{nil, ""},
		{brig.Requirement{brig.AreaMemory: brig.LevelBoundary, brig.AreaDisk: brig.LevelNone}, ""},
		{brig.Requirement{"memori": brig.LevelGaps}, "require"},
		{brig.Requirement{brig.AreaMemory: "strong"}, "require.memory"},
		{brig.Requirement{brig.AreaMemory: ""}, "require.memory"},
	} {
		err := c.r.Check("require")
		if (err == nil) != (c.field == "") || err != nil && (brig.AsError(err).Field != c.field || brig.AsError(err).Hint == "") {
			t.Errorf("%v: %v, want the field %q", c.r, err, c.field)
		}
	}
}

func TestRequirementWith(t *testing.T) {
	a := brig.Requirement{brig.AreaMemory: brig.LevelBoundary, brig.AreaDisk: brig.LevelGaps}
	b := brig.Requirement{brig.AreaMemory: brig.LevelGaps, brig.AreaDisk: brig.LevelBoundary, brig.AreaTime: brig.LevelNone}
	want := brig.Requirement{brig.AreaMemory: brig.LevelBoundary, brig.AreaDisk: brig.LevelBoundary, brig.AreaTime: brig.LevelNone}
	for _, got := range []brig.Requirement{a.With(b), b.With(a), want.With(nil), brig.Requirement(nil).With(want)} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if len(brig.Requirement(nil).With(nil)) != 0 || a[brig.AreaDisk] != brig.LevelGaps {
		t.Errorf("with nothing it is something, or %v was changed", a)
	}
}

// TestUnmetRequirement checks that the error lists all unmet areas in order, each with its help
// text.
func TestUnmetRequirement(t *testing.T) {
	have := map[brig.Area]brig.Enforcement{
		brig.AreaMemory: {Level: brig.LevelGaps, Gaps: []string{"it is measured"}, Help: "be root"},
		brig.AreaCPUs:   {Level: brig.LevelGaps, Help: "be root"},
		brig.AreaDisk:   {Level: brig.LevelBoundary},
	}
	if err := (brig.Requirement{brig.AreaMemory: brig.LevelGaps, brig.AreaDisk: brig.LevelBoundary}).UnmetError("require", "it", have); err != nil {
		t.Errorf("what is met is refused: %v", err)
	}
	err := brig.AsError(brig.Requirement{
		brig.AreaCPUs: brig.LevelBoundary, brig.AreaMemory: brig.LevelBoundary, brig.AreaDisk: brig.LevelBoundary, brig.AreaEgress: brig.LevelGaps,
	}.UnmetError("require", "it", have))
	if err == nil || err.Kind != brig.FailedPrecondition || err.Field != "require.memory" {
		t.Fatalf("%+v", err)
	}
	memory, cpus, egress := strings.Index(err.Message, "memory is gaps"), strings.Index(err.Message, "cpus is gaps"), strings.Index(err.Message, "egress is none")
	if memory < 0 || cpus < memory || egress < cpus || strings.Contains(err.Message, "disk") || !strings.Contains(err.Message, "it is measured") {
		t.Errorf("it says %q", err.Message)
	}
	if err.Hint != "be root; or require less" {
		t.Errorf("the hint is %q", err.Hint)
	}
}
