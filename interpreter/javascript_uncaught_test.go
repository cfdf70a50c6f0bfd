package interpreter_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// errorCase is a program that must end as under the plain interpreter.
type errorCase struct {
	name, code string
	file       string   // the default is main.js
	errout     []string // substrings of the standard error of both
}

func (c errorCase) run(t *testing.T) {
	t.Parallel()
	if c.file == "" {
		c.file = "main.js"
	}
	d := startNode(t)
	d.stdin.Close()
	_, code, stdout, stderr := d.runProgram(interpreter.Request{Code: c.code})
	exit, wantOut, wantErr := runPlain(t, "node", c.file, c.code)
	if code != exit || stdout != wantOut {
		t.Errorf("exit %d, stdout %q, want %d and %q\n%s", code, stdout, exit, wantOut, stderr)
	}
	for _, part := range c.errout {
		if !strings.Contains(wantErr, part) {
			t.Errorf("node does not write %q:\n%s", part, wantErr)
		}
		if !strings.Contains(stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, stderr)
		}
	}
	if strings.Contains(stderr, "/driver/javascript") || (stderr == "") != (wantErr == "") && exit != 13 {
		t.Errorf("stderr is %q, that of node is %q", stderr, wantErr)
	}
}

// An uncaught error ends a program as under the plain interpreter, even if a timer would keep the
// program alive, and is passed to the program's listeners.
func TestNodeUncaughtErrorEndsProgram(t *testing.T) {
	for _, c := range []errorCase{
		{name: "a server is open", code: "require('http').createServer(() => {}).listen(0); JSON.parse('{bad')", errout: []string{"SyntaxError"}},
		{name: "a timer", code: "setInterval(() => console.log('tick'), 1); throw new Error('a')", errout: []string{"Error: a"}},
		{name: "before microtasks", code: "Promise.resolve().then(() => console.log('micro')); process.nextTick(() => console.log('tick')); throw new Error('a')"},
		{name: "a listener", code: "process.on('uncaughtException', (e, from) => console.log(e.message, from)); setTimeout(() => console.log('later'), 1); throw new Error('a')"},
		{name: "a capture callback", code: "process.setUncaughtExceptionCaptureCallback((e) => console.log('got', e.message)); throw new Error('a')"},
		{name: "a monitor", code: "process.on('uncaughtExceptionMonitor', (e, from) => console.log(e.message, from)); throw new Error('a')", errout: []string{"Error: a"}},
		{name: "an exit listener", code: "process.on('exit', (code) => console.log('exit', code)); throw new Error('a')"},
		{name: "an exit listener that sets 0", code: "process.on('exit', () => { process.exitCode = 0 }); throw new Error('a')", errout: []string{"Error: a"}},
		{name: "an exit listener that sets 4", code: "process.on('exit', () => { process.exitCode = 4 }); throw new Error('a')", errout: []string{"Error: a"}},
		{name: "an exit listener that exits", code: "process.on('exit', () => process.exit(0)); throw new Error('a')"},
		{name: "a rejection and a listener that sets 0", code: "process.on('exit', () => { process.exitCode = 0 }); Promise.reject(new Error('a'))", errout: []string{"Error: a"}},
		{name: "after an exit code", code: "process.exitCode = 5; throw new Error('a')"},
		{name: "a module", file: "main.mjs", code: "import 'fs'; setInterval(() => console.log('tick'), 1); throw new Error('a')", errout: []string{"Error: a"}},
		{name: "a listener in a module", file: "main.mjs", code: "import 'fs'; process.on('uncaughtException', (e, from) => console.log(e.message, from)); setTimeout(() => console.log('later'), 1); throw new Error('a')"},
		{name: "after await", file: "main.mjs", code: "setInterval(() => console.log('tick'), 1000); await 1; null.foo", errout: []string{"TypeError"}},
		{name: "main", code: "setInterval(() => {}, 1000); function main() { throw new Error('a') }\nmain()", errout: []string{"Error: a"}},
		{name: "main that is async", code: "setInterval(() => {}, 1000); async function main() { throw new Error('a') }\nmain()", errout: []string{"Error: a"}},
		{name: "a rejection with a listener", code: "process.on('unhandledRejection', (e) => console.log(e.message)); async function main() { throw new Error('a') }\nmain()"},
		{name: "an import that fails", file: "main.mjs", code: "import './nowhere.mjs'; console.log(1)", errout: []string{"ERR_MODULE_NOT_FOUND"}},
	} {
		t.Run(c.name, c.run)
	}
	// The driver calls main. Its errors are handled as if the program had called it.
	for name, code := range map[string]string{
		"main":     "setInterval(() => {}, 1000); function main() { throw new RangeError('a') }",
		"async":    "setInterval(() => {}, 1000); async function main() { throw new RangeError('a') }",
		"a value":  "setInterval(() => {}, 1000); async function main() { return 1n }",
		"deferred": "function main() { throw new RangeError('a') }\nglobalThis.f = () => main",
	} {
		t.Run("called "+name, func(t *testing.T) {
			t.Parallel()
			d := startNode(t)
			end, code, _, stderr := d.runProgram(interpreter.Request{Code: code})
			if code != 1 || end.Failure == nil || !strings.HasSuffix(end.Failure.Name, "Error") || !strings.Contains(stderr, end.Failure.Name) {
				t.Errorf("exit %d, %+v\n%s", code, end.Failure, stderr)
			}
		})
	}
}

// A program that ends before the promise of its module or main function has settled fails.
func TestNodeUnsettledPromiseFailsProgram(t *testing.T) {
	for _, c := range []errorCase{
		{name: "a module", file: "main.mjs", code: "await new Promise(() => {})"},
		{name: "an exit code", file: "main.mjs", code: "process.exitCode = 0; await new Promise(() => {})"},
		{name: "an exit listener", file: "main.mjs", code: "process.on('exit', (code) => console.log(code, process.exitCode)); await new Promise(() => {})"},
		{name: "an exit", file: "main.mjs", code: "setTimeout(() => process.exit(), 5); await new Promise(() => {})"},
		{name: "an exit with a code", file: "main.mjs", code: "setTimeout(() => process.exit(4), 5); await new Promise(() => {})"},
		{name: "an exit after all else", file: "main.mjs", code: "process.on('beforeExit', () => setTimeout(() => process.exit(), 10)); await new Promise(() => {})"},
		{name: "an exit in a listener", file: "main.mjs", code: "process.on('beforeExit', () => process.exit()); await new Promise(() => {})"},
		{name: "an exit that fails", file: "main.mjs", code: "process.on('beforeExit', () => { try { process.exit('no') } catch { console.log('no') } }); await new Promise(() => {})"},
		{name: "work after all else", file: "main.mjs", code: "process.once('beforeExit', () => setTimeout(() => console.log(1), 10)); await new Promise(() => {})"},
		{name: "a listener that sets 0", file: "main.mjs", code: "process.on('exit', () => { process.exitCode = 0 }); await new Promise(() => {})"},
		{name: "a listener that sets 4", file: "main.mjs", code: "process.on('exit', () => { process.exitCode = 4 }); await new Promise(() => {})"},
		{name: "a listener that exits", file: "main.mjs", code: "process.on('exit', () => { process.exit() }); await new Promise(() => {})"},
		{name: "in time", file: "main.mjs", code: "await new Promise((r) => setTimeout(r, 5)); console.log(1)"},
		{name: "no driver's main", code: "async function main() { await new Promise(() => {}) }\nmain()"},
	} {
		t.Run(c.name, c.run)
	}
	for code, want := range map[string]int{
		"async function main() { await new Promise(() => {}) }":                                      13,
		"async function main() { setTimeout(() => process.exit(), 5); await new Promise(() => {}) }": 0,
		"async function main() { await new Promise((r) => setTimeout(r, 5)); return 1 }":             0,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			d := startNode(t)
			end, exit, _, stderr := d.runProgram(interpreter.Request{Code: code})
			if exit != want || end.Code != want || (end.Failure != nil) != (want != 0) || strings.Contains(stderr, "unsettled promise of main") != (want != 0) {
				t.Errorf("exit %d, %+v\n%s", exit, end.Failure, stderr)
			}
		})
	}
}

// An error is printed with its cause, code and members, and any value can be thrown.
func TestNodeErrorsArePrinted(t *testing.T) {
	for _, c := range []errorCase{
		{name: "cause and members", code: "const e = new Error('x', {cause: new TypeError('c')}); e.code = 'ECODE'; e.extra = {a: {b: {c: {d: 1}}}}; throw e",
			errout: []string{"Error: x", "code: 'ECODE'", "a: { b: { c: { d: 1 } } }", "[cause]: TypeError: c", "\n}"}},
		{name: "a system error", code: "require('fs').readFileSync('/nowhere')", errout: []string{"errno: -2", "code: 'ENOENT'", "syscall: 'open'", "{\n"}},
		{name: "several", code: "throw new AggregateError([new Error('one'), new RangeError('two')], 'all')", errout: []string{"AggregateError: all", "[errors]: [", "Error: one", "RangeError: two"}},
		{name: "an object", code: "throw {a: 1}", errout: []string{"{ a: 1 }"}},
		{name: "a text", code: "throw 'text'", errout: []string{"text\n"}},
		{name: "nothing", code: "throw undefined", errout: []string{"undefined"}},
		{name: "a symbol", code: "throw Symbol('s')"},
		{name: "without a prototype", code: "throw Object.create(null)", errout: []string{"[Object: null prototype] {}"}},
		{name: "a stack that throws", code: "const e = new Error('x'); Object.defineProperty(e, 'stack', {get() { throw new Error('no') }}); throw e", errout: []string{"Error: x"}},
		{name: "a name that throws", code: "throw new Proxy(new Error('x'), {get() { throw new Error('no') }})"},
		{name: "in an exit listener", code: "process.on('exit', () => { throw new Error('in exit') })", errout: []string{"Error: in exit"}},
		{name: "in an exit listener, handled", code: "process.on('uncaughtException', (e) => console.log(e.message)); process.on('exit', () => { throw new Error('in exit') })"},
	} {
		t.Run(c.name, c.run)
	}
}

// A program's main module is the same as when Node.js runs the program as main.js.
func TestNodeMainModuleMatchesPlainNode(t *testing.T) {
	for _, c := range []errorCase{
		{name: "this", code: "console.log(this === module.exports, this === exports, module instanceof require('module'))"},
		{name: "paths", code: "const { relative } = require('path'); console.log(module.paths.map((p) => relative(__dirname, p)).slice(0, 2), module.path === __dirname, require.resolve.paths('x').length === module.paths.length + 3)"},
		{name: "fields", code: "console.log(module.id, module.loaded, require.main === module, process.mainModule === module, typeof module.require, module.filename === __filename, module.parent, module.children.length)"},
		{name: "loaded", code: "setImmediate(() => console.log(module.loaded))"},
		{name: "own names", code: "const require = 5; const module = 6; console.log(require, module)"},
		{name: "a name twice", code: "const x = 5; const x = 6", errout: []string{"SyntaxError: Identifier 'x' has already been declared"}},
		{name: "a return", code: "console.log(1); return 5"},
		{name: "a module", code: "require('path').join.call(module, 'a'); console.log(module.require('path') === require('path'))"},
	} {
		t.Run(c.name, c.run)
	}
}
