package providertest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func testTimeout(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	cmd := portable("sleep 60")
	if h.Real {
		cmd = script("echo before; sleep 60")
	}
	cmd.Timeout = 300 * time.Millisecond
	start := time.Now()
	a := run(t, in, cmd)
	for h.Real && a.out == "" && cmd.Timeout < waitTimeout { // on a busy host, the program may not have started
		cmd.Timeout *= 4
		start = time.Now()
		a = run(t, in, cmd)
	}
	if !a.TimedOut || !a.Done || a.ExitCode != 124 || a.OOMKilled || time.Since(start) > cmd.Timeout+promptTimeout {
		t.Errorf("after %v: %+v", time.Since(start), a.Result)
	}
	if h.Real && a.out != "before\n" {
		t.Errorf("what it wrote before: %q", a.out)
	}
	if a := run(t, in, portable("echo still here")); a.out != "still here\n" {
		t.Errorf("afterwards: %+v", a)
	}
}

// hostileTree is a script whose processes survive a kill of a single process,
// process group or session.
const hostileTree = `
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP; (setsid sleep 4242 &) ; sleep 4242' >/dev/null 2>&1 &
(sleep 4242 & kill -STOP $!) >/dev/null 2>&1
sleep 4242 & sleep 4242`

// checkNoTree checks that no process of the tree is left.
func checkNoTree(t *testing.T, in brig.Instance) {
	t.Helper()
	a := run(t, in, script(`for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done 2>/dev/null | grep 'sleep 424[2]' || true`))
	if n := strings.Count(a.out, "sleep"); n != 0 {
		t.Errorf("%d processes are left of it: %q", n, a.out)
	}
}

func testTimeoutTree(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	cmd := script(hostileTree)
	cmd.Timeout = 700 * time.Millisecond
	if a := run(t, in, cmd); !a.TimedOut {
		t.Errorf("%+v", a.Result)
	}
	checkNoTree(t, in)
}

var errGone = errors.New("the caller hung up")

// disconnect runs a command and cancels its context soon after the start.
func disconnect(t *testing.T, in brig.Instance, cmd brig.Command, id string) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cmd.Timeout = waitTimeout
	start := time.Now()
	_, err := in.Exec(ctx, id, cmd, brig.IO{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Started: func(string) {
		time.AfterFunc(300*time.Millisecond, func() { cancel(errGone) })
	}})
	if d := time.Since(start); d > promptTimeout {
		t.Errorf("Exec returned %v after its start", d)
	}
	return err
}

func testDisconnect(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if err := disconnect(t, in, portable("sleep 60"), newExecID()); !errors.Is(err, errGone) {
		t.Errorf("Exec says %v, want the cause of its context's end", err)
	}
	alive(t, in)
}

func testDisconnectTree(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if err := disconnect(t, in, script(hostileTree), newExecID()); !errors.Is(err, errGone) {
		t.Errorf("Exec says %v", err)
	}
	checkNoTree(t, in)
}

// testDetachedExec checks that a command that outlives its caller can be found later,
// with its result and the output of its child processes.
func testDetachedExec(t *testing.T, h Harness) {
	if !h.Real {
		t.Skip("a fake command cannot go on without its Exec")
	}
	_, in := create(t, h, nil)
	cmd := script("sleep 1; (sleep 0.5; echo later) & echo late; exit 5")
	cmd.Survive = true
	id := newExecID()
	if err := disconnect(t, in, cmd, id); !errors.Is(err, errGone) {
		t.Errorf("Exec says %v", err)
	}
	deadline := time.Now().Add(waitTimeout)
	for {
		x := remembered(t, in, id)
		if x == nil {
			t.Fatal("nothing is remembered of it")
		}
		if x.Done {
			if x.ExitCode != 5 || string(x.Stdout.Head) != "late\nlater\n" || x.Draining {
				t.Errorf("it ended with %+v", x.Result)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has not ended: %+v", x)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func remembered(t *testing.T, in brig.Instance, id string) *brig.Execution {
	t.Helper()
	xs, err := in.Execs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range xs {
		if x.ExecID == id {
			return x
		}
	}
	return nil
}

func testExecsRemember(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	id := newExecID()
	before := time.Now().Add(-time.Second)
	if _, err := try(t.Context(), in, id, portable("echo hello")); err != nil {
		t.Fatal(err)
	}
	x := remembered(t, in, id)
	if x == nil || !x.Done || x.ExitCode != 0 || strings.Join(x.Command.Argv, " ") != "echo hello" {
		t.Fatalf("remembered: %+v", x)
	}
	if x.Started.Before(before) || x.Started.After(time.Now().Add(time.Second)) {
		t.Errorf("it started at %v", x.Started)
	}
	if h.Real && string(x.Stdout.Head) != "hello\n" {
		t.Errorf("its output: %+v", x.Stdout)
	}
}
