package interpreter_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
)

func startNode(t *testing.T) *driver {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node")
	}
	d := startDriver(t, []string{"node", driverFile(t, "javascript.js")}, nil)
	if m := d.awaitReady(); m.Flavor != "node" {
		t.Fatalf("flavor %q", m.Flavor)
	}
	return d
}

// step is one cell, or another kind of request, and its expected results. An
// empty field is not checked, and "-" means that the result is absent.
type step struct {
	what          string
	code          string
	request       interpreter.Request // instead of code
	interruptWhen string              // the output after which the cell is interrupted
	value         string              // the result as text
	json          string
	display       string // the first display, as JSON of its data
	out           string
	errout        string
	name, message string // name and message of the error
	trace         string
}

func (s step) run(t *testing.T, d *driver) {
	t.Helper()
	t.Log(s.what) // context for the failure of a helper
	o := s.request
	if o.Op = "cell"; s.code != "" {
		o.Code = s.code
	}
	d.send(o)
	var waited string
	if s.interruptWhen != "" {
		waited = d.out.await(t, s.interruptWhen)
		time.Sleep(50 * time.Millisecond)
		d.interrupt()
	}
	messages, stdout, stderr := d.finish()
	stdout = waited + stdout
	first := func(kind string) (m interpreter.Message) {
		if found := filterMessages(messages, kind); len(found) > 0 {
			m = found[0]
		}
		return m
	}
	result, failure, firstDisplay := first("result"), first("error"), first("display")
	display := ""
	if firstDisplay.Data != nil {
		b, err := json.Marshal(firstDisplay.Data)
		if err != nil {
			t.Fatal(err)
		}
		display = string(b)
	}
	if messages[0].Type != "started" {
		t.Errorf("%s: begins with %+v", s.what, messages[0])
	}
	if failure.Name != "" && s.name == "" {
		t.Errorf("%s: failed: %s: %s\n%s", s.what, failure.Name, failure.Value, failure.Traceback)
	}
	for _, c := range []struct{ of, got, want string }{
		{"value", representationOf(result, "text/plain"), s.value},
		{"json", representationOf(result, "application/json"), s.json},
		{"display", display, s.display},
		{"stdout", strings.TrimSuffix(stdout, "\n"), s.out},
		{"error", failure.Name, s.name},
	} {
		if c.want == "-" {
			c.want = ""
		} else if c.want == "" {
			continue
		}
		if c.got != c.want {
			t.Errorf("%s: %s is %q, want %q", s.what, c.of, c.got, c.want)
		}
	}
	for _, c := range []struct{ of, got, want string }{
		{"message", failure.Value, s.message}, {"traceback", failure.Traceback, s.trace}, {"stderr", stderr, s.errout},
	} {
		if c.want == "-" && c.got != "" || c.want != "-" && !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %s is %q, want %q in it", s.what, c.of, c.got, c.want)
		}
	}
	if strings.Contains(failure.Traceback+stderr, "javascript.js") || strings.Contains(failure.Traceback, "node:inspector") {
		t.Errorf("%s: the driver shows:\n%s%s", s.what, failure.Traceback, stderr)
	}
}

func TestNodeCellsReturnResults(t *testing.T) {
	d := startNode(t)
	module := func(name, text string) {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module("module.mjs", "export const x = 42; export default 'own'")
	module("bad.mjs", "let a = ;")
	if err := os.Mkdir(filepath.Join(d.dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := "await new Promise((r) => setTimeout(r, 20)); "
	for _, s := range []step{
		{what: "declare", code: "const a = 1; let b = 2; class C {}; function f() { return a }", value: "-", json: "-"},
		{what: "last value", code: "a + b", value: "3", json: "-"},
		{what: "declare again", code: "const a = 10; let b = 20; class C { z = 1 }; f() + b", value: "30"},
		{what: "class", code: "new C()", value: "C { z: 1 }", json: "-"},
		{what: "const is const", code: "a = 2", name: "TypeError", message: "constant"},
		{what: "failed declaration", code: "let late = nowhere", name: "ReferenceError"},
		{what: "declared at last", code: "let late = 1; late", value: "1"},
		{what: "await", code: long + "const w = await Promise.resolve(7); w", value: "7"},
		{what: "awaited stays", code: "w", value: "7"},
		{what: "last promise", code: "new Promise((r) => setTimeout(r, 10, 'slept'))", value: "'slept'"},
		{what: "promise that fails", code: "Promise.reject(new Error('no'))", name: "Error", message: "no", trace: "cell-11.js:1", errout: "-"},
		{what: "thenable", code: "({then: 1})", json: `{"then":1}`},
		{what: "undefined", code: "undefined", value: "-"},
		{what: "null", code: "null", value: "null"},
		{what: "string", code: "'é\\u{1F600}'", value: "'é😀'", json: "-"},
		{what: "numbers", code: "[-0, NaN, 2n ** 70n]", value: "[ -0, NaN, 1180591620717411303424n ]", json: "-"},
		{what: "minus zero", code: "-0", value: "-0"},
		{what: "big", code: "10n ** 30n", value: "1000000000000000000000000000000n"},
		{what: "symbol", code: "Symbol('q')", value: "Symbol(q)"},
		{what: "object", code: "{a: 1, b: [1, 'x']}", value: "{ a: 1, b: [ 1, 'x' ] }", json: `{"a":1,"b":[1,"x"]}`},
		{what: "block", code: "{ let q = 1; q + 1 }", value: "2", json: "-"},
		{what: "circle", code: "const o = {}; o.o = o; o", value: "<ref *1> { o: [Circular *1] }", json: "-"},
		{what: "error as value", code: "new Error('v')", value: "Error: v\n    at cell-23.js:1:1"},
		{what: "output", code: "console.log('out %d', 1); console.error('err'); process.stdout.write('raw')", out: "out 1\nraw", errout: "err"},
		{what: "much output", code: "process.stdout.write('x'.repeat(1e6)); 1", value: "1"},

		{what: "require", code: "require('path').sep + require('./module.cjs').y", name: "Error", message: "Cannot find module"},
		{what: "import", code: "import fs, {readFileSync as r} from 'fs'; import * as p from \"node:path\"\nimport {x} from './module.mjs'; import 'os';\n[typeof fs.statSync, typeof r, p.sep, x].join()", value: "'function,function,/,42'"},
		{what: "import()", code: "(await import('./module.mjs')).default", value: "'own'"},
		{what: "import of nothing", code: "import {nope} from 'fs'", name: "SyntaxError", message: "'nope'"},
		{what: "import of no module", code: "import 'nowhere-at-all'", name: "Error", message: "nowhere-at-all"},
		{what: "import of a bad module", code: "await import('./bad.mjs')", name: "SyntaxError", message: "Unexpected"},
		{what: "not an import", code: "class I { import(x) { return x } }\n`import a from \"b\" ${'import c from \"d\"'}`.length + /import e from 'f'/.source.length + new I().import(1)", value: "53"},
		{what: "import.meta", code: "import.meta.dirname === process.cwd()", value: "true"},
		{what: "export", code: "export const ex = 3; export function ey() { return ex }\nexport { ex, ey }; ey()", value: "3"},

		{what: "throw", code: "\nfunction bad() {\n  throw new TypeError('boo') }\nbad()", name: "TypeError", message: "boo", trace: "TypeError: boo\n    at bad (cell-35.js:3:9)\n    at cell-35.js:4:1"},
		{what: "throw later", code: "\n\nbad()", name: "TypeError", trace: "bad (cell-35.js:3:9)\n    at cell-36.js:3:1"},
		{what: "throw after await", code: long + "\nnull.foo", name: "TypeError", trace: "cell-37.js:2:6"},
		{what: "throw text", code: "throw 'x'", name: "Error", message: "x", trace: "Uncaught 'x'"},
		{what: "throw object", code: "throw {a: 1}", name: "Error", message: "{ a: 1 }"},
		{what: "throw nothing", code: "throw undefined", name: "Error", message: "undefined"},
		{what: "cause", code: "throw new Error('a', {cause: new Error('b')})", name: "Error", trace: "Caused by: Error: b"},
		{what: "syntax", code: "let ok = 1\n  let a = ;", name: "SyntaxError", trace: "cell-42.js:2\n  let a = ;\n          ^\n\nSyntaxError: Unexpected token ';'\n    at cell-42.js:2:11"},
		{what: "unfinished", code: "foo(", name: "SyntaxError", trace: "cell-43.js:1"},
		{what: "endless recursion", code: "function g() { g() }; g()", name: "RangeError"},
		{what: "exit", code: "process.exit(3)", name: "SystemExit", message: "3"},
		{what: "alive after exit", code: "a", value: "10"},
		{what: "uncaught", code: "setTimeout(() => { throw new Error('timer') }, 1); Promise.reject(new Error('nobody')); " + long + "1", value: "1", errout: "Error: timer"},
		{what: "alive after uncaught", code: "a", value: "10", errout: "-"},

		{what: "busy loop", code: "console.log('on'); while (true) {}", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "busy after await", code: "await 1; console.log('on'); while (true) {}", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "await for ever", code: "console.log('on'); await new Promise(() => {})", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "collected", code: "require('v8').setFlagsFromString('--expose-gc'); require('vm').runInNewContext('gc')(); 1", value: "1"},
		{what: "child", code: "const child = require('child_process'); console.log('on'); child.execSync('sleep 60')", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "interrupts itself", code: "process.kill(process.pid, 'SIGINT')", name: "KeyboardInterrupt"},
		{what: "alive after interrupts", code: "a", value: "10"},
		{what: "no input", code: "require('fs').readFileSync(0, 'utf8') + require('child_process').spawnSync('cat', {stdio: 'inherit'}).status", value: "'0'"},
		{what: "end of input", code: "let read = 0; for await (const line of process.stdin) read++; read", value: "0"},

		{what: "env", request: interpreter.Request{Code: "process.env.FOO", Env: map[string]string{"FOO": "bar", "HOME": "/h"}}, value: "'bar'"},
		{what: "env is back", code: "[process.env.FOO, process.env.HOME === '/h']", value: "[ undefined, false ]"},
		{what: "cwd", request: interpreter.Request{Code: "require('path').basename(process.cwd())", Dir: filepath.Join(d.dir, "sub")}, value: "'sub'"},
		{what: "chdir", code: "process.chdir('..'); 1", value: "1"},
		{what: "chdir stays", code: "(await import('./module.mjs')).x", value: "42"},
		{what: "no such cwd", request: interpreter.Request{Code: "1", Dir: "/nowhere"}, name: "Error", message: "ENOENT"},

		{what: "display", code: "display({a: 1}); 5", display: `{"application/json":{"a":1},"text/plain":"{ a: 1 }"}`, value: "5"},
		{what: "display.html", code: "display.html('<b>')", display: `{"text/html":"\u003cb\u003e"}`, value: "-"},
		{what: "display.png", code: "display.png(Buffer.from('x'))", display: `{"image/png":"eA=="}`},
		{what: "display.json", code: "display.json({a: [1]})", display: `{"application/json":{"a":[1]}}`},
		{what: "display of a promise", code: "display(new Promise((r) => setTimeout(r, 5, 1)))", display: `{"text/plain":"1"}`},
		{what: "$$", code: "$$.json([1]); 5", json: "[1]", value: "-"},
		{what: "$$.async", code: "$$.async(); setTimeout(() => $$.sendResult([2]), 5); 0", json: "[2]"},
		{what: "Jupyter.display", code: "({[Symbol.for('Jupyter.display')]: async () => ({'application/json': {z: 1}, 'text/plain': 'z'})})", value: "z", json: `{"z":1}`},
		{what: "_toHtml", code: "class H { _toHtml() { return '<i>' } }; display(new H())", display: `{"text/html":"\u003ci\u003e","text/plain":"H {}"}`},
		{what: "no more than a cell", code: "console.log = null; JSON.stringify = null; require('fs').writeSync = null; 1", value: "1"},
		{what: "still there", code: "[1]", json: "[1]"},
	} {
		s.run(t, d)
	}
}

// A cell or program that modifies the prototypes of objects or arrays does not break the driver's
// messages.
func TestNodeMessagesSurviveChangedPrototypes(t *testing.T) {
	const change = "Object.prototype.toJSON = () => 'mine'; for (const name of ['map', 'filter', 'join', 'some', 'find', 'findIndex', 'includes', 'splice']) Array.prototype[name] = null; "
	d := startNode(t)
	for _, s := range []step{
		{what: "change", code: change + "1", value: "1"},
		{what: "display", code: "display.json({a: 1}); display.html('x'); 'y'", value: "'y'", display: `{"application/json":"mine"}`},
		{what: "env", request: interpreter.Request{Code: "process.env.FOO", Env: map[string]string{"FOO": "bar"}}, value: "'bar'"},
		{what: "error", code: "\nthrow new Error('a')", name: "Error", message: "a", trace: "cell-4.js:2"},
		{what: "wait", code: "display(new Promise((r) => setTimeout(r, 5, 1)))", display: `{"text/plain":"1"}`},
		{what: "alive", code: "2", value: "2"},
	} {
		s.code = strings.ReplaceAll(s.code, `\n`, "\n")
		s.run(t, d)
	}
	for code, want := range map[string]int{change + "Buffer.from = null; throw new TypeError('a')": 1, change + "function main() { return 1 }": 0, change + "process.exit(3)": 3} {
		d := startNode(t)
		end, exit, _, stderr := d.runProgram(interpreter.Request{Code: code})
		if exit != want || end.Code != want || (end.Failure != nil) != (want == 1) || end.Failure != nil && (end.Failure.Name != "TypeError" || end.Failure.Message != "a") || (string(end.Returned) == "1") != (want == 0) {
			t.Errorf("exit %d, %+v, failure %+v\n%s", exit, end, end.Failure, stderr)
		}
	}
}

func TestNodeAnswersRequestsBetweenCells(t *testing.T) {
	d := startNode(t)
	d.runCell("setTimeout(() => { process.stdout.write('later'); setTimeout(() => { throw new Error('late') }, 1) }, 500)")
	d.out.await(t, "later")
	d.errout.await(t, "Error: late")
	d.interrupt() // no cell is running
	d.send(interpreter.Request{Op: "ping", Nonce: "n"})
	if m := d.readMessage(); m.Type != "pong" || m.Nonce != "n" {
		t.Errorf("got message %+v", m)
	}
	step{what: "alive", code: "1", value: "1"}.run(t, d)
}

func TestNodeProgramsReturnResults(t *testing.T) {
	for _, c := range []struct {
		what, code, arguments, stdin string
		warm, cell                   bool
		code0                        int
		returned, out, failure       string
		errout                       string // expected substring
	}{
		{what: "main", code: "function main(a) { console.log(JSON.stringify(a)); return {x: [1]} }", out: "{}", returned: `{"x":[1]}`},
		{what: "arguments", code: "const main = async ({a}) => a + 1", arguments: `{"a":1}`, returned: "2"},
		{what: "exported", code: "module.exports = ({a}) => a", arguments: `{"a":null}`, returned: "null"},
		{what: "module", code: "import fs from 'fs'; export function main() { return typeof fs.statSync }", returned: `"function"`},
		{what: "top-level await", code: "const x = await Promise.resolve(3); console.log(x)", out: "3"},
		{what: "no main", code: "1", arguments: "{}", code0: 1, failure: "ReferenceError"},
		{what: "calls main itself", code: "async function main() { console.log('once'); return 1 }\nmain()", out: "once"},
		{what: "asks whether it is main", code: "function main() { console.log('once') }\nif (require.main === module) main()", out: "once"},
		{what: "not JSON", code: "const main = () => 1n", code0: 1, failure: "TypeError"},
		{what: "not a number", code: "const main = () => NaN", code0: 1, failure: "TypeError"},
		{what: "exit", code: "console.log('x'.repeat(9)); process.exit(4)", code0: 4, out: "xxxxxxxxx"},
		{what: "exit hook", code: "process.on('exit', () => { console.log('bye'); process.exitCode = 9 })", code0: 9, out: "bye"},
		{what: "loop is drained", code: "setTimeout(() => console.log('late'), 10)", out: "late"},
		{what: "throws", code: "throw new TypeError('a')", code0: 1, failure: "TypeError"},
		{what: "throws later", code: "setTimeout(() => { throw new RangeError('a') }, 1)", code0: 1, failure: "RangeError"},
		{what: "rejects", code: "Promise.reject(new RangeError('a'))", code0: 1, failure: "RangeError"},
		{what: "throws a long error", code: "throw new RangeError('a'.repeat(100000) + 'b')", code0: 1, failure: "RangeError", errout: "RangeError: " + strings.Repeat("a", 100000) + "b\n"},
		{what: "throws a long error later", code: "setTimeout(() => { throw new RangeError('a'.repeat(100000) + 'b') }, 1)", code0: 1, failure: "RangeError", errout: "RangeError: " + strings.Repeat("a", 100000) + "b\n"},
		{what: "handled", code: "process.on('uncaughtException', (e) => console.log('caught', e.message)); Promise.reject(new Error('a'))", out: "caught a"},
		{what: "syntax", code: "let a = ;", code0: 1, failure: "SyntaxError"},
		{what: "hash bang", code: "#!/usr/bin/env node\nconsole.log(process.argv.length)", out: "2"},
		{what: "stdin", code: "console.log(require('fs').readFileSync(0, 'utf8'))", stdin: "typed", out: "typed"},
		{what: "env", code: "console.log(process.env.FOO)", out: "bar"},
		{what: "patched", code: "JSON.stringify = Reflect.apply = null; require('fs').writeSync = null; process.exit = null; function main() { return [1] }", returned: "[1]"},
		{what: "warm", code: "function main() { return 1 }", warm: true, returned: "1"},
		{what: "after a cell", code: "function main() { return 1 }", cell: true, returned: "1"},
		{what: "exit after a cell", code: "process.exit(5)", cell: true, code0: 5},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := startNode(t)
			if c.stdin != "" {
				if _, err := d.stdin.Write([]byte(c.stdin)); err != nil {
					t.Fatal(err)
				}
			}
			d.stdin.Close()
			if c.warm {
				d.send(interpreter.Request{Op: "warm"})
			}
			if c.cell {
				d.runCell("1")
			}
			o := interpreter.Request{Code: c.code, Env: map[string]string{"FOO": "bar"}}
			if c.arguments != "" {
				o.Arguments = json.RawMessage(c.arguments)
			}
			end, code, stdout, stderr := d.runProgram(o)
			failure := ""
			if end.Failure != nil {
				failure = end.Failure.Name
			}
			if end.Type != "end" || code != c.code0 || end.Code != code || string(end.Returned) != c.returned || failure != c.failure {
				t.Errorf("exit %d, end message %+v, failure %q\n%s", code, end, failure, stderr)
			}
			if got := strings.TrimSuffix(stdout, "\n"); got != c.out {
				t.Errorf("stdout %q, want %q", got, c.out)
			}
			// Node.js writes its own error report after the end message, when the client no
			// longer reads the output.
			if (stderr != "") != (c.code0 == 1) || strings.Contains(stderr, "Node.js v") || !strings.Contains(stderr, c.errout) {
				t.Errorf("stderr %q", stderr)
			}
			if m, err := d.read(); err == nil {
				t.Errorf("got message %+v after the end", m)
			}
		})
	}
}
