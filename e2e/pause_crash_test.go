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

// isPausePoint reports whether a failpoint is reached only during the pause, packing or resume of
// a sandbox.
func isPausePoint(name string) bool {
	area, _, _ := strings.Cut(name, ".")
	return area == "pack" || area == "park" || area == "pause" || area == "save" || area == "resume"
}

// TestPauseCrash crashes the server or the shim at every failpoint of a pause and of a resume.
// The next server must find the sandbox running or paused, with its variables, unless the shim
// was killed before the save was complete. No other resources may remain on the host. At small
// size, the test uses a share of the failpoints.
//
//suite:part crash waits
func TestPauseCrash(t *testing.T) {
	c := startCrashingServer(t, "pool: {size: -1}\npause: {pack_after: 200ms}\n")
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool { return !isPausePoint(p.Name) })
	if len(points) < 20 {
		t.Errorf("%d points, want all of pause, save, pack and resume", len(points))
	}
	points = slices.DeleteFunc(points, func(p failpoint.Point) bool { return p.Name == "resume.booted" })
	for _, p := range testenv.Share(t, points, 5) {
		t.Run(p.Name, func(t *testing.T) { c.crashPause(t, p.Name, brig.PauseOptions{}) })
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
}

// TestCrashDuringFilesOnlyPause is like TestPauseCrash, but for pauses that keep only the files.
// The sandbox must still have its file.
//
//suite:part crash
func TestCrashDuringFilesOnlyPause(t *testing.T) {
	c := startCrashingServer(t, "pool: {size: -1}\npause: {pack_after: 200ms}\n")
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		return !isPausePoint(p.Name) || strings.HasPrefix(p.Name, "park.") // such a pause does not park interpreters
	})
	for _, p := range testenv.Share(t, points, 3) {
		t.Run(p.Name, func(t *testing.T) { c.crashPause(t, p.Name, brig.PauseOptions{FilesOnly: true}) })
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
}

// withVariable creates a sandbox with a context in which x is 41. Unless the sandbox is pausable,
// its interpreter is parked before a save.
func (c *crashingServer) withVariable(t *testing.T, ctx context.Context, pausable bool) (brig.Service, *brig.Sandbox, *brig.CodeContext) {
	c.clearMarks(t)
	c.srv.t = t
	svc := c.srv.client()
	box, err := svc.Create(ctx, brig.Spec{Name: "one", Pausable: pausable, TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cx, err := svc.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, svc, "one", cx.ID, "x = 41\nwith open('/workspace/x', 'w') as f: f.write('41')")
	return svc, box, cx
}

// restart waits until a process has crashed at a failpoint, and starts the next server.
func (c *crashingServer) restart(t *testing.T, point string) brig.Service {
	if !c.hasReached(point, 2*promptTimeout) {
		t.Errorf("no process reached %s: %s", point, c.srv.errs)
	}
	c.arm("")
	c.srv.kill()
	c.launch()
	c.srv.t = t
	c.srv.await()
	return c.srv.client()
}

// wantState fails the test unless a sandbox has the state that withVariable created: the variable
// or, if filesOnly is set, only the file.
func wantState(t *testing.T, ctx context.Context, svc brig.Service, name, contextID string, filesOnly bool) {
	t.Helper()
	if filesOnly {
		if got := shellOut(t, ctx, svc, name, "cat /workspace/x"); got != "41" {
			t.Errorf("the file of %s contains %q", name, got)
		}
		return
	}
	if got := runCell(t, ctx, svc, name, contextID, "print(x + 1)"); got != "42" {
		t.Errorf("the context of %s printed %q", name, got)
	}
}

// TestSandboxIsPausedAfterLateSave verifies that a sandbox becomes paused even if no call waits
// for the save, because the server was killed during the save or the shim was killed before its
// response.
//
//suite:part crash full
func TestSandboxIsPausedAfterLateSave(t *testing.T) {
	c := startCrashingServer(t, "pool: {size: -1}\n")
	for point, action := range map[string]string{"save.written": "sleep(10s)", "save.sealed": "crash"} {
		t.Run(point, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*promptTimeout)
			defer cancel()
			svc, box, cx := c.withVariable(t, ctx, true)
			c.arm(point + "=" + action)
			paused := make(chan struct{})
			go func() {
				defer close(paused)
				_, _ = svc.Pause(ctx, "one", brig.PauseOptions{})
			}()
			if action == "crash" {
				<-paused
				c.arm("")
			} else {
				svc = c.restart(t, point) // while the shim still saves
				<-paused
			}
			for {
				now, err := svc.Get(ctx, "one")
				if err != nil {
					t.Fatalf("it is never paused: %v", err)
				}
				if now.State == brig.Paused {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			wantPausedOnHost(t, c.dir, box.ID)
			wantState(t, ctx, svc, "one", cx.ID, false)
			if err := svc.Remove(ctx, "one"); err != nil {
				t.Error(err)
			}
		})
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
}

// crashPause crashes a process at one failpoint.
func (c *crashingServer) crashPause(t *testing.T, point string, o brig.PauseOptions) {
	parked := strings.HasPrefix(point, "park.")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	svc, box, cx := c.withVariable(t, ctx, !parked)
	arm := func() { c.arm(point + "=crash") }
	switch {
	case point == "pause.ended":
		if _, err := svc.Pause(ctx, "one", o); err != nil {
			t.Fatal(err)
		}
		arm()
		_, _ = svc.Kill(ctx, "one") // the server crashes
	case strings.HasPrefix(point, "resume."):
		if _, err := svc.Pause(ctx, "one", o); err != nil {
			t.Fatal(err)
		}
		if point == "resume.unpacked" {
			awaitPacked(t, c.dir, box.ID)
		}
		arm()
		_, _ = svc.Resume(ctx, "one") // the server crashes
	default:
		arm()
		_, _ = svc.Pause(ctx, "one", o) // the server or the shim crashes, at the latest during the packing of the save
	}
	svc = c.restart(t, point)
	now, err := svc.Get(ctx, "one")
	if err != nil || now.ID != box.ID {
		t.Fatalf("the next server has %+v, %v", now, err)
	}
	t.Logf("the next server finds it %s", now.State)
	shimDied := point == "save.released" || point == "save.written"
	switch {
	case point == "pause.ended":
		if now.State != brig.Ended {
			t.Errorf("it was killed, and is %s", now.State)
		}
	case shimDied && now.State == brig.Ended:
		if now.Exit == nil || now.Exit.Reason != brig.Crashed {
			t.Errorf("its shim died, and it ended with %+v", now.Exit)
		}
	case now.State != brig.Running && now.State != brig.Paused:
		t.Errorf("it is %s, %+v", now.State, now.Exit)
	default:
		if now.State == brig.Paused {
			wantPausedOnHost(t, c.dir, box.ID)
		}
		if point == "resume.booted" && now.State != brig.Paused {
			t.Errorf("it is %s before its boot is on record", now.State)
		}
		wantState(t, ctx, svc, "one", cx.ID, o.FilesOnly)
	}
	if err := svc.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	if remaining, _ := filepath.Glob(filepath.Join(c.dir, "saves", "*")); len(remaining) > 0 {
		t.Errorf("saves are left: %v", remaining)
	}
}
