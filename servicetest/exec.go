package servicetest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// limit is the smallest output limit, so that tests exceed it quickly.
const limit = 1 * brig.KiB

func (h Harness) testExec(t *testing.T) {
	box := h.sandbox(t, brig.Spec{
		Env: map[string]string{"A": "sandbox", "B": "sandbox"}, Limits: brig.Limits{Output: limit},
	})
	run := func(t *testing.T, cmd brig.Command, sio brig.IO) *brig.Result {
		t.Helper()
		res, err := h.Service.Exec(h.Context(t), box.Spec.Name, cmd, sio)
		if err != nil {
			t.Fatalf("Exec(%v): %v", cmd.Argv, err)
		}
		if !res.Done || res.ExecID == "" || res.Started.IsZero() {
			t.Errorf("Exec(%v) = %+v, want one that is done, and its id and start", cmd.Argv, res)
		}
		return res
	}
	t.Run("an exit code is a result", func(t *testing.T) {
		if res := run(t, h.cmd("exit", "7"), brig.IO{}); res.ExitCode != 7 || res.TimedOut || res.OOMKilled {
			t.Errorf("%+v, want exit code 7", res)
		}
	})
	t.Run("output is captured", func(t *testing.T) {
		res := run(t, h.cmd("echo", "hello", "world"), brig.IO{})
		wantOutput(t, "stdout", res.Stdout, "hello world\n")
		wantOutput(t, "stderr", res.Stderr, "")
		res = run(t, h.cmd("stderr", "oh"), brig.IO{})
		wantOutput(t, "stdout", res.Stdout, "")
		wantOutput(t, "stderr", res.Stderr, "oh\n")
	})
	t.Run("output streams", func(t *testing.T) {
		var out, errs bytes.Buffer
		var started []string
		res := run(t, h.cmd("echo", "hi"), brig.IO{
			Stdout: &out, Stderr: &errs, Started: func(id string) { started = append(started, id) },
		})
		if out.String() != "hi\n" || errs.Len() > 0 {
			t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
		}
		if len(started) != 1 || started[0] != res.ExecID {
			t.Errorf("Started was called with %q, the execution is %q", started, res.ExecID)
		}
	})
	t.Run("one stream of two", func(t *testing.T) {
		var errs bytes.Buffer
		res := run(t, h.cmd("echo", "hi"), brig.IO{Stderr: &errs})
		wantOutput(t, "stdout", res.Stdout, "hi\n")
		if errs.Len() > 0 {
			t.Errorf("stderr %q", errs.String())
		}
	})
	t.Run("stdin", func(t *testing.T) {
		data := bytes.Repeat([]byte("every byte \x00\xff\xc3\n"), 20_000)
		var out bytes.Buffer
		if run(t, h.cmd("cat"), brig.IO{Stdin: bytes.NewReader(data), Stdout: &out}); !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%d bytes went in, %d others came out", len(data), out.Len())
		}
		res := run(t, h.cmd("cat"), brig.IO{Stdin: strings.NewReader("short")})
		wantOutput(t, "stdout", res.Stdout, "short")
		res = run(t, h.cmd("cat"), brig.IO{})
		wantOutput(t, "stdout", res.Stdout, "")
	})
	t.Run("environments are layered", func(t *testing.T) {
		for variable, want := range map[string]string{"A": "sandbox", "B": "command", "C": "command"} {
			cmd := h.cmd("env", variable)
			cmd.Env = map[string]string{"B": "command", "C": "command"}
			wantOutput(t, variable, run(t, cmd, brig.IO{}).Stdout, want+"\n")
		}
	})
	t.Run("time runs out", func(t *testing.T) {
		cmd := h.cmd("sleep", "30")
		cmd.Timeout = 200 * time.Millisecond
		start := time.Now()
		if res := run(t, cmd, brig.IO{}); !res.TimedOut || res.ExitCode != 124 || res.OOMKilled {
			t.Errorf("%+v, want one that timed out with 124", res)
		}
		if took := time.Since(start); took > timeout {
			t.Errorf("it took %v", took)
		}
	})
	t.Run("output is cut exactly", func(t *testing.T) {
		wantOutput(t, "what fits", run(t, h.cmd("spew", "1024"), brig.IO{}).Stdout, strings.Repeat("x", limit))
		o := run(t, h.cmd("spew", "100000"), brig.IO{}).Stdout
		kept := string(o.Head) + string(o.Tail)
		if !o.Truncated() || o.Total != 100_000 || len(o.Head) == 0 || len(o.Tail) == 0 || kept != strings.Repeat("x", limit) {
			t.Errorf("of %d bytes, head %d and tail %d are kept, want %d of 100000", o.Total, len(o.Head), len(o.Tail), limit)
		}
	})
	t.Run("executions are remembered", func(t *testing.T) {
		res := run(t, h.cmd("exit", "3"), brig.IO{})
		x, err := h.Service.GetExec(h.Context(t), box.Spec.Name, res.ExecID)
		if err != nil {
			t.Fatalf("GetExec: %v", err)
		}
		if x.ExecID != res.ExecID || x.ExitCode != 3 || !x.Done || x.Sandbox != box.ID || len(x.Command.Argv) == 0 {
			t.Errorf("GetExec = %+v", x)
		}
		xs, err := h.Service.ListExecs(h.Context(t), string(box.ID))
		if err != nil || len(xs) < 2 || xs[0].ExecID != res.ExecID {
			t.Errorf("ListExecs = %d executions, %v; want the last one first", len(xs), err)
		}
		_, err = h.Service.GetExec(h.Context(t), box.Spec.Name, "exnone")
		wantKind(t, "GetExec of none", err, brig.NotFound)
	})
	t.Run("a caller who goes away ends it", func(t *testing.T) {
		h.testDisconnect(t, box.Spec.Name, brig.IO{})
		h.testDisconnect(t, box.Spec.Name, brig.IO{Stdout: new(bytes.Buffer)})
	})
	if h.Real {
		t.Run("unless it is to survive", func(t *testing.T) { h.testDetach(t, box.Spec.Name) })
		return
	}
	t.Run("memory runs out", func(t *testing.T) { // ends the sandbox
		res, err := h.Service.Exec(h.Context(t), box.Spec.Name, h.cmd("oom"), brig.IO{})
		if err != nil || !res.OOMKilled || res.ExitCode != 137 || res.TimedOut {
			t.Errorf("Exec = %+v, %v; want one that memory ended", res, err)
		}
	})
}

func wantOutput(t *testing.T, what string, o brig.Output, want string) {
	t.Helper()
	if got := string(o.Head) + string(o.Tail); got != want || o.Total != int64(len(want)) || o.Truncated() {
		t.Errorf("%s is %.80q (%d bytes), want %.80q (%d bytes)", what, got, o.Total, want, len(want))
	}
}

// testDisconnect starts a long command, cancels the call, and checks that the call
// returns soon and the command ends.
func (h Harness) testDisconnect(t *testing.T, box string, sio brig.IO) {
	t.Helper()
	ctx, cancel := context.WithCancel(h.Context(t))
	defer cancel()
	id := make(chan string, 1)
	sio.Started = func(s string) { id <- s; cancel() }
	start := time.Now()
	_, err := h.Service.Exec(ctx, box, h.cmd("sleep", "300"), sio)
	wantKind(t, "Exec whose caller went away", err, brig.Canceled)
	if took := time.Since(start); took > timeout {
		t.Errorf("Exec took %v to notice that its caller went away", took)
	}
	select {
	case s := <-id:
		eventually(t, "the command's end", func() bool {
			x, err := h.Service.GetExec(h.Context(t), box, s)
			return err == nil && x.Done
		})
	default:
		t.Error("Started was not called")
	}
}

func (h Harness) testDetach(t *testing.T, box string) {
	ctx, cancel := context.WithCancel(h.Context(t))
	defer cancel()
	id := make(chan string, 1)
	cmd := brig.Command{Shell: "sleep 1; exit 5", Survive: true}
	_, err := h.Service.Exec(ctx, box, cmd, brig.IO{Started: func(s string) { id <- s; cancel() }})
	wantKind(t, "Exec whose caller went away", err, brig.Canceled)
	var s string
	select {
	case s = <-id:
	default:
		t.Fatal("Started was not called")
	}
	eventually(t, "the command's end", func() bool {
		x, err := h.Service.GetExec(h.Context(t), box, s)
		if err == nil && x.Done && x.ExitCode != 5 {
			t.Fatalf("it ended as %+v, want exit code 5", x.Result)
		}
		return err == nil && x.Done
	})
}
