package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// writingProgram is a program with its expected output.
type writingProgram struct {
	language brig.Language
	code     string
	stdout   string // exact
	stderr   string
}

// xLine returns a line of n times the letter x.
func xLine(n int) string { return strings.Repeat("x", n) + "\n" }

// wholeWrites are programs that make single writes larger than the capacity of a pipe.
var wholeWrites = []writingProgram{
	{language: brig.JavaScript, code: "console.log('x'.repeat(300000)); process.exit(0)", stdout: xLine(300000)},
	{language: brig.JavaScript, code: "console.error('x'.repeat(300000)); process.exit(0)", stderr: xLine(300000)},
	{language: brig.JavaScript, code: "process.stdout.write('x'.repeat(200000)); process.stdout.write('x'.repeat(200000) + '\\n')", stdout: xLine(400000)},
	{language: brig.Python, code: "import os, sys\nn = os.write(1, b'x' * 500000 + b'\\n')\nprint(n, file=sys.stderr)", stdout: xLine(500000), stderr: "500001\n"},
	{language: brig.Python, code: "import os, sys\nn = os.writev(2, [b'x' * 200000, b'x' * 200000, b'\\n'])\nprint(n)", stdout: "400001\n", stderr: xLine(400000)},
	{language: brig.Python, code: "import ctypes\nprint(ctypes.CDLL(None).write(2, b'x' * 400000 + b'\\n', 400001))", stdout: "400001\n", stderr: xLine(400000)},
	{language: brig.Bash, code: `printf '%0300000d\n' 0 | tr 0 x`, stdout: xLine(300000)},
	{language: brig.Bash, code: `printf '%0300000d\n' 0 | tr 0 x >&2`, stderr: xLine(300000)},
}

// createOutputBox creates a sandbox with the given number of CPUs and returns its name.
func createOutputBox(t *testing.T, s brig.Service, ctx context.Context, cpus float64) string {
	t.Helper()
	name := fmt.Sprintf("output-%d", int(100*cpus))
	if _, err := s.Create(ctx, brig.Spec{Name: name, TTL: 30 * time.Minute, Limits: brig.Limits{CPUs: cpus}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// describeDifference describes how an output differs from the expected output, or returns "".
func describeDifference(got brig.Output, want string) string {
	if all := string(got.Head) + string(got.Tail); got.Total != int64(len(want)) || all != want {
		return fmt.Sprintf("%d bytes instead of %d, %.20q…", got.Total, len(want), all)
	}
	return ""
}

// outputCPUs returns the CPU limits of the sandboxes in which output is tested.
func outputCPUs() []float64 {
	if testenv.IsFull() {
		return []float64{0.25, 1, 2}
	}
	return []float64{0.25}
}

// TestOutputIsComplete verifies for runs, commands and contexts of each language that a single
// write of any length is complete, as Linux guarantees for a blocking pipe, and that each cell
// receives its own output.
//
//suite:part core
func TestOutputIsComplete(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "1"))
	c, ctx := s.client(), t.Context()
	for _, cpus := range outputCPUs() {
		name := createOutputBox(t, c, ctx, cpus)
		for range max(testenv.Size(1, 40), outputRepeats(t)) {
			for _, w := range wholeWrites {
				o, err := c.Run(ctx, brig.Program{Language: w.language, Code: w.code, Limits: brig.Limits{CPUs: cpus}, Timeout: promptTimeout}, brig.IO{})
				if err != nil || o.ExitCode != 0 {
					t.Fatalf("%g CPUs, run %s: %+v, %v", cpus, w.code, o, err)
				}
				if d := describeDifference(o.Stdout, w.stdout) + describeDifference(o.Stderr, w.stderr); d != "" {
					t.Errorf("%g CPUs, run %s: %s", cpus, w.code, d)
				}
				if strings.Contains(w.code, "exit") {
					continue // the program would end its context
				}
				for _, cell := range []writingProgram{w, {language: w.language, code: map[brig.Language]string{
					brig.JavaScript: "console.log('mine')", brig.Python: "print('mine')", brig.Bash: "echo mine",
				}[w.language], stdout: "mine\n"}} {
					r, err := c.RunCode(ctx, name, brig.Code{Language: cell.language, Source: cell.code, Timeout: promptTimeout}, nil)
					if err != nil || r.Error != nil {
						t.Fatalf("%g CPUs, cell %s: %+v, %v", cpus, cell.code, r, err)
					}
					if d := describeDifference(r.Stdout, cell.stdout) + describeDifference(r.Stderr, cell.stderr); d != "" {
						t.Errorf("%g CPUs, cell %s: %s", cpus, cell.code, d)
					}
				}
			}
			for _, cell := range []writingProgram{
				{code: "console.log('x'.repeat(300000))", stdout: xLine(300000)}, {code: "console.error('x'.repeat(300000))", stderr: xLine(300000)},
				{code: "for (let i = 0; i < 50; i++) console.log('x'.repeat(9999))", stdout: strings.Repeat(xLine(9999), 50)},
				{code: "console.log('mine')", stdout: "mine\n"},
			} {
				r, err := c.RunCode(ctx, name, brig.Code{Language: brig.JavaScript, Source: cell.code, Timeout: promptTimeout}, nil)
				if err != nil || r.Error != nil {
					t.Fatalf("%g CPUs, cell %s: %+v, %v", cpus, cell.code, r, err)
				}
				if d := describeDifference(r.Stdout, cell.stdout) + describeDifference(r.Stderr, cell.stderr); d != "" {
					t.Errorf("%g CPUs, cell %s: %s", cpus, cell.code, d)
				}
			}
		}
	}
}

// TestNonBlockingWritesAreShort is the control of TestOutputIsComplete. In gVisor, as on Linux, a
// write to a descriptor with O_NONBLOCK writes only as many bytes as fit into the pipe. A write to a
// pipe without a reader ends the program.
//
//suite:part core
func TestNonBlockingWritesAreShort(t *testing.T) {
	e, ctx := newEngine(t)
	o, err := e.Run(ctx, brig.Program{Language: brig.Python, Code: "import os, sys\nos.set_blocking(1, False)\nn = os.write(1, b'x' * 3000000)\nprint(0 < n < 3000000, file=sys.stderr)"}, brig.IO{})
	if err != nil || o.ExitCode != 0 || string(o.Stderr.Head) != "True\n" {
		t.Errorf("not blocking: %+v, %v", o, err)
	}
	o, err = e.Run(ctx, brig.Program{Command: []string{"sh", "-c", "dd if=/dev/zero bs=1M count=3 status=none | head -c 1 >/dev/null; echo survived"}}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != "survived\n" {
		t.Errorf("without a reader: %+v, %v", o, err)
	}
}

// TestStreamsCanBeOpenedByName verifies that a program can open its standard streams by name, as its own
// user and as root, regardless of how it is started.
//
//suite:part core
func TestStreamsCanBeOpenedByName(t *testing.T) {
	e, ctx := newEngine(t)
	name, ps := createWithProcesses(t, e, ctx)
	const script = "echo one >/dev/stdout && echo two >/dev/stderr && echo three | cat /dev/stdin && echo four | tee /dev/stderr >/proc/self/fd/1"
	const stdout, stderr = "one\nthree\nfour\n", "two\nfour\n"
	for _, user := range []string{"", "root"} {
		var out, errs bytes.Buffer
		sio := brig.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
		if res, err := e.Exec(ctx, name, brig.Command{Shell: script, User: user}, sio); err != nil || res.ExitCode != 0 || out.String() != stdout || errs.String() != stderr {
			t.Errorf("command of %q: %+v, %v, %q, %q", user, res, err, &out, &errs)
		}
		out.Reset()
		errs.Reset()
		if o, err := e.Run(ctx, brig.Program{Command: []string{"sh", "-c", script}, User: user}, sio); err != nil || o.ExitCode != 0 || out.String() != stdout || errs.String() != stderr {
			t.Errorf("command of a run of %q: %+v, %v, %q, %q", user, o, err, &out, &errs)
		}
		p := start(t, ctx, ps, brig.ProcessSpec{Command: brig.Command{Shell: script, User: user}})
		h, done := listen(ctx, ps, p.PID, 0)
		if err := <-done; err != nil || h.stdout.String() != stdout || h.stderr.String() != stderr {
			t.Errorf("process of %q: %v, %q, %q", user, err, &h.stdout, &h.stderr)
		}
	}
	for language, code := range map[brig.Language]string{
		brig.Bash:       script,
		brig.Python:     "import subprocess\nsubprocess.run(" + fmt.Sprintf("%q", script) + ", shell=True, check=True)",
		brig.JavaScript: "require('child_process').execSync(" + fmt.Sprintf("%q", script) + ", {stdio: 'inherit'})",
	} {
		o, err := e.Run(ctx, brig.Program{Language: language, Code: code}, brig.IO{})
		if err != nil || o.ExitCode != 0 || describeDifference(o.Stdout, stdout)+describeDifference(o.Stderr, stderr) != "" {
			t.Errorf("run of %s: %+v, %v", language, o, err)
		}
		if language == brig.Python {
			code = "open('/dev/stdout', 'w').write('one\\nthree\\nfour\\n'); open('/dev/stderr', 'w').write('two\\nfour\\n'); None"
		}
		r, err := e.RunCode(ctx, name, brig.Code{Language: language, Source: code}, nil)
		if err != nil || r.Error != nil || describeDifference(r.Stdout, stdout)+describeDifference(r.Stderr, stderr) != "" {
			t.Errorf("cell of %s: %+v, %v", language, r, err)
		}
	}
	box, err := e.Create(ctx, brig.Spec{Name: "main", TTL: time.Minute, Command: &brig.Command{Shell: script + " && sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the main program writes by name", func() bool {
		r, err := e.Logs(ctx, box.Spec.Name, brig.LogOptions{})
		if err != nil {
			return false
		}
		defer r.Close()
		log, err := io.ReadAll(r)
		return err == nil && strings.Count(string(log), "four\n") == 2 && strings.Contains(string(log), "two\n")
	})
}

// TestOutputIncludesOutlivingChildren verifies that a program's output includes the output of child
// processes that outlive it, as in a shell pipeline. A child that never ends only delays the
// result.
//
//suite:part core
func TestOutputIncludesOutlivingChildren(t *testing.T) {
	e, ctx := newEngine(t)
	const forked = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'print(5)'])"
	const detached = "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.execlp('sh', 'sh', '-c', 'sleep 0.2; echo late')\n    os._exit(0)"
	const spawned = "require('child_process').spawn('sh', ['-c', 'sleep 0.2; echo late'], {stdio: 'inherit', detached: true}).unref()"
	for _, cpus := range outputCPUs() {
		name := createOutputBox(t, e, ctx, cpus)
		for range max(testenv.Size(1, 40), outputRepeats(t)) {
			for _, w := range []writingProgram{
				{language: brig.Bash, code: "exec > >(tee -a log) 2>&1; echo hello", stdout: "hello\n"},
				{language: brig.Bash, code: "exec > >(while read -r line; do echo \"at $line\"; done); echo hello", stdout: "at hello\n"},
				{language: brig.Bash, code: "(sleep 0.2; echo late) & echo now", stdout: "now\nlate\n"},
				{language: brig.Python, code: forked, stdout: "5\n"}, {language: brig.Python, code: detached, stdout: "late\n"},
				{language: brig.Python, code: forked + "\nimport os; os._exit(0)", stdout: "5\n"},
				{language: brig.JavaScript, code: spawned, stdout: "late\n"}, {language: brig.JavaScript, code: spawned + "; process.exit(0)", stdout: "late\n"},
			} {
				o, err := e.Run(ctx, brig.Program{Language: w.language, Code: w.code, Limits: brig.Limits{CPUs: cpus}, Timeout: promptTimeout}, brig.IO{})
				if err != nil || o.ExitCode != 0 || describeDifference(o.Stdout, w.stdout) != "" {
					t.Errorf("%g CPUs, run %s: %+v, %v", cpus, w.code, o, err)
				}
				argv := map[brig.Language][]string{brig.Bash: {"bash", "-c", w.code}, brig.Python: {"python3", "-c", w.code}, brig.JavaScript: {"node", "-e", w.code}}[w.language]
				var out bytes.Buffer
				res, err := e.Exec(ctx, name, brig.Command{Argv: argv, Timeout: promptTimeout}, brig.IO{Stdout: &out})
				if err != nil || res.ExitCode != 0 || out.String() != w.stdout {
					t.Errorf("%g CPUs, command %s: %+v, %v, %q", cpus, w.code, res, err, &out)
				}
			}
		}
	}
	// Children that never end outlive their command, even if its timeout is shorter than the wait
	// for their output.
	name, _ := createWithProcesses(t, e, ctx)
	for _, timeout := range []time.Duration{2 * time.Second, 2 * promptTimeout} {
		var out bytes.Buffer
		res, err := e.Exec(ctx, name, brig.Command{Shell: "sleep 1001 & echo now", Timeout: timeout}, brig.IO{Stdout: &out})
		if err != nil || res.ExitCode != 0 || res.TimedOut || out.String() != "now\n" {
			t.Errorf("%v: %+v, %v, %q", timeout, res, err, &out)
		}
	}
	var out bytes.Buffer
	if _, err := e.Exec(ctx, name, brig.Command{Shell: "pgrep -fc '^sleep 1001'"}, brig.IO{Stdout: &out}); err != nil || out.String() != "2\n" {
		t.Errorf("%v; of two children left behind, %q are left", err, &out)
	}
	// The children of a run end with its sandbox, and do not affect the result.
	for _, p := range []brig.Program{
		{Language: brig.Bash, Code: "mkdir -p artifacts; echo a >artifacts/a.csv; sleep 1001 & echo now", Timeout: 4 * time.Second, Grace: time.Second},
		{Language: brig.Python, Code: "import os, subprocess\nos.makedirs('artifacts')\nopen('artifacts/a.csv', 'w').close()\nprint('now', flush=True)\nsubprocess.Popen(['sleep', '1001'])\nos._exit(0)", Timeout: 4 * time.Second},
	} {
		o, err := e.Run(ctx, p, brig.IO{})
		if err != nil || o.ExitCode != 0 || o.TimedOut || o.Error != nil || string(o.Stdout.Head) != "now\n" || p.Language == brig.Bash && len(o.Artifacts) != 1 {
			t.Errorf("a child that outlives %s: %+v, %v", p.Code, o, err)
		}
	}
	if o, err := e.Run(ctx, brig.Program{Language: brig.Bash, Code: "yes & echo now"}, brig.IO{}); err != nil || o.ExitCode != 0 || !strings.Contains(string(o.Stdout.Head), "now\n") {
		t.Errorf("a child that floods: %+v, %v", o.Result.ExitCode, err)
	}
}
