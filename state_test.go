package brig_test

import (
	"testing"

	"github.com/brig-run/brig"
)

// TestStateTransitions checks for every pair of states that exactly the legal
// transitions are allowed.
func TestStateTransitions(t *testing.T) {
	legal := map[[2]brig.State]bool{
		{brig.Creating, brig.Running}: true, {brig.Creating, brig.Stopping}: true, {brig.Creating, brig.Paused}: true,
		{brig.Running, brig.Stopping}: true, {brig.Running, brig.Ended}: true,
		{brig.Stopping, brig.Ended}: true,
		{brig.Running, brig.Paused}: true, {brig.Paused, brig.Running}: true, {brig.Paused, brig.Ended}: true,
	}
	for _, from := range brig.States {
		for _, to := range brig.States {
			want := from == to || legal[[2]brig.State{from, to}]
			if err := from.CheckTransition(to); (err == nil) != want {
				t.Errorf("%s to %s: %v, want legal %t", from, to, err, want)
			} else if err != nil && brig.KindOf(err) != brig.FailedPrecondition {
				t.Errorf("%s to %s: kind %s", from, to, brig.KindOf(err))
			}
		}
	}
	if brig.Ended.IsLive() || brig.Paused.IsLive() || !brig.Creating.IsLive() {
		t.Error("Live is wrong")
	}
	if brig.Ended.IsActive() || !brig.Paused.IsActive() || !brig.Running.IsActive() {
		t.Error("IsActive is wrong")
	}
}
