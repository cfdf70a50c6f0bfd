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

// TestNoFailpointsInProduction looks for them in the binaries that are built
// for use.
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

// account is what a load was told, under one point.
type account struct {
	mu      sync.Mutex // guards the fields below
	boxes   map[string]*brig.Sandbox
	gone    map[string]brig.ID // whose removal was acknowledged
	leaving map[string]bool    // whose end was asked for
	runs    map[string]string  // name and output
	execs   map[string]string  // "box id" and output
	set     map[string]bool    // boxes whose variable x was set
	failed  []string
}

func newAccount() *account {
	return &account{
		boxes: map[string]*brig.Sandbox{}, gone: map[string]brig.ID{}, leaving: map[string]bool{},
		runs: map[string]string{}, execs: map[string]string{}, set: map[string]bool{},
	}
}

func (a *account) note(err error, f func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		f()
	} else {
		a.failed = append(a.failed, err.Error())
	}
	return err
}

// load uses everything that a server does, three things at once, and stops
// each where it fails.
func (a *account) load(ctx context.Context, svc brig.Service, round string) {
	var work sync.WaitGroup
	work.Go(func() { _ = a.life(ctx, svc, "life-"+round) })
	work.Go(func() { _ = a.stay(ctx, svc, "stay-"+round) })
	work.Go(func() {
		for i, limits := range []brig.Limits{{}, {Memory: 200 * brig.MiB}} {
			name := fmt.Sprintf("run-%s-%d", round, i)
			o, err := svc.Run(ctx, brig.Program{Name: name, Language: brig.Python, Code: "print('" + name + "')", Limits: limits}, brig.IO{})
			_ = a.note(err, func() { a.runs[name] = string(o.Stdout.Head) })
		}
	})
	work.Wait()
}

// life takes a sandbox through its whole life.
func (a *account) life(ctx context.Context, svc brig.Service, name string) error {
	box, err := svc.Create(ctx, brig.Spec{Name: name})
	if a.note(err, func() { a.boxes[name] = box }) != nil {
		return err
	}
	if _, err := svc.RunCode(ctx, name, brig.Code{Source: "x = 1"}, nil); a.note(err, func() {}) != nil {
		return err
	}
	if _, err = svc.RestartContext(ctx, name, "default-python"); a.note(err, func() {}) != nil {
		return err
	}
	a.mu.Lock()
	a.leaving[name] = true
	a.mu.Unlock()
	if _, err = svc.Stop(ctx, name, 0); a.note(err, func() {}) != nil {
		return err
	}
	err = svc.Remove(ctx, name)
	return a.note(err, func() { a.gone[name] = box.ID })
}

// stay makes a sandbox that has a program and a variable, and leaves it.
func (a *account) stay(ctx context.Context, svc brig.Service, name string) error {
	box, err := svc.Create(ctx, brig.Spec{Name: name, Command: &brig.Command{Argv: []string{"sleep", "600"}}})
	if a.note(err, func() { a.boxes[name] = box }) != nil {
		return err
	}
	_, err = svc.RunCode(ctx, name, brig.Code{Source: "x = '" + name + "'"}, nil)
	if a.note(err, func() { a.set[name] = true }) != nil {
		return err
	}
	res, err := svc.Exec(ctx, name, brig.Command{Argv: []string{"echo", name}}, brig.IO{})
	if a.note(err, func() { a.execs[name+" "+res.ExecID] = string(res.Stdout.Head) }) != nil {
		return err
	}
	_, err = svc.Extend(ctx, name, time.Hour)
	return a.note(err, func() {})
}

// check holds a server to what an earlier one said. Of a sandbox whose shim
// may have been killed, only that its end is known.
func (a *account) check(t *testing.T, svc brig.Service, mortal bool) {
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
		case a.gone[name] != "":
			if brig.KindOf(err) != brig.NotFound {
				t.Errorf("%s was removed and is %+v, %v", name, box, err)
			}
		case a.leaving[name] && (err == nil || brig.KindOf(err) == brig.NotFound):
			// Either is true of a sandbox that is going.
		case err != nil || box.ID != made.ID:
			t.Errorf("%s was made and is %+v, %v", name, box, err)
		case mortal && box.State == brig.Ended:
			if box.Exit == nil || box.Exit.Reason != brig.Crashed {
				t.Errorf("%s has died and is said to be %+v", name, box.Exit)
			}
		case box.State != brig.Running:
			t.Errorf("%s was made and is %s, %+v", name, box.State, box.Exit)
		default:
			// What was not acknowledged may be there or not, but is in nobody's way.
			res, err := svc.RunCode(ctx, name, brig.Code{Source: "print(globals().get('x'))"}, nil)
			if err != nil || res.Error != nil || a.set[name] && string(res.Stdout.Head) != name+"\n" {
				t.Errorf("the variable of %s: %+v, %v", name, res, err)
			}
		}
	}
}

// crasher is a server that is made to die, and the folder of its data.
type crasher struct {
	t                         *testing.T
	binary, dir, rules, marks string
	srv                       *server
	slowest                   time.Duration
}

func (c *crasher) launch() {
	c.srv = launchServer(c.t, c.binary, []string{"BRIG_FAILPOINTS=@" + c.rules, "BRIG_FAILPOINTS_MARKS=" + c.marks},
		c.dir, "--config", filepath.Join(filepath.Dir(c.rules), "brig.yaml"))
}

// arm says what happens from now on.
func (c *crasher) arm(rules string) {
	c.t.Helper()
	if err := os.WriteFile(c.rules+".new", []byte(rules), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.rules+".new", c.rules); err != nil {
		c.t.Fatal(err)
	}
}

// visited reports whether a point was come by, within a while.
func (c *crasher) visited(point string, within time.Duration) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.marks, point)); err == nil {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// TestCrashAtEveryPoint has a process die at every point where something has
// just been committed or done; at small size, at a dozen of them that change
// with the commit. Whoever dies there, the next server keeps what
// was promised, and nothing is left of what was not.
//
//suite:part crash
func TestCrashAtEveryPoint(t *testing.T) {
	dir, lab := dataDir(t), t.TempDir()
	c := &crasher{t: t, dir: dir, binary: bin(t, "test/brig-failpoints"), rules: filepath.Join(lab, "rules"), marks: filepath.Join(lab, "marks")}
	// Two wait for a hit each; there is no room for more.
	if err := os.WriteFile(filepath.Join(lab, "brig.yaml"), []byte("pool: {size: 2, memory: 64MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.arm("")
	c.launch()
	c.srv.await()
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		return strings.HasPrefix(p.Name, "workspace.") // TestWorkspaceCrash
	})
	points = testenv.Share(t, points, 12)
	rounds := testenv.Size(1, 3)
	for round := range rounds {
		for i, p := range points {
			t.Run(fmt.Sprintf("%s/%d", p.Name, round), func(t *testing.T) {
				c.crash(t, p.Name, round, fmt.Sprintf("%d-%d", round, i))
			})
		}
	}
	c.srv.kill()
	wantNoTraces(t, dir)
	t.Logf("%d points, %d rounds; the slowest start took %v", len(points), rounds, c.slowest.Round(time.Millisecond))
}

func (c *crasher) crash(t *testing.T, point string, round int, tag string) {
	os.RemoveAll(c.marks)
	if err := os.Mkdir(c.marks, 0o700); err != nil {
		t.Fatal(err)
	}
	c.srv.t = t
	svc, a := c.srv.client(), newAccount()
	rule := point + "=crash"
	if strings.HasPrefix(point, "store.") {
		rule += fmt.Sprintf("(%d)", 3+4*round)
	}
	if point == "run.ended" {
		// The next server comes while the shim is still at it.
		rule += ";shim.gone=sleep(2s)"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	// What happens ahead of time comes later.
	if !c.visited(point, 20*time.Second) {
		t.Errorf("nothing came by: %v: %s", a.failed, c.srv.errs)
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
	wantOnlyPool(t, c.srv)
}
