package e2e

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestIdleSandboxIsFrozen verifies that a sandbox with FreezeAfter uses no CPU time while no client uses it,
// even if its programs are busy, and resumes when a client uses it. The control is a sandbox
// without FreezeAfter.
//
//suite:part core
func TestIdleSandboxIsFrozen(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	used := map[string]time.Duration{}
	for name, after := range map[string]time.Duration{"frozen": 100 * time.Millisecond, "control": 0} {
		box, err := e.Create(ctx, brig.Spec{Name: name, FreezeAfter: after})
		if err != nil {
			t.Fatal(err)
		}
		spin := "import threading\nn = 0\ndef f():\n    global n\n    while True: n += 1\nthreading.Thread(target=f, daemon=True).start()"
		if _, err := e.RunCode(ctx, name, brig.Code{Source: spin}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		before, end := cpuTime(t, dir, box.ID), time.Now().Add(promptTimeout)
		time.Sleep(time.Second)
		if after > 0 { // on a busy machine, the sandbox may be frozen late
			for cpuTime(t, dir, box.ID)-before > 50*time.Millisecond && time.Now().Before(end) {
				before = cpuTime(t, dir, box.ID)
				time.Sleep(time.Second)
			}
		}
		for after == 0 && cpuTime(t, dir, box.ID)-before < 200*time.Millisecond && time.Now().Before(end) {
			time.Sleep(100 * time.Millisecond)
		}
		used[name] = cpuTime(t, dir, box.ID) - before
		r, err := e.RunCode(ctx, name, brig.Code{Source: "import time\na = n\ntime.sleep(.3)\nprint(n > a > 0)"}, nil)
		if err != nil || string(r.Stdout.Head) != "True\n" {
			t.Errorf("%s: after a while it says %+v, %v", name, r, err)
		}
		if err := e.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if used["frozen"] > 50*time.Millisecond || used["control"] < 200*time.Millisecond {
		t.Errorf("frozen used %v, the control %v", used["frozen"], used["control"])
	}
	checkNoHostTraces(t, dir)
}

// TestFrozenSandboxesCanBeEnded verifies that a frozen sandbox can be ended in every way.
//
//suite:part core
func TestFrozenSandboxesCanBeEnded(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	for name, end := range map[string]func(string) error{
		"stop":   func(name string) error { _, err := e.Stop(ctx, name, time.Second); return err },
		"kill":   func(name string) error { _, err := e.Kill(ctx, name); return err },
		"remove": func(name string) error { return e.Remove(ctx, name) },
	} {
		if _, err := e.Create(ctx, brig.Spec{Name: name, FreezeAfter: 10 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		begin := time.Now()
		if err := end(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > promptTimeout {
			t.Errorf("%s took %v", name, took)
		}
		if name != "remove" {
			if err := e.Remove(ctx, name); err != nil {
				t.Errorf("remove after %s: %v", name, err)
			}
		}
	}
	checkNoHostTraces(t, dataDirOf(t, e))
}
