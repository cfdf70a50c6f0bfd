package servicetest

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func (h Harness) testRun(t *testing.T) {
	mark := map[string]string{"mark": name()}
	program := func(words ...string) brig.Program { return brig.Program{Command: h.argv(words...), Labels: mark} }
	run := func(t *testing.T, p brig.Program, sio brig.IO) *brig.Outcome {
		t.Helper()
		o, err := h.Service.Run(h.Context(t), p, sio)
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		if !brig.ValidName(o.Sandbox) || !o.Done {
			t.Errorf("Run = %+v, want one that is done and its sandbox's name", o)
		}
		return o
	}
	t.Run("a command", func(t *testing.T) {
		p := program("echo", "hi")
		p.SandboxName = name()
		o := run(t, p, brig.IO{})
		wantOutput(t, "stdout", o.Stdout, "hi\n")
		if o.Sandbox != p.SandboxName || o.ExitCode != 0 || o.Error != nil || o.Value != nil {
			t.Errorf("Run = %+v", o)
		}
		_, err := h.Service.Get(h.Context(t), p.SandboxName)
		wantKind(t, "Get of a one-shot that is over", err, brig.NotFound)
		again, err := h.Service.GetRun(h.Context(t), p.SandboxName)
		if err != nil || again.Sandbox != p.SandboxName || string(again.Stdout.Head) != "hi\n" || again.ExitCode != 0 {
			t.Errorf("GetRun = %+v, %v", again, err)
		}
		_, err = h.Other.GetRun(h.OtherContext(t), p.SandboxName)
		wantKind(t, "GetRun of another tenant's", err, brig.NotFound)
	})
	t.Run("a list of runs", func(t *testing.T) {
		first, second := program("echo", "hi"), program("exit", "7")
		first.SandboxName, second.SandboxName = name(), name()
		run(t, first, brig.IO{})
		run(t, second, brig.IO{})
		list := func(svc brig.Service, ctx context.Context, o brig.RunOptions) (names []string, of map[string]*brig.RunSummary) {
			of = map[string]*brig.RunSummary{}
			for more := true; more; more = o.Cursor != "" {
				page, err := svc.Runs(ctx, o)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Runs {
					if r.Sandbox == first.SandboxName || r.Sandbox == second.SandboxName {
						names, of[r.Sandbox] = append(names, r.Sandbox), r
					}
				}
				o.Cursor = page.Next
			}
			return names, of
		}
		names, of := list(h.Service, h.Context(t), brig.RunOptions{Limit: 1})
		if !slices.Equal(names, []string{second.SandboxName, first.SandboxName}) {
			t.Fatalf("Runs lists %q, want the two runs, the last one first", names)
		}
		one, two := of[first.SandboxName], of[second.SandboxName]
		if one.Status != brig.RunSuccess || one.Stdout != 3 || one.Started.IsZero() || two.Status != brig.RunError || two.ExitCode != 7 {
			t.Errorf("Runs = %+v and %+v", one, two)
		}
		if names, _ := list(h.Service, h.Context(t), brig.RunOptions{Statuses: []brig.RunStatus{brig.RunError}}); !slices.Equal(names, []string{second.SandboxName}) {
			t.Errorf("Runs with errors lists %q", names)
		}
		if names, _ := list(h.Other, h.OtherContext(t), brig.RunOptions{}); len(names) > 0 {
			t.Errorf("Runs of another tenant lists %q", names)
		}
		for field, o := range map[string]brig.RunOptions{"status": {Statuses: []brig.RunStatus{"blocked"}}, "limit": {Limit: 1001}, "cursor": {Cursor: "x"}} {
			if _, err := h.Service.Runs(h.Context(t), o); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != field {
				t.Errorf("Runs with an invalid %s: %v", field, err)
			}
		}
	})
	t.Run("streams are captured all the same", func(t *testing.T) {
		var out bytes.Buffer
		o := run(t, program("cat"), brig.IO{Stdin: strings.NewReader("typed"), Stdout: &out})
		if wantOutput(t, "stdout", o.Stdout, "typed"); out.String() != "typed" {
			t.Errorf("the stream was %q", out.String())
		}
	})
	t.Run("an exit code is an outcome", func(t *testing.T) {
		if o := run(t, program("exit", "7"), brig.IO{}); o.ExitCode != 7 || o.TimedOut {
			t.Errorf("%+v, want exit code 7", o.Result)
		}
	})
	t.Run("the environment", func(t *testing.T) {
		p := program("env", "K")
		p.Env = map[string]string{"K": "v w"}
		wantOutput(t, "K", run(t, p, brig.IO{}).Stdout, "v w\n")
	})
	t.Run("time runs out", func(t *testing.T) {
		p := program("sleep", "300")
		p.Timeout = 200 * time.Millisecond
		if o := run(t, p, brig.IO{}); !o.TimedOut || o.ExitCode != 124 || o.Error == nil || o.Error.Code != brig.Timeout.Code() {
			t.Errorf("%+v with error %+v, want one that timed out", o.Result, o.Error)
		}
	})
	t.Run("a caller who goes away ends it", func(t *testing.T) {
		ctx, cancel := context.WithCancel(h.Context(t))
		defer cancel()
		start := time.Now()
		_, err := h.Service.Run(ctx, program("sleep", "300"), brig.IO{Started: func(string) { cancel() }})
		wantKind(t, "Run whose caller went away", err, brig.Canceled)
		if took := time.Since(start); took > timeout {
			t.Errorf("Run took %v to notice that its caller went away", took)
		}
	})
	if h.Real {
		t.Run("values", h.testValues)
		t.Run("files", h.testFiles)
		t.Run("grace", h.testGrace)
	}
	eventually(t, "the end of every one-shot", func() bool {
		page, err := h.Service.List(h.Context(t), brig.ListOptions{Labels: mark})
		return err == nil && len(page.Sandboxes) == 0
	})
}

// testValues checks the arguments and the return value of main. It needs Python.
func (h Harness) testValues(t *testing.T) {
	for what, c := range map[string]struct{ code, arguments, value, output string }{
		"a value":     {"def main(name, n):\n    print('out')\n    return {'greeting': name * n}", `{"name":"ab","n":2}`, `{"greeting":"abab"}`, "out\n"},
		"async":       {"async def main(x):\n    return [x, None, 1.5]", `{"x":"é"}`, `["é",null,1.5]`, ""},
		"null":        {"def main():\n    return None", `{}`, `null`, ""},
		"just code":   {"print(6*7)", ``, ``, "42\n"},
		"no trickery": {"def main():\n    print('{\"value\": 1}')\n    return 2", `{}`, `2`, "{\"value\": 1}\n"},
	} {
		t.Run(what, func(t *testing.T) {
			p := brig.Program{Language: brig.Python, Code: c.code}
			if c.arguments != "" {
				p.Arguments = json.RawMessage(c.arguments)
			}
			o, err := h.Service.Run(h.Context(t), p, brig.IO{})
			if err != nil {
				t.Fatalf("Run: %v", err)
			}
			if o.Error != nil || o.ExitCode != 0 {
				t.Errorf("error %+v, exit code %d, stderr %s", o.Error, o.ExitCode, o.Stderr.Head)
			}
			wantOutput(t, "stdout", o.Stdout, c.output)
			if (o.Value == nil) != (c.value == "") || c.value != "" && !sameJSON(t, o.Value, c.value) {
				t.Errorf("the value is %s, want %s", o.Value, c.value)
			}
		})
	}
	o, err := h.Service.Run(h.Context(t), brig.Program{
		Language: brig.Python, Code: "def main():\n    raise ValueError('no good')", Arguments: json.RawMessage(`{}`),
	}, brig.IO{})
	if err != nil || o.Error == nil || o.Error.Name != "ValueError" || o.Error.Message != "no good" || o.Error.Traceback == "" || o.ExitCode == 0 {
		t.Errorf("an exception is %+v, %v", o, err)
	}
}

// testGrace checks how code that exceeds its timeout ends. One program handles the
// signal, and the other must be killed. It needs Python.
func (h Harness) testGrace(t *testing.T) {
	for what, c := range map[string]struct {
		code   string
		grace  time.Duration
		signal string
	}{
		"who knows nothing ends": {"import time\ntime.sleep(300)", 5 * time.Minute, ""},
		"who hears it ends":      {"import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(0))\ntime.sleep(300)", 5 * time.Minute, ""},
		"who does not is killed": {"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(300)", 300 * time.Millisecond, "SIGKILL"},
	} {
		t.Run(what, func(t *testing.T) {
			start := time.Now()
			o, err := h.Service.Run(h.Context(t), brig.Program{Language: brig.Python, Code: c.code, Timeout: 2 * time.Second, Grace: c.grace}, brig.IO{})
			if err != nil {
				t.Fatalf("Run: %v", err)
			}
			if !o.TimedOut || o.ExitCode != 124 || o.Signal != c.signal || o.Error == nil || o.Error.Code != brig.Timeout.Code() {
				t.Errorf("%+v with error %+v, want one that timed out and was ended by %q", o.Result, o.Error, c.signal)
			}
			if took := time.Since(start); took > 2*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Errorf("the value %q is not JSON: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(g, w)
}

// testFiles checks that a program receives files and returns artifacts.
func (h Harness) testFiles(t *testing.T) {
	data := []byte("a,b\n\x00\xff\n")
	o, err := h.Service.Run(h.Context(t), brig.Program{
		Language: brig.Bash,
		Code:     "set -e; mkdir -p artifacts; cat in/data.bin > artifacts/out.csv; test -x tool.sh; echo no > artifacts/out.exe",
		Files:    []brig.File{{Path: "in/data.bin", Data: data}, {Path: "tool.sh", Data: []byte("#!/bin/sh\n"), Mode: 0o755}},
	}, brig.IO{})
	if err != nil || o.ExitCode != 0 {
		t.Fatalf("Run = %+v, %v", o, err)
	}
	if len(o.Artifacts) != 1 || o.Artifacts[0].Path != "out.csv" || !bytes.Equal(o.Artifacts[0].Data, data) {
		t.Errorf("the artifacts are %+v", o.Artifacts)
	}
}
