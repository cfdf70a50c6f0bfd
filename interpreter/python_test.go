package interpreter_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// python returns the interpreter under test: BRIG_TEST_PYTHON, or the system's.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("BRIG_TEST_PYTHON"), "/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil && name != "" {
			return path
		}
	}
	t.Skip("python3 is not installed")
	return ""
}

// skipWithoutModules skips a test if the interpreter under test lacks one of the modules.
func skipWithoutModules(t *testing.T, modules ...string) {
	t.Helper()
	for _, m := range modules {
		if err := exec.Command(python(t), "-c", "import "+m).Run(); err != nil {
			t.Skipf("Python's %s is not installed", m)
		}
	}
}

func startPython(t *testing.T, env ...string) *driver {
	t.Helper()
	d := startDriver(t, []string{python(t), driverFile(t, "python.py")}, env)
	d.awaitReady()
	return d
}

// runFlavors runs a test both with plain Python and with IPython.
func runFlavors(t *testing.T, test func(t *testing.T, start func(t *testing.T) *driver, flavor string)) {
	t.Run("cpython", func(t *testing.T) {
		test(t, func(t *testing.T) *driver { return startPython(t, "BRIG_NO_IPYTHON=1") }, "cpython")
	})
	t.Run("ipython", func(t *testing.T) {
		skipWithoutModules(t, "IPython")
		test(t, func(t *testing.T) *driver { return startPython(t) }, "ipython")
	})
}

// cellCase is one cell and its expected results. An empty field means that the result is absent.
// A text that begins with "~" is a substring of the expected result.
type cellCase struct {
	name           string
	code           string
	result         string   // text/plain
	shown          []string // text/plain of each display
	updates        string   // one digit per display with an ID: 1 for an update, otherwise 0
	stdout, stderr string
	error          string // the error's name
	value          string
	trace          string
	flavor         string // empty for both flavors
}

// pythonCells are cells that run in one interpreter, in this order.
var pythonCells = []cellCase{
	{name: "value", code: "1+1", result: "2"},
	{name: "none", code: "None"},
	{name: "silenced", code: "1; # it is\n"},
	{name: "silenced last", code: "x = 5\nx;  # quiet"},
	{name: "semicolon in text", code: "';'", result: "';'"},
	{name: "state", code: "x", result: "5"},
	{name: "underscores", code: "(_, __, Out[1], In[1])", result: "(5, ';', 2, '1+1')"},
	{name: "empty", code: ""},
	{name: "output", code: "import sys\nprint('out', 'put')\nprint('err', file=sys.stderr)", stdout: "out put\n", stderr: "err\n"},
	{name: "unfinished line", code: "print('a', end='')", stdout: "a"},
	{name: "bytes", code: "sys.stdout.buffer.write(b'raw\\n');", stdout: "raw\n"},
	{name: "the buffer of a C library", code: "import ctypes\nctypes.CDLL(None).printf(b'c');", stdout: "c"},
	{name: "the buffer of a C library again", code: "ctypes.CDLL(None).printf(b'c\\n');", stdout: "c\n"},
	{name: "not ASCII", code: "print('é😀'); 'ü😀\\ud800\"\\\\'", stdout: "é😀\n", result: "~ü😀"},
	{
		name: "a stream that cannot flush", code: "class Tee:\n    def write(self, text): sys.__stdout__.write(text)\nsys.stdout = Tee()\nprint('tee')\n!echo shell\ndisplay(1)",
		stdout: "tee\nshell\n", shown: []string{"1"},
	},
	{name: "no stream", code: "sys.stdout = sys.stderr = None"},
	{name: "streams again", code: "sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__\nprint(1)", stdout: "1\n"},
	{name: "descriptor", code: "import os\nos.write(1, b'fd\\n');", stdout: "fd\n"},
	{name: "child", code: "import subprocess\nprint(1)\nsubprocess.run('echo 2; [ -e /proc/$$/fd/3 ] && echo leaked', shell=True);\nprint(3)", stdout: "1\n2\n3\n"},
	{name: "display", code: "display(1)\ndisplay('a', 2)\n3", shown: []string{"1", "'a'", "2"}, result: "3"},
	{name: "display again", code: "h = display(1, display_id=True)\nh.update('a')\nlen(h.display_id)", shown: []string{"1", "'a'"}, updates: "01", result: "32"},
	{name: "display in a later cell", code: "from IPython.display import update_display, clear_output\nclear_output()\nupdate_display(2, display_id=h.display_id)", shown: []string{"2"}, updates: "1", flavor: "ipython"},
	{name: "display by an id", code: "display(1, display_id='me')", shown: []string{"1"}, updates: "0", result: "<DisplayHandle display_id=me>"},
	{
		name: "error", code: "def f():\n    return 1/0\n\nf()",
		error: "ZeroDivisionError", value: "division by zero", trace: "~    return 1/0",
	},
	{name: "error calls", code: "f()", error: "ZeroDivisionError", value: "division by zero", trace: "~f()"},
	{name: "chain", code: "try:\n    f()\nexcept Exception as e:\n    raise KeyError('k') from e", error: "KeyError", value: "'k'", trace: "~The above exception was the direct cause"},
	{name: "syntax", code: "a = (1,\nb = 3)", error: "SyntaxError", value: "~", trace: "~^"},
	{name: "broken str", code: "class E(Exception):\n    def __str__(self): 1/0\nraise E", error: "E", value: "~unprintable", flavor: "cpython"},
	{name: "exit", code: "exit()", error: "SystemExit"},
	{name: "exit code", code: "import sys; sys.exit(3)", error: "SystemExit", value: "3"},
	{name: "exit with a code", code: "exit(2)", error: "SystemExit", value: "2"},
	{name: "quit with a text", code: "quit('why')", error: "SystemExit", value: "why"},
	{name: "exit alone", code: "exit", error: "SystemExit", flavor: "ipython"},
	{name: "lives on", code: "x", result: "5"},
	{name: "input", code: "input('name? ')", stdout: "name? ", error: "StdinNotImplementedError", value: "~no standard input"},
	{name: "input of children", code: "subprocess.run(['cat']).returncode", result: "0"},
	{name: "broken repr", code: "class R:\n    def __repr__(self): 1/0\nR()", result: "~R"},
	{name: "main", code: "__name__", result: "'__main__'"},
	{name: "source", code: "import inspect\nprint(inspect.getsource(f), end='')", stdout: "def f():\n    return 1/0\n"},
	{name: "pickle", code: "class P:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(P()))) is P", result: "True"},
	{name: "future", code: "from __future__ import annotations\ndef g(a: nothing): pass"},
	{name: "future stays", code: "def g(a: nothing): pass\ng.__annotations__", result: "{'a': 'nothing'}"},
	{name: "builtins", code: "import builtins, io\nopen is io.open and __builtins__ in (builtins, builtins.__dict__)", result: "True", flavor: "cpython"},
	{name: "search path", code: "import sys\n[p for p in sys.path if 'driver' in p], sys.path[0] == os.getcwd()", result: "([], True)"},
	{name: "await", code: "import asyncio\nawait asyncio.sleep(0, 'slept')", result: "'slept'"},
	{name: "await error", code: "async def fails():\n    raise ValueError('v')\nawait fails()", error: "ValueError", value: "v", trace: "~raise ValueError('v')"},
	{name: "task", code: "async def late():\n    await asyncio.sleep(0.05)\n    return 'late'\ntask = asyncio.ensure_future(late())\nawait asyncio.sleep(0)"},
	{name: "asyncio.run", code: "asyncio.run(late())", result: "'late'", flavor: "cpython"},
	{name: "task of before", code: "await task", result: "'late'"},
	{name: "task without await", code: "begun = asyncio.create_task(late(), name='n')\nbegun.done(), begun.get_name()", result: "(False, 'n')"},
	{name: "task while idle", code: "import time; time.sleep(0.1)"},
	{name: "task of before", code: "await begun", result: "'late'"},
	{name: "task in a thread", code: "import threading, concurrent.futures\nwith concurrent.futures.ThreadPoolExecutor(1) as pool:\n    work = late()\n    why = pool.submit(lambda: asyncio.create_task(work)).exception()\nwork.close(); str(why)", result: "'no running event loop'"},
	{name: "async for", code: "async def gen():\n    yield 1\n[i async for i in gen()]", result: "[1]"},
	{name: "fork", code: "pid = os.fork()\nif pid == 0:\n    print('child')\n    display('child')\nelse:\n    os.waitpid(pid, 0)\n    print('parent')", stdout: "child\nparent\n"},
	{name: "forked exit", code: "pid = os.fork()\nif pid == 0:\n    sys.exit(7)\nos.waitpid(pid, 0)[1] >> 8", result: "7"},
	{
		name: "processes", code: "import multiprocessing\ndef double(n): return 2*n\nwith multiprocessing.get_context('fork').Pool(2) as p:\n    r = p.map(double, [1, 2])\nr",
		result: "[2, 4]",
	},
	{name: "thread", code: "import threading\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()", stdout: "t\n"},
	{name: "shell", code: "word = 'w'\n!echo $word {x + 1}; echo err >&2", stdout: "w 6\n", stderr: "err\n"},
	{name: "shell lines", code: "lines = !printf 'a\\nb\\n'\nlist(lines)", result: "['a', 'b']"},
	{name: "shell in a block", code: "for i in range(2):\n    !echo $i", stdout: "0\n1\n"},
	{name: "no magic in text", code: "s = '''\n!ls\n%nope\n'''\n(7\n %4, s)", result: "(3, '\\n!ls\\n%nope\\n')"},
	{name: "line numbers", code: "!true \\\n  ;\n1/0", error: "ZeroDivisionError", value: "division by zero", trace: "~1/0"},
	{name: "unknown magic", code: "%nope", error: "UsageError", value: "Line magic function `%nope` not found.", trace: "~UsageError: Line magic"},
	{name: "cd", code: "home = %pwd\n%cd /usr\n%pwd", stdout: "/usr\n", result: "'/usr'"},
	{name: "cd stays", code: "print(os.getcwd())\nos.chdir(home)", stdout: "/usr\n"},
	{name: "env", code: "%env BRIG_X=1\nos.environ['BRIG_X']", stdout: "env: BRIG_X=1\n", result: "'1'"},
	{name: "bash", code: "%%bash\nfor i in 1 2; do\n  echo $i\ndone", stdout: "1\n2\n"},
	{name: "bash fails", code: "%%bash\nexit 3", error: "CalledProcessError", value: "~exit status 3"},
	{name: "writefile", code: "%%writefile f.txt\nline\n%no magic\n", stdout: "Writing f.txt\n"},
	{name: "written", code: "open('f.txt').read()", result: "'line\\n%no magic\\n'"},
	{name: "time", code: "%time 1 + 1", stdout: "~Wall time", result: "2"},
	{name: "timeit", code: "%timeit -n1 -r 2 pass", stdout: "~of 2 runs, 1 loop"},
	{name: "timeit of a cell", code: "%%timeit -n 2 -r2 a = 1\nassert a == 1", stdout: "~of 2 runs, 2 loops"},
	{name: "bash with options", code: "%%bash --out got\necho no", error: "UsageError", value: "~takes no options here: --out got", flavor: "cpython"},
	{name: "inline", code: "%matplotlib inline", flavor: "cpython"},
	{name: "who", code: "%who", stdout: "~word", flavor: "cpython"},
	{name: "pip", code: "%pip --version", stdout: "~pip "},
	{name: "reset", code: "%reset -f"},
	{name: "was reset", code: "x", error: "NameError", value: "~'x'"},
	{
		name: "a long result is cut as IPython cuts it", flavor: "ipython",
		code: "list(range(10**6))", result: "~ 999,\n ...]",
	},
}

func TestPythonCellsReturnResults(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, flavor string) {
		d := start(t)
		count := 0
		for _, c := range pythonCells {
			if c.flavor != "" && c.flavor != flavor {
				continue
			}
			count++
			t.Run(c.name, func(t *testing.T) { c.check(t, d, count) })
		}
	})
}

func (c cellCase) check(t *testing.T, d *driver, count int) {
	d.t = t
	messages, stdout, stderr := d.runCell(c.code)
	if messages[0].Type != "started" || messages[0].Count != count && count > 0 {
		t.Errorf("began with %+v, want started %d", messages[0], count)
	}
	result, failure := interpreter.Message{}, interpreter.Message{}
	for _, m := range filterMessages(messages, "result") {
		result = m
	}
	for _, m := range filterMessages(messages, "error") {
		failure = m
	}
	checkText(t, "result", representationOf(result, "text/plain"), c.result)
	checkText(t, "stdout", stdout, c.stdout)
	checkText(t, "stderr", stderr, c.stderr)
	checkText(t, "error", failure.Name, c.error)
	checkText(t, "value", failure.Value, c.value)
	if c.trace != "" || c.error == "" {
		checkText(t, "traceback", failure.Traceback, c.trace)
	}
	if strings.Contains(failure.Traceback, "driver/python") || strings.Contains(failure.Traceback, "\x1b") {
		t.Errorf("the traceback shows the driver, or colors:\n%s", failure.Traceback)
	}
	var shown []string
	updates := ""
	for _, m := range filterMessages(messages, "display") {
		shown = append(shown, representationOf(m, "text/plain"))
		if m.DisplayID != "" {
			updates += map[bool]string{false: "0", true: "1"}[m.Update]
		}
	}
	if strings.Join(shown, "|") != strings.Join(c.shown, "|") {
		t.Errorf("displays %q, want %q", shown, c.shown)
	}
	checkText(t, "updates", updates, c.updates)
}

// checkText compares a text with the expected one (see cellCase).
func checkText(t *testing.T, what, got, want string) {
	t.Helper()
	if part, ok := strings.CutPrefix(want, "~"); ok {
		if got == "" || !strings.Contains(got, part) {
			t.Errorf("%s: %q does not contain %q", what, got, part)
		}
	} else if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Messages and output arrive in order, and before the end of the cell.
func TestPythonOutputArrivesInOrder(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.send(interpreter.Request{Op: "cell", Code: "import time\nprint('half', end='')\ntime.sleep(600)"})
		d.readMessage()
		d.out.await(t, "half") // while the cell runs
		d.interrupt()
		d.finish()
		// A signal that arrives just before a sleep begins does not interrupt
		// it: Python handles the signal after the sleep.
		d.send(interpreter.Request{Op: "cell", Code: "print('before')\ndisplay(1)\nwhile True: time.sleep(0.01)"})
		d.readMessage()
		if m := d.readMessage(); m.Type != "display" || d.out.take() != "before\n" {
			t.Errorf("received %+v before the output that preceded it", m)
		}
		d.interrupt()
		d.finish()
	})
}

// An uncounted cell has the number of the previous cell, and does not change the history or the
// values of earlier results.
func TestPythonUncountedCellKeepsHistory(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.runCell("'first'")
		messages, _, stderr := d.sendRequest(interpreter.Request{Op: "cell", Code: "x = 1\n'not counted'", Uncounted: true})
		if started, result := filterMessages(messages, "started"), filterMessages(messages, "result"); len(started) != 1 || started[0].Count != 1 || len(result) != 1 || stderr != "" {
			t.Errorf("%+v %s", messages, stderr)
		}
		messages, _, _ = d.runCell("(x, Out[1], In[1], In[2][:1])")
		if started, result := filterMessages(messages, "started"), filterMessages(messages, "result"); started[0].Count != 2 || representationOf(result[0], "text/plain") != `(1, 'first', "'first'", '(')` {
			t.Errorf("afterwards: %+v", messages)
		}
	})
}

func TestPythonInterruptEndsCell(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.runCell("import time, asyncio, subprocess")
		for _, code := range []string{
			"print('go'); time.sleep(60)",
			"print('go')\nwhile True: pass",
			"print('go')\nawait asyncio.sleep(60)",
			"print('go')\nsubprocess.run(['sleep', '60'])",
			"!echo go; sleep 60",
			"print('go')\nwhile True: display(1)",
			// Python does not raise exceptions in __del__.
			"class D:\n    def __del__(self):\n        print('go')\n        end = time.time() + 1\n        while time.time() < end: pass\nD()\nwhile True: pass",
		} {
			d.interrupt() // no cell is running, so it is ignored
			d.send(interpreter.Request{Op: "cell", Code: code})
			d.out.await(t, "go")
			d.interrupt()
			messages, _, _ := d.finish()
			if errs := filterMessages(messages, "error"); len(errs) != 1 || errs[0].Name != "KeyboardInterrupt" {
				t.Errorf("%s: %+v", code, errs)
			}
		}
		for range 50 {
			d.send(interpreter.Request{Op: "cell", Code: "1"})
			d.interrupt() // at a random moment of a cell
			d.finish()
			d.interrupt()
			d.interrupt()
		}
		if messages, _, stderr := d.runCell("2"); len(filterMessages(messages, "result")) != 1 || stderr != "" {
			t.Errorf("after late interrupts: %+v, %s", messages, stderr)
		}
	})
}

// An interrupt that arrives while a display flushes the cell's output still ends the cell.
func TestPythonInterruptDuringFlushEndsCell(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		messages, _, _ := d.runCell("import os, sys\nclass Out:\n    def write(self, text): return len(text)\n    def flush(self):\n        os.kill(os.getpid(), 2)\n        for _ in range(100): pass\nkept = sys.stdout\nsys.stdout = Out()\ndisplay(1)\nmissed = True")
		if errs := filterMessages(messages, "error"); len(errs) != 1 || errs[0].Name != "KeyboardInterrupt" {
			t.Errorf("%+v", errs)
		}
		_, out, _ := d.runCell("sys.stdout = kept\nprint('missed' in globals())")
		checkText(t, "afterwards", out, "False\n")
	})
}

func TestPythonCellAppliesRequestOptions(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.send(interpreter.Request{Op: "ping", Nonce: "é"})
		if m := d.readMessage(); m.Type != "pong" || m.Nonce != "é" {
			t.Errorf("ping: %+v", m)
		}
		d.send(interpreter.Request{Op: "warm", Env: map[string]string{"BRIG_CELLS": "1"}})
		d.runCell("import os; os.environ['B'] = 'old'")
		_, out, _ := d.sendRequest(interpreter.Request{Op: "cell", Env: map[string]string{"A": "1", "B": "2"}, Dir: "/usr", Code: "print(os.environ['A'], os.environ['B'], os.getcwd())"})
		checkText(t, "in the cell", out, "1 2 /usr\n")
		_, out, _ = d.runCell("print(os.environ.get('A'), os.environ['B'], os.getcwd())")
		checkText(t, "after it", out, "None old /usr\n")
		messages, _, _ := d.sendRequest(interpreter.Request{Op: "cell", Dir: "/nowhere", Code: "1"})
		if errs := filterMessages(messages, "error"); len(errs) != 1 || errs[0].Name != "FileNotFoundError" {
			t.Errorf("nonexistent directory: %+v", messages)
		}
		d.send(interpreter.Request{Op: "cell", Code: "os.close(3)"})
		for {
			if _, err := d.read(); err != nil {
				break
			}
		}
		if code := d.wait(); code == 0 {
			t.Errorf("without a channel it ended with 0")
		}
	})
}

// Tasks continue to run between cells.
func TestPythonTasksRunWhileIdle(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		_, out, _ := d.runCell("import asyncio\nasync def tick():\n    for i in range(3):\n        await asyncio.sleep(0.02)\n        print('tick', i)\nt = asyncio.ensure_future(tick())\nawait asyncio.sleep(0)")
		if !strings.Contains(out, "tick 2\n") { // on a slow machine, the tick may come before the end of the cell
			d.out.await(t, "tick 2\n")
		}
		cellCase{code: "t.done()", result: "True"}.check(t, d, 0)
	})
}

// A cell that contains a NUL character fails, and does not affect later cells.
func TestPythonCellWithNULFails(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		messages, _, _ := d.runCell("a = '\x00'")
		if failed := filterMessages(messages, "error"); len(failed) != 1 || !strings.Contains(failed[0].Value, "null bytes") {
			t.Errorf("got messages %+v", messages)
		}
		messages, stdout, stderr := d.runCell("import gc, sys\nsys.last_value = sys.last_traceback = sys.last_exc = None\n_ = gc.collect()\nprint(1)")
		if stdout != "1\n" || stderr != "" || len(filterMessages(messages, "error")) > 0 {
			t.Errorf("the next cell: %+v\nstdout %q\nstderr %q", messages, stdout, stderr)
		}
	})
}

func TestPythonProvidesDisplayWithoutIPython(t *testing.T) {
	d := startDriver(t, []string{python(t), "-S", driverFile(t, "python.py")}, nil) // -S: without packages
	d.awaitReady()
	cellCase{
		code:  "from IPython.display import display, update_display, clear_output, DisplayHandle, HTML\ndisplay(1, display_id='a')\nupdate_display(2, display_id='a')\nclear_output()\nh = DisplayHandle()\nh.display(3)\nh.update(4)",
		shown: []string{"1", "2", "3", "4"}, updates: "0101",
	}.check(t, d, 0)
}

// An overlong representation is omitted, and overlong text is truncated, so that the host accepts
// the message of any display.
func TestPythonOverlongRepresentationsAreOmitted(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.runCell(`class Long:
    def __init__(self, **forms): self.forms = forms
    def __repr__(self): return self.forms['text']
    def _repr_html_(self): return self.forms.get('html')
    def _repr_svg_(self): return self.forms.get('html')
    def _repr_latex_(self): return self.forms.get('html')
    def _repr_markdown_(self): return self.forms.get('html')`)
		for code, want := range map[string]map[string]int{
			"Long(text='x' * (9 << 20))":                            {"text/plain": 8 << 20 / 12},
			"Long(text='\U0001f600' * (3 << 20))":                   {"text/plain": 4 * (8 << 20 / 12)},
			"Long(text='short', html='\\0' * (3 << 20))":            {"text/plain": 5, "text/html": 3 << 20},
			"Long(text='short', html='y' * (9 << 20))":              {"text/plain": 5},
			"Long(text='\u00e9' * (1 << 20), html='y' * (7 << 20))": {"text/plain": 2 << 20, "text/html": 7 << 20, "text/markdown": 7 << 20, "image/svg+xml": 7 << 20},
		} {
			messages, _, stderr := d.runCell(code)
			results := filterMessages(messages, "result")
			if len(results) != 1 {
				t.Fatalf("%s: no result", code)
			}
			for _, mime := range []string{"text/html", "image/svg+xml"} {
				note := strings.Contains(stderr, "brig: "+mime+" of a value is left out")
				if hasHTML := strings.Contains(code, "html="); note != (hasHTML && results[0].Data[mime] == nil) {
					t.Errorf("%s: %s is %d bytes, and standard error is %q", code, mime, len(results[0].Data[mime]), stderr)
				}
			}
			whole := 0
			for mime := range results[0].Data {
				whole += len(results[0].Data[mime])
				if n := len(representationOf(results[0], mime)); n < want[mime] || n > want[mime]+100 || want[mime] == 0 {
					t.Errorf("%s: %d bytes of %s, want %d", code, n, mime, want[mime])
				}
			}
			if whole > brig.MaxOutputSize {
				t.Errorf("%s: %d bytes in total", code, whole)
			}
			for mime := range want {
				if results[0].Data[mime] == nil {
					t.Errorf("%s: no %s", code, mime)
				}
			}
		}
	})
}

func TestPythonRepresentationsAreDisplayed(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, _ string) {
		d := start(t)
		d.runCell(`class T:
    def _repr_html_(self): return '<b>é</b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_jpeg_(self): return b'\xff\xd8\xff'
    def _repr_pdf_(self): return b'%PDF'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1]}
    def _repr_javascript_(self): return 'x()'
class M:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': 'h', 'application/vnd.x+json': {'b': None}}
class Broken:
    def _repr_html_(self): 1/0`)
		for code, want := range map[string]map[string]string{
			"T()": {
				"text/html": "<b>é</b>", "text/markdown": "*m*", "image/svg+xml": "<svg/>", "image/png": "iVBORw==", "image/jpeg": "/9j/",
				"application/pdf": "JVBERg==", "text/latex": "$x$", "application/json": `{"a": [1]}`, "application/javascript": "x()", "text/plain": "~T",
			},
			"M()":              {"text/html": "h", "application/vnd.x+json": `{"b": null}`, "text/plain": "~M"},
			"Broken()":         {"text/plain": "~Broken"},
			"T":                {"text/plain": "~T"},
			"[1, {'a': None}]": {"text/plain": "[1, {'a': None}]", "application/json": `[1, {"a": null}]`},
			"[float('nan')]":   {"text/plain": "[nan]"},
			"[object]":         {"text/plain": "~object"},
			"{'a': {1: 2}}":    {"text/plain": "{'a': {1: 2}}", "application/json": `{"a": {"1": 2}}`},
			"import IPython.display as i; i.HTML('<i>')": {"text/html": "<i>", "text/plain": "~HTML object"},
			"i.Markdown('*')":      {"text/markdown": "*", "text/plain": "~Markdown object"},
			"i.Image(b'\\x89PNG')": {"image/png": "iVBORw==", "text/plain": "~Image object"},
		} {
			if strings.HasPrefix(code, "i.") {
				d.runCell("import IPython.display as i")
			}
			messages, _, _ := d.runCell(code)
			results := filterMessages(messages, "result")
			if len(results) != 1 {
				t.Errorf("%s: %+v", code, messages)
				continue
			}
			for mime, text := range want {
				checkText(t, code+" "+mime, representationOf(results[0], mime), text)
			}
			for mime := range results[0].Data {
				if _, ok := want[mime]; !ok {
					t.Errorf("%s: has %s too: %s", code, mime, representationOf(results[0], mime))
				}
			}
		}
	})
}
