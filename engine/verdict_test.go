package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A program has the same outcome in a pooled instance as in a new instance.
func TestPooledAndNewInstancesEndAlike(t *testing.T) {
	for what, c := range map[string]struct {
		program brig.Program
		want    brig.Outcome
		kind    brig.Kind // of the error, for programs without an outcome
	}{
		"output": {brig.Program{Code: "echo out\nstderr err"}, brig.Outcome{Result: brig.Result{
			Done: true, Stdout: resolvedProgram("out\n"), Stderr: resolvedProgram("err\n")}}, ""},
		"an exit code":      {brig.Program{Code: "exit 3\necho no"}, brig.Outcome{Result: brig.Result{Done: true, ExitCode: 3}}, ""},
		"a large exit code": {brig.Program{Code: "exit 259"}, brig.Outcome{Result: brig.Result{Done: true, ExitCode: 3}}, ""},
		"a value": {brig.Program{Code: `return {"a":[1,null]}`, Arguments: []byte(`{"n":1}`)},
			brig.Outcome{Result: brig.Result{Done: true}, Value: []byte(`{"a":[1,null]}`)}, ""},
		"an exception": {brig.Program{Code: "echo before\nraise ValueError it is bad\necho no"}, brig.Outcome{
			Result: brig.Result{Done: true, ExitCode: 1, Stdout: resolvedProgram("before\n")},
			Error:  &brig.ProgramError{Name: "ValueError", Message: "it is bad"}}, ""},
		"an artifact": {brig.Program{Code: "write artifacts/a.csv 1,2"}, brig.Outcome{
			Result: brig.Result{Done: true}, Artifacts: []brig.File{{Path: "a.csv", Data: []byte("1,2"), Mode: 0o644}}}, ""},
		"time runs out": {brig.Program{Code: "echo before\nsleep 60", Timeout: time.Second}, brig.Outcome{
			Result: brig.Result{Done: true, ExitCode: 124, TimedOut: true, Stdout: resolvedProgram("before\n")},
			Error:  &brig.ProgramError{Code: brig.Timeout.Code(), Name: string(brig.Timeout)}}, ""},
		"time runs out for the deaf": {brig.Program{Code: "deaf 60", Timeout: time.Second}, brig.Outcome{
			Result: brig.Result{Done: true, ExitCode: 124, TimedOut: true},
			Error:  &brig.ProgramError{Code: brig.Timeout.Code(), Name: string(brig.Timeout)}}, ""},
		"memory runs out": {brig.Program{Code: "echo before\noom"}, brig.Outcome{
			Result: brig.Result{Done: true, ExitCode: 137, OOMKilled: true, Signal: "SIGKILL", Stdout: resolvedProgram("before\n")},
			Error:  &brig.ProgramError{Code: brig.OutOfMemory.Code(), Name: string(brig.OutOfMemory)}}, ""},
		"the interpreter dies": {brig.Program{Code: "echo before\ndie"}, brig.Outcome{
			Result: brig.Result{Done: true, ExitCode: 1, Stdout: resolvedProgram("before\n")}}, ""},
		"the machine dies": {brig.Program{Code: "crash"}, brig.Outcome{}, brig.FailedPrecondition},
	} {
		for _, use := range []brig.PoolUse{brig.PoolHit, brig.PoolMiss} {
			t.Run(what+", a "+string(use), func(t *testing.T) {
				o := newPoolOptions(1)
				if use == brig.PoolMiss {
					o.Pool.Warm = nil
				}
				withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
					c.program.Language = brig.Python
					got, err := h.Run(withRole(t, brig.Member), c.program, brig.IO{})
					if brig.KindOf(err) != c.kind {
						t.Fatalf("Run = %v, want the kind %q", err, c.kind)
					}
					if err == nil {
						checkOutcome(t, got, c.want, use)
						if again, err := h.GetRun(withRole(t, brig.Viewer), got.Sandbox); err != nil {
							t.Errorf("GetRun = %v", err)
						} else if checkOutcome(t, again, c.want, use); again.ExecID != got.ExecID {
							t.Errorf("GetRun found the execution %s of %s", again.ExecID, got.ExecID)
						}
					}
					if n := h.countRecords(t); n != 0 {
						t.Errorf("%d records are left", n)
					}
					h.Close()
					p.assertClean(t)
				})
			})
		}
	}
}

// A return value that is too large is reported as an error of the program.
func TestOversizedValueIsAProgramError(t *testing.T) {
	h := newFixture(t, nil)
	o, err := h.Run(withRole(t, brig.Member), brig.Program{Language: brig.Python, Code: `return "` + strings.Repeat("x", 8*brig.MiB) + `"`}, brig.IO{})
	if err != nil || !o.Done || o.Value != nil || o.Error == nil || o.Error.Name != "ValueTooLarge" || o.Error.Hint == "" {
		t.Errorf("Run = %v with the error %+v and %d bytes", err, o.Error, len(o.Value))
	}
}

func resolvedProgram(s string) brig.Output { return brig.Output{Head: []byte(s), Total: int64(len(s))} }

// checkOutcome compares the parts of an outcome that matter to a caller. Unless want
// has an error message, it only checks that the error has a message.
func checkOutcome(t *testing.T, got *brig.Outcome, want brig.Outcome, use brig.PoolUse) {
	t.Helper()
	if got.ExecID == "" || got.Started.IsZero() || got.Sandbox == "" || got.Pool != use {
		t.Errorf("%+v lacks its execution, start or sandbox, or is no %s", got, use)
	}
	if e := got.Error; e != nil && e.Message == "" {
		t.Errorf("%+v says nothing", e)
	}
	view := func(o *brig.Outcome) string {
		failure := ""
		if e := o.Error; e != nil {
			failure = e.Code + " " + e.Name
			if want.Error != nil && want.Error.Message != "" {
				failure += " " + e.Message
			}
		}
		return fmt.Sprintf("done %v, exit %d %q, timed out %v, out of memory %v, stdout %q %d, stderr %q %d, value %s, artifacts %v, skipped %q, error %q",
			o.Done, o.ExitCode, o.Signal, o.TimedOut, o.OOMKilled, o.Stdout.Head, o.Stdout.Total, o.Stderr.Head, o.Stderr.Total,
			o.Value, o.Artifacts, o.Skipped, failure)
	}
	if g, w := view(got), view(&want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

// If the output cannot be delivered to the caller, the program and its instance
// end.
func TestRunEndsWhenCallerDisconnects(t *testing.T) {
	for _, o := range []engine.Options{{}, newPoolOptions(1)} {
		withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
			start := time.Now()
			_, err := h.Run(withRole(t, brig.Member), brig.Program{Language: brig.Python, Code: "echo hi\nsleep 60"}, brig.IO{Stdout: failingWriter{}})
			if err == nil || time.Since(start) > time.Second {
				t.Errorf("after %v Run = %v", time.Since(start), err)
			}
			if n := h.countRecords(t); n != 0 {
				t.Errorf("%d records are left", n)
			}
			h.Close()
			p.assertClean(t)
		})
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) {
	return 0, brig.Errorf(brig.Canceled, "nobody listens").WithHint("stay")
}

// The outcome contains the signal that the driver reported, if the signal is
// consistent with the exit code.
func TestDriverReportsSignal(t *testing.T) {
	h := newFixture(t, nil)
	for code, want := range map[string]string{"signal 137 9": "SIGKILL", "signal 130 2": "SIGINT", "signal 137 0": "", "signal 7 9": "", "signal 255 127": "", "signal 100 -28": ""} {
		o, err := h.Run(withRole(t, brig.Member), brig.Program{Language: brig.Bash, Code: code}, brig.IO{})
		if err != nil || o.Signal != want || o.TimedOut {
			t.Errorf("%s: signal %q, want %q; %+v, %v", code, o.Signal, want, o, err)
		}
	}
}
