package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/testenv"
)

// TestForkCrash crashes the server or the shim at every failpoint of a fork. The next server must
// find the original running with its variables, unless its shim was killed, and only working
// copies. No save and no other resources may remain on the host. At small size, the test uses a
// share of the failpoints.
//
//suite:part crash waits
func TestForkCrash(t *testing.T) {
	c := startCrashingServer(t, "pool: {size: -1}\n")
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		area, _, _ := strings.Cut(p.Name, ".")
		return area != "fork" && area != "save" && area != "park" && p.Name != "pause.detached" && p.Name != "pause.saved"
	})
	if len(points) < 15 {
		t.Errorf("%d points, want all of fork, save and park, and two of pause", len(points))
	}
	for _, p := range testenv.Share(t, points, 4) {
		t.Run(p.Name, func(t *testing.T) { c.crashFork(t, p.Name, false) })
	}
	for _, p := range testenv.Share(t, []string{"fork.restored", "fork.running", "fork.recorded", "fork.removed"}, 1) {
		t.Run("files/"+p, func(t *testing.T) { c.crashFork(t, p, true) })
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
}

// crashFork crashes a process at one failpoint. If filesOnly is set, the original is paused with
// its files only, and stays paused.
func (c *crashingServer) crashFork(t *testing.T, point string, filesOnly bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	svc, origin, cx := c.withVariable(t, ctx, !strings.HasPrefix(point, "park."))
	if filesOnly {
		if _, err := svc.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.arm(point + "=crash")
	o := brig.ForkSpec{Count: 2}
	if point == "fork.paused" {
		o = brig.ForkSpec{Name: "base", Paused: true}
	}
	_, _ = svc.Fork(ctx, "one", o) // the server or the shim crashes
	svc = c.restart(t, point)
	page, err := svc.List(ctx, brig.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, box := range page.Sandboxes {
		found = found || box.ID == origin.ID
		shimDied := strings.HasPrefix(point, "save.") && point != "save.stored" && box.ID == origin.ID
		switch {
		case shimDied && box.State == brig.Ended && box.Exit.Reason == brig.Crashed:
		case box.State != brig.Running && (!filesOnly || box.ID != origin.ID || box.State != brig.Paused):
			t.Errorf("%s is %s, %+v", box.Spec.Name, box.State, box.Exit)
		default:
			wantState(t, ctx, svc, box.Spec.Name, cx.ID, filesOnly)
		}
		if err := svc.Remove(ctx, box.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the next server finds %d sandboxes", len(page.Sandboxes))
	if !found {
		t.Error("the next server does not know the original")
	}
	if remaining, _ := filepath.Glob(filepath.Join(c.dir, "saves", "*")); len(remaining) > 0 {
		t.Errorf("saves are left: %v", remaining)
	}
}
