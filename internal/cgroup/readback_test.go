package cgroup_test

import (
	"testing"

	"github.com/brig-run/brig/internal/cgroup"
)

func TestLimitsAreReadBack(t *testing.T) {
	want := cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, PIDs: 100}
	if got, err := newGroup(t, want).Limits(); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestUnlimitedGroupHasNoLimits(t *testing.T) {
	if got, err := newGroup(t, cgroup.Limits{}).Limits(); err != nil || got != (cgroup.Limits{}) {
		t.Errorf("%+v, %v; want no limit", got, err)
	}
}

func TestLimitsFailsAfterDestroy(t *testing.T) {
	g := newGroup(t, cgroup.Limits{})
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Limits(); err == nil {
		t.Errorf("a destroyed group has limits: %+v", got)
	}
}
