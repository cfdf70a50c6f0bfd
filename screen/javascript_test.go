package screen_test

import (
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/screen"
)

func TestForbiddenJavaScriptIsFound(t *testing.T) {
	denied, eval := lines("Line 1: import of child_process is denied"), lines("Line 1: call of eval is denied")
	checkVectors(t, brig.JavaScript, screen.JavaScriptRules(), []vector{
		{"require", `const c = require("child_process")`, denied},
		{"require with other quotes", "const c = require(`child_process`)", denied},
		{"require of node:", `require('node:child_process').exec('id')`, denied},
		{"require in parts", `require("child_" + 'process')`, denied},
		{"require in a template", "require(`child_${'process'}`)", denied},
		{"require escaped", `require("child\x5fpr\u{6f}cess")`, denied},
		{"require renamed", `const r = require; r("child_process")`, denied},
		{"require by name", `globalThis["require"]("child_process")`, denied},
		{"require of a module", `module.require("child_process")`, denied},
		{"require of something", `x.y.require("child_process")`, denied},
		{"require called", `require.call(null, "child_process")`, denied},
		{"require computed", `require(name)`, lines("Line 1: a module is imported by a name that is made at run time")},
		{"a part of a module", `require("fs/promises")`, lines("Line 1: import of fs/promises is denied")},
		{"import", "import x from 'child_process'", denied},
		{"import of all", "import * as x from 'child_process'", denied},
		{"import of some", "import {exec as e} from \"node:child_process\"", denied},
		{"import for what it does", "import 'child_process'", denied},
		{"import()", "const {exec} = await import('child_process')", denied},
		{"import() computed", "import(x)", lines("Line 1: a module is imported by a name that is made at run time")},
		{"import of code", "import('data:text/javascript,1')", lines("Line 1: import of a data: address is denied")},
		{"export from", "export * from 'child_process'", denied},
		{"with attributes", "import x from 'child_process' with {type: 'json'}", denied},
		{"binding", `process.binding("fs")`, lines("Line 1: call of process.binding is denied")},
		{"binding by name", `process["bind" + "ing"]("fs")`, lines("Line 1: call of process.binding is denied")},
		{"binding taken apart", "const {binding: b} = process\nb('fs')", lines("Line 1: use of process.binding is denied", "Line 2: call of process.binding is denied")},
		{"built in", `process.getBuiltinModule("fs")`, lines("Line 1: call of process.getBuiltinModule is denied", "Line 1: import of fs is denied")},
		{"mainModule", `process.mainModule.require("child_process")`, lines("Line 1: call of process.mainModule.require is denied", "Line 1: import of child_process is denied")},
		{"eval", `eval("1")`, eval},
		{"eval of a template", "eval`1`", eval},
		{"eval indirectly", `(0, eval)("1")`, lines("Line 1: call of eval is denied", "Line 1: use of eval is denied")},
		{"eval of the global object", `globalThis.eval("1")`, eval},
		{"eval by name", `globalThis["eval"]("1")`, eval},
		{"eval by a template", "global[`ev${'al'}`]('1')", eval},
		{"eval optionally", `globalThis?.eval?.("1")`, eval},
		{"eval of this", `this["eval"]("1")`, eval},
		{"eval computed", `globalThis[x]("1")`, lines("Line 1: a function is looked up by a name that is made at run time")},
		{"eval reflected", `Reflect.get(globalThis, "eval")("1")`, eval},
		{"eval renamed", "const e = eval\ne('1')", lines("Line 1: use of eval is denied", "Line 2: call of eval is denied")},
		{"eval taken apart", "const {eval: e} = globalThis\ne('1')", lines("Line 1: use of eval is denied", "Line 2: call of eval is denied")},
		{"eval escaped", `\u0065val("1")`, eval},
		{"eval called", `eval.call(null, "1")`, lines("Line 1: call of eval.call is denied")},
		{"eval in an object", `({eval}).eval("1")`, lines("Line 1: use of eval is denied")},
		{"eval passed on", `[1].map(eval)`, lines("Line 1: use of eval is denied")},
		{"eval in a template", "`${eval('1')}`", eval},
		{"eval of either", "(x || eval)('1')", lines("Line 1: call of eval is denied", "Line 1: use of eval is denied")},
		{"Function", `new Function("return 1")`, lines("Line 1: call of Function is denied")},
		{"Function without new", `Function("return 1")()`, lines("Line 1: call of Function is denied")},
		{"constructor", `(() => {}).constructor("return 1")()`, lines("Line 1: call of constructor is denied")},
		{"constructor by name", `[]["constructor"]["constructor"]("x")`, lines("Line 1: call of constructor is denied")},
		{"constructor taken apart", "const {constructor: c} = () => {}; c('x')", lines("Line 1: call of constructor is denied")},
		{"require passed on", "const f = x => x(require); [require]", lines("Line 1: require is passed on")},
		{"lines", "// a\r\n\r\nconst a = 1;\neval('1')", lines("Line 4: call of eval is denied")},
		{"a comment's end", "// a\u2028eval('1')", eval},
		{"after an error", "let let = ;\neval('1')", lines("Line 2: call of eval is denied")},
		{"NUL", "eval\x00", lines("Line 1: there is a NUL")},
	})
}

func TestHarmlessJavaScriptIsAllowed(t *testing.T) {
	checkVectors(t, brig.JavaScript, screen.JavaScriptRules(), []vector{
		{"comments", "// eval('1')\n/* require('fs') */", nil},
		{"strings", "const s = \"eval('1')\" + `require('fs')` + 'process.binding'", nil},
		{"a regular expression", "const r = /eval(x)/.test(s)", nil},
		{"a member of that name", "math.eval('1'); x.Function()", nil},
		{"a method of that name", "class A { eval() {} constructor() { super() } }", nil},
		{"a key of that name", "({eval: 1, Function: 2}).eval", nil},
		{"what an object is", "x instanceof Function; Function.prototype.toString; x.constructor.name; typeof require", nil},
		{"other modules", "const path = require('path'); import('util'); import u from 'fsevents'", nil},
		{"what process tells", "process.argv; process.env.HOME; process.stdout.write('x'); process.exit(1)", nil},
		{"members by name", "this[key]; x[y](); globalThis.x = 1", nil},
		{"today's grammar", "class A { static #p = 1; static { this.#p ??= 2 } get x() { return #p in this } async *g() { for await (const x of y) yield* x } }\nconst {a, ...b} = await f?.(1n ** 2n); label: for (;;) break label\nlet r = /(?<y>\\d)/dv; import d from './d.json' with {type: 'json'}", nil},
	})
}

func TestJavaScriptAllowlistExcludesOtherModules(t *testing.T) {
	checkVectors(t, brig.JavaScript, screen.Rules{Only: true, Allow: []string{"path", "lodash"}}, []vector{
		{"allowed", "const p = require('node:path'); import l from 'lodash/fp'", nil},
		{"another", "require('fs')", lines("Line 1: import of fs is not allowed")},
		{"a file", "require('./x')", lines("Line 1: import of ./x is not allowed")},
		{"what cannot be parsed", "let x = = 1", lines("Line 1: the code cannot be parsed")},
	})
}
