package interpreter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// programCase is one program and its expected results. Texts are as in
// cellCase.
type programCase struct {
	name           string
	code           string
	arguments      string // JSON, empty for none
	exit           int
	returned       string // JSON, empty for no value
	stdout, stderr string
	failure        string // the exception's name
	message        string
}

var pythonPrograms = []programCase{
	{name: "empty", code: ""},
	{name: "script", code: "import sys, os\nprint(__name__, __file__, sys.argv, sys.path[0] == os.getcwd(), 'driver' in str(sys.path))", stdout: "__main__ {dir}/main.py ['main.py'] True False\n"},
	{name: "main", code: "def main():\n    print(__name__)\n    return {'a': [1, None, True, 'é\\ud800']}", stdout: "__main__\n", returned: `{"a": [1, null, true, "\u00e9\ud800"]}`},
	{name: "main returns nothing", code: "def main(): pass", returned: "null"},
	{name: "arguments", code: "def main(a, b=2): return [a, b, __name__]", arguments: `{"a":{"x":"/\u00e9\ud83d\ude00\n"}}`, returned: `[{"x": "/\u00e9\ud83d\ude00\n"}, 2, "main"]`},
	{name: "no arguments at all", code: "def main(**a): return a", arguments: `{}`, returned: `{}`},
	{name: "no main", code: "x = 1", arguments: `{"a":1}`, exit: 1, failure: "NameError", message: "~no function called main", stderr: "~NameError"},
	{name: "wrong arguments", code: "def main(): pass", arguments: `{"a":1}`, exit: 1, failure: "TypeError", message: "~unexpected keyword", stderr: "~TypeError"},
	{name: "main used", code: "def main(): print('once')\nif __name__ == '__main__': main()", stdout: "once\n"},
	{name: "async main", code: "import asyncio\nasync def main(n):\n    await asyncio.sleep(0)\n    return n", arguments: `{"n":7}`, returned: "7"},
	{name: "not JSON", code: "def main(): return object()", exit: 1, failure: "TypeError", message: "~that JSON cannot carry: Object of type object", stderr: "~TypeError"},
	{name: "NaN", code: "def main(): return float('nan')", exit: 1, failure: "TypeError", message: "~Out of range float", stderr: "~TypeError"},
	{name: "error", code: "def f():\n    return {}['k']\nprint('x')\nf()", exit: 1, failure: "KeyError", message: "'k'", stdout: "x\n", stderr: "~    return {}['k']"},
	{name: "syntax", code: "x = (", exit: 1, failure: "SyntaxError", message: "~main.py, line 1", stderr: "~^"},
	{name: "byte order mark", code: "\ufeffprint(1)", stdout: "1\n"},
	{name: "exit", code: "import sys; sys.exit()"},
	{name: "exit code", code: "import sys; sys.exit(258)", exit: 2},
	{name: "exit text", code: "import sys; sys.exit('why')", exit: 1, stderr: "why\n"},
	{name: "exit in main", code: "def main(): raise SystemExit(4)", exit: 4},
	{name: "threads and atexit", code: "import threading, time, atexit\natexit.register(print, 'atexit')\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()", stdout: "thread\natexit\n"},
	{name: "error in atexit", code: "import atexit\natexit.register(lambda: 1/0)", stderr: "~ZeroDivisionError"},
	{name: "finalizers", code: "class A:\n    def __del__(self): print('deleted')\na = A()", stdout: "deleted\n"},
	{name: "closed output", code: "import sys\nprint('x')\nsys.stdout.close()", stdout: "x\n"},
	{name: "no output", code: "import sys\nsys.stdout = None\n1/0", exit: 1, failure: "ZeroDivisionError", message: "division by zero", stderr: "~ZeroDivisionError"},
	{name: "errors that cannot flush", code: "import sys\nclass Log:\n    def write(self, text): sys.__stderr__.write(text)\nsys.stderr = Log()\n1/0", exit: 1, failure: "ZeroDivisionError", message: "division by zero", stderr: "~ZeroDivisionError"},
	{name: "unfinished line", code: "print('x', end='')", stdout: "x"},
	{name: "the buffer of a C library", code: "import ctypes\nctypes.CDLL(None).printf(b'x')", stdout: "x"},
	{name: "broken json", code: "import json\njson.dumps = json.loads = json.JSONEncoder.encode = None\ndef main(): return 'é'", returned: `"\u00e9"`},
	{name: "pickle", code: "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", stdout: "True\n"},
	{name: "processes", code: "import multiprocessing\ndef f(n): return n + 1\nif __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2]))", stdout: "[2, 3]\n"},
	{name: "forked child", code: "import os, sys\nif os.fork() == 0: sys.exit(9)\nprint(os.wait()[1] >> 8)", stdout: "9\n"},
	{name: "child without channel", code: "import subprocess\nprint(subprocess.call('[ -e /proc/$$/fd/3 ]', shell=True))", stdout: "1\n"},
	{name: "input", code: "import sys\nprint(input(), sys.stdin.read())", stdout: "given \n"},
}

func TestPythonProgramsReturnResults(t *testing.T) {
	for _, warm := range []bool{false, true} {
		t.Run(map[bool]string{false: "cold", true: "warm"}[warm], func(t *testing.T) {
			for _, c := range pythonPrograms {
				t.Run(c.name, func(t *testing.T) {
					d := startPython(t)
					if warm {
						d.send(interpreter.Request{Op: "warm"})
					}
					c.check(t, d)
				})
			}
		})
	}
}

// An uncaught exception ends a program as under the plain interpreter, including the call of
// sys.excepthook.
func TestPythonUncaughtExceptionEndsProgram(t *testing.T) {
	hook := "import sys\ndef hook(kind, value, trace):\n    print('hook', kind.__name__, value, trace.tb_frame.f_code.co_name, trace.tb_next)\n    %s\nsys.excepthook = hook\n"
	for name, source := range map[string]string{
		"a hook":                 strings.ReplaceAll(hook, "%s", "pass") + "1/0",
		"a hook that exits":      strings.ReplaceAll(hook, "%s", "sys.exit(7)") + "1/0",
		"a hook that ends well":  strings.ReplaceAll(hook, "%s", "sys.exit()") + "1/0",
		"a hook that fails":      strings.ReplaceAll(hook, "%s", "nowhere") + "1/0",
		"the hook of Python":     strings.ReplaceAll(hook, "%s", "sys.__excepthook__(kind, value, trace)") + "1/0",
		"the same hook":          "import sys\nsys.excepthook = sys.__excepthook__\n1/0",
		"an exit":                strings.ReplaceAll(hook, "%s", "pass") + "sys.exit(3)",
		"the last exception":     "import sys, atexit\natexit.register(lambda: print(sys.last_type, sys.last_value))\nsys.excepthook = lambda *a: None\n1/0",
		"an interrupt":           "raise KeyboardInterrupt",
		"a signal":               "import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(10)",
		"a hook of an interrupt": strings.ReplaceAll(hook, "%s", "pass") + "raise KeyboardInterrupt",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startPython(t)
			end, code, stdout, stderr := d.runProgram(interpreter.Request{Code: source})
			exit, wantOut, wantErr := runPlain(t, python(t), "main.py", source)
			// These parts differ between the traceback module and the interpreter.
			differs := regexp.MustCompile(`"/[^"]*/|"|(?m)^ *~*\^+~*\n`)
			stderr, wantErr = differs.ReplaceAllString(stderr, `"`), differs.ReplaceAllString(wantErr, `"`)
			if code != exit || end.Code != exit || stdout != wantOut || stderr != wantErr {
				t.Errorf("exit %d, want %d\nstdout %q, want %q\nstderr %s\nwant %s", code, exit, stdout, wantOut, stderr, wantErr)
			}
			if (end.Failure != nil) != (exit != 0 && name != "an exit") || (end.Signal == 2) != (exit == 130) {
				t.Errorf("%+v, signal %d", end.Failure, end.Signal)
			}
		})
	}
}

// A module in the program's directory shadows a standard library module in the same cases as
// under the plain interpreter. This holds even if the driver has already loaded the standard
// library module.
func TestPythonShadowingMatchesPlainPython(t *testing.T) {
	names := []string{"json", "re", "threading", "traceback", "math", "os"}
	for _, warm := range []string{"cold", "warm", "warm before the files"} {
		for _, name := range names {
			for _, c := range []struct{ file, code string }{
				{name + ".py", "try:\n    import NAME\nfinally:\n    print(getattr(NAME, 'mine', None))\ndef main(): return 1"},
				{name + "/__init__.py", "import NAME\nprint(getattr(NAME, 'mine', None))\n1/0"},
				{name + "/data.py", "import NAME\nprint(getattr(NAME, 'mine', None))"},
			} {
				t.Run(fmt.Sprint(c.file, "/", warm), func(t *testing.T) {
					t.Parallel()
					code := strings.ReplaceAll(c.code, "NAME", name)
					d := startPython(t)
					if warm == "warm before the files" {
						d.send(interpreter.Request{Op: "warm"})
						d.send(interpreter.Request{Op: "ping"})
						if m := d.readMessage(); m.Type != "pong" {
							t.Fatalf("got %+v, want pong", m)
						}
					}
					plain := t.TempDir()
					for _, dir := range []string{d.dir, plain} {
						file := filepath.Join(dir, c.file)
						if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(file, []byte("mine = True"), 0o644); err != nil {
							t.Fatal(err)
						}
					}
					if warm == "warm" {
						d.send(interpreter.Request{Op: "warm"})
					}
					_, code0, stdout, stderr := d.runProgram(interpreter.Request{Code: code})
					exit, wantOut, wantErr := runPlainIn(t, plain, python(t), "main.py", code)
					if code0 != exit || stdout != wantOut || strings.Contains(stderr, "/driver/") || (stderr == "") != (wantErr == "") && name != "threading" {
						t.Errorf("exit %d, want %d\nstdout %q, want %q\nstderr %s\nwant %s", code0, exit, stdout, wantOut, stderr, wantErr)
					}
				})
			}
		}
	}
}

// Environment variables that an interpreter reads at startup affect a program as under the plain
// interpreter, if the driver was started with them.
func TestStartupVariablesAffectProgram(t *testing.T) {
	node := func(t *testing.T) string { return "node" }
	for _, c := range []struct {
		program   func(*testing.T) string
		env, code string
	}{
		{python, "PYTHONHASHSEED=7", "print(hash('a'))"},
		{python, "PYTHONWARNINGS=error::UserWarning", "import warnings\ntry: warnings.warn('x')\nexcept UserWarning: print('error')"},
		{python, "PYTHONOPTIMIZE=1", "assert False\nprint(__debug__)"},
		{python, "PYTHONIOENCODING=latin-1", "import sys\nprint(sys.stdout.encoding, ascii('\u00e9'))\nprint('\u00e9')"},
		{python, "PYTHONDONTWRITEBYTECODE=1", "import sys\nprint(sys.dont_write_bytecode)"},
		{python, "PYTHONPATH=/given", "import sys\nprint(sys.path[1:])"},
		{python, "PYTHONUTF8=1", "import sys\nprint(sys.flags.utf8_mode)"},
		{python, "LC_ALL=C.UTF-8", "import sys\nprint(sys.getfilesystemencoding(), sys.stdin.errors)"},
		{node, "NODE_PATH=/given", "console.log(require.resolve.paths('x').includes('/given'))"},
		{node, "NODE_OPTIONS=--stack-trace-limit=3", "console.log(Error.stackTraceLimit)"},
		{node, "NODE_NO_WARNINGS=1", "process.emitWarning('x')"},
		{node, "NODE_PENDING_DEPRECATION=1", "console.log(new Buffer(1).length)"},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			program := c.program(t)
			file, driver, language := "main.js", "javascript.js", brig.JavaScript
			if strings.HasPrefix(c.code, "import") || !strings.HasPrefix(c.env, "NODE") {
				file, driver, language = "main.py", "python.py", brig.Python
			}
			name, value, _ := strings.Cut(c.env, "=")
			if needed := interpreter.NeedsAtStart(language, slices.Values([]string{"FOO", name})); !needed {
				t.Errorf("%s needs no interpreter of its own", name)
			}
			d := startDriver(t, []string{program, driverFile(t, driver)}, []string{c.env})
			d.awaitReady()
			_, code, stdout, stderr := d.runProgram(interpreter.Request{Code: c.code, Env: map[string]string{name: value}})
			exit, wantOut, wantErr := runPlain(t, program, file, c.code, c.env)
			if code != exit || stdout != wantOut || (stderr == "") != (wantErr == "") {
				t.Errorf("exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", code, exit, stdout, wantOut, stderr, wantErr)
			}
		})
	}
	for _, name := range []string{"FOO", "NODE_ENV", "TZ", "XPYTHON"} {
		for _, l := range []brig.Language{brig.Python, brig.JavaScript} {
			if interpreter.NeedsAtStart(l, slices.Values([]string{name})) {
				t.Errorf("%s needs an interpreter of its own for %s", l, name)
			}
		}
	}
}

// Minimal Python installations have no json, no usable threading and no
// traceback.
func TestPythonProgramsRunWithoutJSON(t *testing.T) {
	site := t.TempDir()
	hide := "import sys\nfor m in ('json', '_json', 'traceback', 'resource', 'linecache', 'tokenize', 're', 'subprocess'): sys.modules[m] = None\n"
	if err := os.WriteFile(filepath.Join(site, "sitecustomize.py"), []byte(hide), 0o644); err != nil {
		t.Fatal(err)
	}
	skip := map[string]bool{"NaN": true, "async main": true, "threads and atexit": true, "broken json": true, "pickle": true, "processes": true, "child without channel": true}
	for _, c := range pythonPrograms {
		if skip[c.name] {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.stderr, "~") {
				c.stderr = "~" + c.failure
			}
			c.returned = strings.NewReplacer(": ", ":", ", ", ",").Replace(c.returned)
			c.check(t, startPython(t, "PYTHONPATH="+site))
		})
	}
}

func (c programCase) check(t *testing.T, d *driver) {
	t.Helper()
	o := interpreter.Request{Code: c.code}
	if c.arguments != "" {
		o.Arguments = json.RawMessage(c.arguments)
	}
	d.stdin.Write([]byte("given\n"))
	d.stdin.Close()
	end, code, stdout, stderr := d.runProgram(o)
	if end.Type != "end" || end.Code != c.exit || code != c.exit {
		t.Errorf("exit code %d, end message %+v, want exit code %d", code, end, c.exit)
	}
	checkText(t, "returned", string(end.Returned), c.returned)
	checkText(t, "stdout", stdout, strings.ReplaceAll(c.stdout, "{dir}", d.dir))
	checkText(t, "stderr", stderr, c.stderr)
	if c.failure == "" {
		if end.Failure != nil {
			t.Errorf("failed with %+v", end.Failure)
		}
		return
	}
	if end.Failure == nil {
		t.Fatalf("did not fail")
	}
	checkText(t, "failure", end.Failure.Name, c.failure)
	checkText(t, "message", end.Failure.Message, c.message)
	if strings.Contains(end.Failure.Traceback, "driver") || !strings.Contains(stderr, end.Failure.Traceback) {
		t.Errorf("traceback:\n%s", end.Failure.Traceback)
	}
}

func TestPythonProgramAppliesRequestOptions(t *testing.T) {
	d := startPython(t)
	end, _, stdout, stderr := d.runProgram(interpreter.Request{
		Code:   "import os, resource, time\nprint(os.environ['A'], os.getcwd(), time.tzname[0], resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_NPROC))",
		Env:    map[string]string{"A": "ä", "TZ": "XYZ1"},
		Dir:    "/usr",
		Limits: map[string]uint64{"nofile": 64, "nproc": 4096},
	})
	if want := "ä /usr XYZ (64, 64) (4096, 4096)\n"; stdout != want || end.Code != 0 {
		t.Errorf("%q, want %q\n%s", stdout, want, stderr)
	}
}

// The directory artifacts/ exists when a program starts, and is removed if it is still empty at
// the end.
func TestEmptyArtifactsDirectoryIsRemoved(t *testing.T) {
	for _, c := range []struct {
		name      string
		start     func(*testing.T) *driver
		code      string
		arguments string
		artifacts bool
		out       string
		remains   bool
	}{
		{"python", func(t *testing.T) *driver { return startPython(t) }, "import os\ndef main():\n    print(os.path.isdir('artifacts'))", "{}", true, "True\n", false},
		{"python at import", func(t *testing.T) *driver { return startPython(t) }, "open('artifacts/a.csv', 'w').write('a')\ndef main(): pass", "{}", true, "", true},
		{"python elsewhere", func(t *testing.T) *driver { return startPython(t) }, "import os\ndef main():\n    os.chdir('/')", "{}", true, "", false},
		{"python's child", func(t *testing.T) *driver { return startPython(t) }, "import os, sys\ndef main():\n    if os.fork() == 0: sys.exit(0)\n    os.wait()\n    open('artifacts/a.csv', 'w').write('a')", "{}", true, "", true},
		{"python that does without", func(t *testing.T) *driver { return startPython(t) }, "import os\ndef main():\n    print(os.path.exists('artifacts'))\n    os.mkdir('artifacts')\n    open('artifacts/a.csv', 'w').write('a')", "{}", false, "False\n", true},
		{"node", func(t *testing.T) *driver { return startNode(t) }, "function main() { console.log(require('fs').existsSync('artifacts')); return 1 }", "{}", true, "true\n", false},
		{"node writes", func(t *testing.T) *driver { return startNode(t) }, "function main() { require('fs').writeFileSync('artifacts/a.csv', 'a'); return 1 }", "{}", true, "", true},
		{"node that does without", func(t *testing.T) *driver { return startNode(t) }, "function main() { console.log(require('fs').existsSync('artifacts')); return 1 }", "{}", false, "false\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.start(t)
			end, _, stdout, stderr := d.runProgram(interpreter.Request{Code: c.code, Arguments: json.RawMessage(c.arguments), Artifacts: c.artifacts})
			if end.Code != 0 || stdout != c.out {
				t.Errorf("exit code %d, stdout %q, want %q\n%s", end.Code, stdout, c.out, stderr)
			}
			if _, err := os.Stat(filepath.Join(d.dir, "artifacts")); (err == nil) != c.remains {
				t.Errorf("artifacts/ still exists: %v", err)
			}
		})
	}
}

// A program that closes the channel, or exits without the driver's end message, still exits with
// its own exit code.
func TestPythonProgramWithoutEndMessage(t *testing.T) {
	for code, want := range map[string]int{
		"import os; os._exit(5)":                             5,
		"import os; os.close(3); raise SystemExit(6)":        6,
		"import os; os.closerange(3, 99)":                    0,
		"import os, signal; os.kill(os.getpid(), 9)":         -1,
		"import os; os.execvp('sh', ['sh', '-c', 'exit 8'])": 8,
	} {
		d := startPython(t)
		d.send(interpreter.Request{Op: "program", Code: code})
		if m, err := d.read(); err == nil {
			t.Errorf("%s: unexpected message %+v", code, m)
		}
		if got := d.wait(); got != want {
			t.Errorf("%s: exit code %d, want %d", code, got, want)
		}
	}
}
