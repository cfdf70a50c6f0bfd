package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// parkedLanguages lists the languages whose driver can be parked, each with a cell that sets a
// variable and a cell that increments and prints it.
var parkedLanguages = []struct {
	language  brig.Language
	set, next string
}{
	{brig.Python, `
import asyncio, sys, threading, time
x = 41
beats = []
def beat():
    while True:
        time.sleep(.02); beats.append(1)
threading.Thread(target=beat, daemon=True).start()
ticks = []
async def tick():
    while True:
        await asyncio.sleep(.02); ticks.append(1)
task = asyncio.ensure_future(tick())
`, "x += 1\nn, m = len(beats), len(ticks)\nwhile len(beats) == n or len(ticks) == m: await asyncio.sleep(.01)\nprint('to stderr', file=sys.stderr)\nprint(x)"},
	{brig.JavaScript, "let x = 41; let ticks = 0; setInterval(() => ticks++, 20)",
		"{ const n = ticks; while (ticks === n) await new Promise((f) => setTimeout(f, 10)) }; console.error('to stderr'); console.log(++x)"},
	{brig.Bash, "x=41; f() { echo $x; }", "x=$((x+1)); echo to stderr >&2; f"},
}

// TestPauseParksInterpreters verifies that a sandbox that was not created as pausable can be
// paused repeatedly while contexts exist in it. Their variables, threads and tasks still exist
// afterwards, and their cells return output, errors and results.
//
//suite:part core
func TestPauseParksInterpreters(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	dir := dataDirOf(t, e)
	box, err := e.Create(ctx, brig.Spec{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	contexts := map[brig.Language]string{}
	for _, l := range parkedLanguages {
		cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{Language: l.language})
		if err != nil {
			t.Fatalf("%s: %v", l.language, err)
		}
		contexts[l.language] = cx.ID
		runCell(t, ctx, e, "one", cx.ID, l.set)
	}
	fresh, err := e.CreateContext(ctx, "one", brig.ContextSpec{Language: brig.JavaScript}) // has not run a cell
	if err != nil {
		t.Fatal(err)
	}
	for generation := range 3 {
		if paused, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil || paused.State != brig.Paused {
			t.Fatalf("pause: %+v, %v", paused, err)
		}
		wantPausedOnHost(t, dir, box.ID)
		for _, l := range parkedLanguages {
			r, err := e.RunCode(ctx, "one", brig.Code{Context: contexts[l.language], Source: l.next}, nil)
			if err != nil || r.Error != nil {
				t.Fatalf("%s, generation %d: %+v, %v", l.language, generation, r, err)
			}
			if got, want := strings.TrimSpace(string(r.Stdout.Head)), fmt.Sprint(42+generation); got != want {
				t.Errorf("%s, generation %d: it printed %q, want %q", l.language, generation, got, want)
			}
			if got := strings.TrimSpace(string(r.Stderr.Head)); got != "to stderr" {
				t.Errorf("%s, generation %d: its errors are %q", l.language, generation, got)
			}
		}
	}
	if got := runCell(t, ctx, e, "one", fresh.ID, "console.log(6 * 7)"); got != "42" {
		t.Errorf("the context that had run no cell printed %q", got)
	}
	python := contexts[brig.Python]
	if r, err := e.RunCode(ctx, "one", brig.Code{Context: python, Source: "1 / 0"}, nil); err != nil || r.Error == nil || r.Error.Name != "ZeroDivisionError" {
		t.Errorf("a cell that fails: %+v, %v", r, err)
	}
	// A parked interpreter can be restarted, and then uses the host's descriptors again.
	if _, err := e.RestartContext(ctx, "one", python); err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, e, "one", python, "x = 1")
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatalf("pause after a restart: %v", err)
	}
	if got := runCell(t, ctx, e, "one", python, "print(x)"); got != "1" {
		t.Errorf("after the restart and a pause the context printed %q", got)
	}
	if err := e.RemoveContext(ctx, "one", python); err != nil {
		t.Error(err)
	}
	if err := e.Remove(ctx, "one"); err != nil {
		t.Error(err)
	}
	checkNoHostTraces(t, dir)
}

// TestUnresponsiveInterpreterPreventsPause verifies that an unresponsive interpreter prevents a pause, and that
// its context remains usable.
//
//suite:part core
func TestUnresponsiveInterpreterPreventsPause(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	pid := runCell(t, ctx, e, "one", cx.ID, "import os, signal, threading\nx = 41\nprint(os.getpid())\nthreading.Timer(.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()")
	shellOut(t, ctx, e, "one", "until grep -q '^State:.T' /proc/"+pid+"/status; do sleep .02; done")
	_, err = e.Pause(ctx, "one", brig.PauseOptions{})
	if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), cx.ID) {
		t.Errorf("a pause with an interpreter that is stopped: %v", err)
	}
	shellOut(t, ctx, e, "one", "kill -CONT "+pid)
	if got := runCell(t, ctx, e, "one", cx.ID, "print(x + 1)"); got != "42" {
		t.Errorf("after the refusal the context printed %q", got)
	}
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Errorf("control: %v", err)
	}
	if got := runCell(t, ctx, e, "one", cx.ID, "print(x + 2)"); got != "43" {
		t.Errorf("after the pause the context printed %q", got)
	}
}

// TestPauseAfterInterpreterEnds verifies that the end of an interpreter does not prevent a pause
// immediately after it. The interpreter ends by itself, by a signal, or with its context.
//
//suite:part core
func TestPauseAfterInterpreterEnds(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	start := func() (id, pid string) {
		cx, err := e.CreateContext(ctx, "one", brig.ContextSpec{})
		if err != nil {
			t.Fatal(err)
		}
		return cx.ID, runCell(t, ctx, e, "one", cx.ID, "import os; print(os.getpid())")
	}
	for _, c := range []struct {
		how string
		end func(id, pid string) error
	}{
		{"by itself", func(id, _ string) error {
			_, err := e.RunCode(ctx, "one", brig.Code{Context: id, Source: "import os; os._exit(3)"}, nil)
			return err
		}},
		{"by itself, after its cell", func(id, _ string) error {
			runCell(t, ctx, e, "one", id, "import os, threading; threading.Timer(.01, os._exit, [3]).start()")
			return nil
		}},
		{"by a signal", func(_, pid string) error {
			shellOut(t, ctx, e, "one", "kill -9 "+pid)
			return nil
		}},
		{"with its context", func(id, _ string) error { return e.RemoveContext(ctx, "one", id) }},
	} {
		id, pid := start()
		if err := c.end(id, pid); err != nil {
			t.Errorf("%s: %v", c.how, err)
		}
		if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Errorf("an interpreter that ends %s: %v", c.how, err)
		}
	}
	id, _ := start()
	if _, err := e.Fork(ctx, "one", brig.ForkSpec{Name: "two"}); err != nil {
		t.Errorf("control: a fork with an interpreter that runs: %v", err)
	}
	if err := e.RemoveContext(ctx, "two", id); err != nil {
		t.Error(err)
	}
	if _, err := e.Fork(ctx, "two", brig.ForkSpec{Name: "three"}); err != nil {
		t.Errorf("a fork after the end of an interpreter: %v", err)
	}
}
