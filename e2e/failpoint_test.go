package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/testenv"
)

// TestNoFailpointsInProduction verifies that production binaries do not contain failpoints.
//
//suite:part crash
func TestNoFailpointsInProduction(t *testing.T) {
	for _, name := range []string{"brig", "brig-engine", "brig-shim", "brig-agent"} {
		b, err := os.ReadFile(bin(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "BRIG_FAILPOINTS") {
			t.Errorf("%s has failpoints", name)
		}
	}
}

// ledger records the results that clients received while one failpoint was armed.
type ledger struct {
	mu      sync.Mutex // guards the fields below
	boxes   map[string]*brig.Sandbox
	removed map[string]brig.ID // acknowledged removals
	leaving map[string]bool    // requested removals
	runs    map[string]string  // output by name
	execs   map[string]string  // output by "box id"
	set     map[string]bool    // sandboxes whose variable x was set
	failed  []string
}

func newLedger() *ledger {
	return &ledger{
		boxes: map[string]*brig.Sandbox{}, removed: map[string]brig.ID{}, leaving: map[string]bool{},
		runs: map[string]string{}, execs: map[string]string{}, set: map[string]bool{},
	}
}

func (a *ledger) recordSuccess(err error, f func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		f()
	} else {
		a.failed = append(a.failed, err.Error())
	}
	return err
}

// load calls all operations of a server in three concurrent sequences. Each sequence stops at its
// first failure.
func (a *ledger) load(ctx context.Context, svc brig.Service, round string) {
	var work sync.WaitGroup
	work.Go(func() { _ = a.lifecycle(ctx, svc, "life-"+round) })
	work.Go(func() { _ = a.createPersistent(ctx, svc, "stay-"+round) })
	work.Go(func() {
		for i, limits := range []brig.Limits{{}, {Memory: 200 * brig.MiB}} {
			name := fmt.Sprintf("run-%s-%d", round, i)
			o, err := svc.Run(ctx, brig.Program{SandboxName: name, Language: brig.Python, Code: "print('" + name + "')", Limits: limits}, brig.IO{})
			_ = a.recordSuccess(err, func() { a.runs[name] = string(o.Stdout.Head) })
		}
	})
	work.Wait()
}

// lifecycle creates, uses and removes a sandbox.
func (a *ledger) lifecycle(ctx context.Context, svc brig.Service, name string) error {
	box, err := svc.Create(ctx, brig.Spec{Name: name})
	if a.recordSuccess(err, func() { a.boxes[name] = box }) != nil {
		return err
	}
	if _, err := svc.RunCode(ctx, name, brig.Code{Source: "x = 1"}, nil); a.recordSuccess(err, func() {}) != nil {
		return err
	}
	if _, err = svc.RestartContext(ctx, name, "default-python"); a.recordSuccess(err, func() {}) != nil {
		return err
	}
	a.mu.Lock()
	a.leaving[name] = true
	a.mu.Unlock()
	if _, err = svc.Stop(ctx, name, 0); a.recordSuccess(err, func() {}) != nil {
		return err
	}
	err = svc.Remove(ctx, name)
	return a.recordSuccess(err, func() { a.removed[name] = box.ID })
}

// createPersistent creates a sandbox with a program and a variable, and does not remove it.
func (a *ledger) createPersistent(ctx context.Context, svc brig.Service, name string) error {
	box, err := svc.Create(ctx, brig.Spec{Name: name, Command: &brig.Command{Argv: []string{"sleep", "600"}}})
	if a.recordSuccess(err, func() { a.boxes[name] = box }) != nil {
		return err
	}
	_, err = svc.RunCode(ctx, name, brig.Code{Source: "x = '" + name + "'"}, nil)
	if a.recordSuccess(err, func() { a.set[name] = true }) != nil {
		return err
	}
	res, err := svc.Exec(ctx, name, brig.Command{Argv: []string{"echo", name}}, brig.IO{})
	if a.recordSuccess(err, func() { a.execs[name+" "+res.ExecID] = string(res.Stdout.Head) }) != nil {
		return err
	}
	_, err = svc.Extend(ctx, name, time.Hour)
	return a.recordSuccess(err, func() {})
}

// check verifies that a server has the results that earlier servers acknowledged. If mortal is
// set, sandboxes may have ended because their shims were killed.
func (a *ledger) check(t *testing.T, svc brig.Service, mortal bool) {
	t.Helper()
	ctx := t.Context()
	for name, want := range a.runs {
		if o, err := svc.GetRun(ctx, name); err != nil || string(o.Stdout.Head) != want || want != name+"\n" {
			t.Errorf("%s was answered with %q and is %+v, %v", name, want, o, err)
		}
	}
	for key, want := range a.execs {
		box, id, _ := strings.Cut(key, " ")
		if x, err := svc.GetExec(ctx, box, id); err != nil || !x.Done || string(x.Stdout.Head) != want {
			t.Errorf("exec %s was answered with %q and is %+v, %v", key, want, x, err)
		}
	}
	for name, made := range a.boxes {
		box, err := svc.Get(ctx, name)
		switch {
		case a.removed[name] != "":
			if brig.KindOf(err) != brig.NotFound {
				t.Errorf("%s was removed and is %+v, %v", name, box, err)
			}
		case a.leaving[name] && (err == nil || brig.KindOf(err) == brig.NotFound):
			// Both outcomes are valid for a sandbox that is being removed.
		case err != nil || box.ID != made.ID:
			t.Errorf("%s was created, and is now %+v, %v", name, box, err)
		case mortal && box.State == brig.Ended:
			if box.Exit == nil || box.Exit.Reason != brig.Crashed {
				t.Errorf("%s has died and is said to be %+v", name, box.Exit)
			}
		case box.State != brig.Running:
			t.Errorf("%s was made and is %s, %+v", name, box.State, box.Exit)
		default:
			// Results that were not acknowledged may or may not exist, but must
			// not interfere.
			res, err := svc.RunCode(ctx, name, brig.Code{Source: "print(globals().get('x'))"}, nil)
			if err != nil || res.Error != nil || a.set[name] && string(res.Stdout.Head) != name+"\n" {
				t.Errorf("the variable of %s: %+v, %v", name, res, err)
			}
		}
	}
}

// crashingServer is a server that is killed by failpoints, with its data folder.
type crashingServer struct {
	t                         *testing.T
	binary, dir, rules, marks string
	srv                       *server
	slowest                   time.Duration
}

// startCrashingServer starts a server with failpoints, none of which is armed.
func startCrashingServer(t *testing.T, config string) *crashingServer {
	t.Helper()
	dir, lab := dataDir(t), t.TempDir()
	c := &crashingServer{t: t, dir: dir, binary: bin(t, "test/brig-failpoints"), rules: filepath.Join(lab, "rules"), marks: filepath.Join(lab, "marks")}
	if err := os.WriteFile(filepath.Join(lab, "brig.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c.arm("")
	c.launch()
	c.srv.await()
	return c
}

func (c *crashingServer) launch() {
	c.srv = launchServer(c.t, c.binary, []string{"BRIG_FAILPOINTS=@" + c.rules, "BRIG_FAILPOINTS_MARKS=" + c.marks},
		c.dir, "--config", filepath.Join(filepath.Dir(c.rules), "brig.yaml"))
}

// arm sets the failpoint rules.
func (c *crashingServer) arm(rules string) {
	c.t.Helper()
	if err := os.WriteFile(c.rules+".new", []byte(rules), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.rules+".new", c.rules); err != nil {
		c.t.Fatal(err)
	}
}

// clearMarks rearms the failpoints that processes have already reached.
func (c *crashingServer) clearMarks(t *testing.T) {
	t.Helper()
	os.RemoveAll(c.marks)
	if err := os.Mkdir(c.marks, 0o700); err != nil {
		t.Fatal(err)
	}
}

// hasReached reports whether a process reaches a failpoint within the given time.
func (c *crashingServer) hasReached(point string, within time.Duration) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.marks, point)); err == nil {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// TestCrashAtEveryPoint crashes a process at every failpoint, each of which follows a commit or
// an action. The next server must have the acknowledged results, and no traces of unacknowledged
// results may remain. At small size, the test uses a dozen failpoints that change with the ISO
// week.
//
//suite:part crash
func TestCrashAtEveryPoint(t *testing.T) {
	// The pool has exactly two sandboxes, each of which reaches a failpoint once.
	c := startCrashingServer(t, "pool: {size: 2, memory: 64MiB}\n")
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		// TestWorkspaceCrash, TestPauseCrash, TestForkCrash and TestBootCrash cover the others.
		area, _, _ := strings.Cut(p.Name, ".")
		return area == "workspace" || isPausePoint(p.Name) || area == "fork" || area == "boot"
	})
	points = testenv.Share(t, points, 12)
	rounds := testenv.Size(1, 3)
	for round := range rounds {
		for i, p := range points {
			t.Run(fmt.Sprintf("%s/%d", p.Name, round), func(t *testing.T) {
				c.crashAt(t, p.Name, round, fmt.Sprintf("%d-%d", round, i))
			})
		}
	}
	c.srv.kill()
	checkNoHostTraces(t, c.dir)
	t.Logf("%d points, %d rounds; the slowest start took %v", len(points), rounds, c.slowest.Round(time.Millisecond))
}

func (c *crashingServer) crashAt(t *testing.T, point string, round int, tag string) {
	c.clearMarks(t)
	c.srv.t = t
	svc, a := c.srv.client(), newLedger()
	rule := point + "=crash"
	if strings.HasPrefix(point, "store.") {
		rule += fmt.Sprintf("(%d)", 3+4*round)
	}
	if point == "run.ended" {
		// The next server starts while the shim is still ending.
		rule += ";shim.gone=sleep(2s)"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*promptTimeout)
	defer cancel()
	if strings.HasPrefix(point, "recover.") {
		a.load(ctx, svc, tag)
		c.srv.kill()
		c.arm(rule)
		c.launch()
	} else {
		c.arm(rule)
		a.load(ctx, svc, tag)
	}
	// A background action may reach the failpoint only later.
	if !c.hasReached(point, 2*promptTimeout) {
		t.Errorf("the failpoint was not reached: %v: %s", a.failed, c.srv.errs)
	}
	c.arm("")
	c.srv.kill()
	start := time.Now()
	c.launch()
	c.srv.t = t
	c.srv.await()
	c.slowest = max(c.slowest, time.Since(start))
	svc = c.srv.client()
	a.check(t, svc, strings.HasPrefix(point, "shim."))
	removeAll(t, svc)
	checkOnlyPool(t, c.srv)
}
