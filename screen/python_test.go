package screen_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/screen"
)

// checker is shared by all tests, because the compilation of the parser is slow.
var checker screen.Screener

// vector is a source with its expected findings, each in the form "Line N: …".
type vector struct {
	name, code string
	want       []string
}

func checkVectors(t *testing.T, lang brig.Language, rules screen.Rules, vectors []vector) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			found, err := checker.Check(t.Context(), lang, []byte(v.code), rules)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, f.String())
			}
			if strings.Join(got, "\n") != strings.Join(v.want, "\n") {
				t.Errorf("%q:\ngot  %q\nwant %q", v.code, got, v.want)
			}
		})
	}
}

func lines(s ...string) []string { return s }

// fewRules returns a small set of rules, so that each vector tests a single rule.
func fewRules() screen.Rules {
	return screen.Rules{
		Imports:    []string{"os", "subprocess", "http.client"},
		Calls:      []string{"eval", "exec", "compile", "shutil.rmtree", "pickle.loads", "get_ipython", "open(w)"},
		Attributes: []string{"__globals__", "__subclasses__"},
	}
}

func TestForbiddenPythonIsFound(t *testing.T) {
	checkVectors(t, brig.Python, fewRules(), []vector{
		{"import", "x = 1\nimport os", lines("Line 2: import of os is denied")},
		{"import of a part", "import os.path", lines("Line 1: import of os.path is denied")},
		{"import as", "import json, os as x\nx.system('id')", lines("Line 1: import of os is denied")},
		{"from", "from os import system", lines("Line 1: import of os is denied")},
		{"from a package", "from http import client", lines("Line 1: import of http.client is denied")},
		{"in a function", "def f():\n  if 1:\n    import subprocess", lines("Line 3: import of subprocess is denied")},
		{"spaced", "import\\\n  os", lines("Line 2: import of os is denied")},
		{"__import__", `__import__("os").system("id")`, lines("Line 1: import of os is denied")},
		{"__import__ by keyword", `__import__(name="os")`, lines("Line 1: import of os is denied")},
		{"__import__ of parts", `__import__("o" + 's')`, lines("Line 1: import of os is denied")},
		{"__import__ of neighbours", `__import__("o" 's')`, lines("Line 1: import of os is denied")},
		{"__import__ escaped", `__import__("\x6f\u0073")`, lines("Line 1: import of os is denied")},
		{"__import__ formatted", `__import__(f"o{'s'}")`, lines("Line 1: import of os is denied")},
		{"__import__ computed", `__import__("so"[::-1])`, lines("Line 1: a module is imported by a name that is made at run time")},
		{"__import__ renamed", "i = __import__\ni('os')", lines("Line 2: import of os is denied")},
		{"__import__ by names of characters", `__import__("\N{LATIN SMALL LETTER O}s")`, lines("Line 1: a module is imported by a name that is made at run time")},
		{"__import__ passed on", "x = [__import__][0]('os')", lines("Line 1: __import__ is passed on")},
		{"importlib", "import importlib\nimportlib.import_module('subprocess')", lines("Line 2: import of subprocess is denied")},
		{"importlib renamed", "from importlib import import_module as m\nm('os')", lines("Line 2: import of os is denied")},
		{"a loader", "x.load_module('os')", lines("Line 1: import of os is denied")},
		{"sys.modules", "import sys\nsys.modules['os'].system('x')", lines("Line 2: use of os is denied")},
		{"sys.modules.get", "import sys\nsys.modules.get('os')", lines("Line 2: use of os is denied")},
		{"a module from elsewhere", "os.system('x')", lines("Line 1: use of os.system is denied")},
		{"a module of a module", "import http\nhttp.client.HTTPConnection", lines("Line 2: use of http.client is denied")},
		{"call", "a = 1\neval('1')", lines("Line 2: call of eval is denied")},
		{"use", "list(map(eval, x))", lines("Line 1: use of eval is denied")},
		{"renamed", "e = eval\nf = e\nf('1')", lines("Line 1: use of eval is denied", "Line 2: use of eval is denied", "Line 3: call of eval is denied")},
		{"renamed backwards", "def g():\n  f('1')\nf = e\ndef h():\n  global e\n  e = exec", lines("Line 2: call of exec is denied", "Line 3: use of exec is denied", "Line 6: use of exec is denied")},
		{"bound and called", "def f(eval):\n  return eval('1')", lines("Line 2: call of eval is denied")},
		{"bound elsewhere", "def f(eval): pass\ng = eval\ng('1')", lines("Line 3: call of eval is denied")},
		{"a member of builtins", "import builtins\nbuiltins.eval('1')", lines("Line 2: call of eval is denied")},
		{"__builtins__", "__builtins__.eval('1')", lines("Line 1: call of eval is denied")},
		{"__builtins__ by key", "__builtins__['ev' 'al']('1')", lines("Line 1: call of eval is denied")},
		{"getattr", `getattr(__builtins__, "eval")("1")`, lines("Line 1: call of eval is denied")},
		{"getattr computed", `getattr(__builtins__, x)("1")`, lines("Line 1: a function is looked up by a name that is made at run time")},
		{"globals", `globals()["eval"]`, lines("Line 1: use of eval is denied")},
		{"__dict__", "import shutil\nshutil.__dict__['rmtree']('/')", lines("Line 2: call of shutil.rmtree is denied")},
		{"vars", "import shutil\nvars(shutil)['rmtree']('/')", lines("Line 2: call of shutil.rmtree is denied")},
		{"from builtins", "from builtins import eval as e\ne('1')", lines("Line 1: use of eval is denied", "Line 2: call of eval is denied")},
		{"a function of a module", "import shutil as s\ns.rmtree('/')", lines("Line 2: call of shutil.rmtree is denied")},
		{"from a module", "from shutil import rmtree as r\nr('/')", lines("Line 1: use of shutil.rmtree is denied", "Line 2: call of shutil.rmtree is denied")},
		{"all of a module", "from shutil import *", lines("Line 1: import of all of shutil is denied, for it has shutil.rmtree")},
		{"walrus", "(p := __import__('pickle')).loads(b'')", lines("Line 1: call of pickle.loads is denied")},
		{"pairs", "import pickle, json\na, b = json, pickle\nb.loads('')", lines("Line 3: call of pickle.loads is denied")},
		{"either", "import pickle, json\n(json if x else pickle).loads('')", lines("Line 2: call of pickle.loads is denied")},
		{"a default", "import pickle\ndef f(p=pickle): p.loads(x)", lines("Line 2: call of pickle.loads is denied")},
		{"a method of a function", "eval.__call__('1')", lines("Line 1: call of eval.__call__ is denied")},
		{"a decorator", "@exec\n@input\nclass X: pass", lines("Line 1: use of exec is denied")},
		{"in a string", `f"{eval('1')}"`, lines("Line 1: call of eval is denied")},
		{"in a string's string", `f"{f'{eval("1")}'}"`, lines("Line 1: call of eval is denied")},
		{"in a format", `f"{x:{eval('1')}}"`, lines("Line 1: call of eval is denied")},
		{"in a match", "match x:\n  case 1 if eval('1'): pass", lines("Line 2: call of eval is denied")},
		{"in a lambda", "lambda: eval('1')", lines("Line 1: call of eval is denied")},
		{"in a comprehension", "[eval(i) async for i in x]", lines("Line 1: call of eval is denied")},
		{"in a class of types", "class A[T: eval('1')]: pass\ntype X = eval('2')", lines("Line 1: call of eval is denied", "Line 2: call of eval is denied")},
		{"attribute", "().__class__.__base__.__subclasses__()", lines("Line 1: attribute __subclasses__ is denied")},
		{"attribute by name", `getattr(f, "__glob" + "als__")`, lines("Line 1: attribute __globals__ is denied")},
		{"other letters", "ｅｖａｌ('1')\n𝓮𝔁𝓮𝓬('1')\nimport ºs", lines("Line 1: call of eval is denied", "Line 2: call of exec is denied", "Line 3: import of os is denied")},
		{"carriage returns", "# x\rimport os\r\nimport subprocess", lines("Line 2: import of os is denied", "Line 3: import of subprocess is denied")},
		{"form feed", "\fimport os", lines("Line 1: import of os is denied")},
		{"byte order mark", "\ufeffimport os", lines("Line 1: import of os is denied")},
		{"after an error", "def f(:\n  pass\nimport os\neval('1')", lines("Line 3: import of os is denied", "Line 4: call of eval is denied")},
		{"python 2", "print 'x'\nexec 'code'\nimport os", lines("Line 2: call of exec is denied", "Line 3: import of os is denied")},
		{"a shell's line", "x = 1\n!ls", lines("Line 2: a command of IPython is denied")},
		{"a magic", "%pip install x", lines("Line 1: a command of IPython is denied")},
		{"a cell's magic", "%%bash\nid", lines("Line 1: a command of IPython is denied")},
		{"a shell's lines", "files = !ls", lines("Line 1: a command of IPython is denied")},
		{"a hidden magic", "# x\u2028!ls", lines("Line 1: a command of IPython is denied")},
		{"opened to write", "open('x', 'w')\nopen('x', mode='ab')\nopen('x', m)\nopen('x', 'rb')\nopen('x')\nopen(*x)", lines("Line 1: open for writing is denied", "Line 2: open for writing is denied", "Line 3: open in a mode that is made at run time", "Line 6: open in a mode that is made at run time")},
		{"NUL", "x = 1\n\x00import os", lines("Line 2: there is a NUL")},
		{"not UTF-8", "x = '\xff'", lines("Line 1: the code is not UTF-8")},
		{"another coding", "#!/usr/bin/python\n# -*- coding: utf-7 -*-\n", lines("Line 1: a coding other than UTF-8 is declared")},
	})
}

func TestHarmlessPythonIsAllowed(t *testing.T) {
	checkVectors(t, brig.Python, fewRules(), []vector{
		{"a comment", "# import os\nx = 1 # eval('1')", nil},
		{"a string", "s = '''\nimport os\neval('1')\n'''", nil},
		{"text of a formatted string", `f"eval({x}) __subclasses__"`, nil},
		{"a member of that name", "df.eval('a + b')\nre.compile('x')\nx.exec()", nil},
		{"a keyword argument", "f(eval=1, os=2)", nil},
		{"a variable of that name", "compile = 1\nprint(compile)", nil},
		{"a module that sounds alike", "import ossaudiodev, osx, http\nfrom http import server", nil},
		{"a variable called as a module", "os = frame()\nos.mean()", nil},
		{"a member called as a module", "x.os.y", nil},
		{"a definition", "def exec(): pass", nil},
		{"modulo on a line of its own", "print('%s'\n  % x)", nil},
		{"a name that is given its members", "import shutil\nx = shutil.a\nwhile x: x = x.b\n\x0c\nprint(1\n  % 2)", nil},
		{"a known coding", "# coding: utf-8\nx = 1", nil},
		{"nothing", "", nil},
		{"today's grammar", "async def f[T](x: T, /, *, y=1) -> T:\n  async with a as b, c: pass\n  try: ...\n  except* E as e: ...\nmatch p:\n  case Point(x=0) | [1, *r] if r: pass\n  case {'a': b, **k}: pass\ntype A[*T, **P] = int\nwith (open('x') as f, g() as h): print(f'{x!r:>{w}} {f'{y}'}')\nif (n := 10) > 5: lambda *a, **k: a\nx: int = 0x_ff; print(*a, **k, sep='')", nil},
	})
}

// IPython commands are reported unless the rules allow them.
func TestIPythonCommandsAreFoundUnlessAllowed(t *testing.T) {
	checkVectors(t, brig.Python, screen.Rules{Commands: true}, []vector{{"a command", "!ls\n%pip install x", nil}})
	checkVectors(t, brig.Python, screen.Rules{}, []vector{
		{"before an error", "%pip list\nx = '", lines("Line 1: a command of IPython is denied")},
		{"in a string", "x = " + `"""` + "\n!ls\n" + `"""` + "\ny = = 1", lines("Line 4: the code cannot be parsed")},
		{"after a comment", "# x\x0c!ls", lines("Line 1: a command of IPython is denied")},
		{"a comment", "x = = 1\n# is it !so? % x", lines("Line 1: the code cannot be parsed")},
		{"formats", "x = = 1\nreturn '%s=%s' % (a, b)", lines("Line 1: the code cannot be parsed")},
	})
}

func TestPythonAllowlistExcludesOtherModules(t *testing.T) {
	rules := screen.Rules{Only: true, Allow: []string{"json", "math", "os.path"}, Calls: []string{"eval"}}
	checkVectors(t, brig.Python, rules, []vector{
		{"allowed", "import json, math\nfrom json import loads\nfrom os import path\nimport json.decoder, os.path", nil},
		{"another", "import json\nimport re", lines("Line 2: import of re is not allowed")},
		{"part of what is allowed in part", "from os import path, system", lines("Line 1: import of os is not allowed")},
		{"all of it", "from os import *", lines("Line 1: import of os is not allowed")},
		{"relative", "from . import x", lines("Line 1: import of . is not allowed")},
		{"the future", "from __future__ import annotations", nil},
		{"calls are denied still", "eval('1')", lines("Line 1: call of eval is denied")},
		{"what cannot be parsed", "x = = 1", lines("Line 1: the code cannot be parsed")},
		{"__import__", "__import__('re')", lines("Line 1: import of re is not allowed")},
	})
}

// The default rules find the constructs in RAGFlow's security vectors.
func TestDefaultPythonRulesFindRAGFlowVectors(t *testing.T) {
	checkVectors(t, brig.Python, screen.PythonRules(), []vector{
		{"what cannot be parsed", "def main(:\n    return 1", lines("Line 1: the code cannot be parsed")},
		{"a newer Python", "match x:\n    case {'a': [1, *_]} if (y := 2): pass\ntype A[T] = list[T]\ndef f[T](x: T, /, *, y) -> T: ...\nawait x\nasync with a as b: pass\nx = f\"{x!r:>{y}}\"\ntry: pass\nexcept* ValueError: pass", nil},
		{"system", "import os\nos.system('ls')", lines("Line 1: import of os is denied")},
		{"subprocess", "import subprocess\nsubprocess.Popen('ls')", lines("Line 1: import of subprocess is denied", "Line 2: call of subprocess.Popen is denied")},
		{"eval", "def main():\n    eval('1')", lines("Line 2: call of eval is denied")},
		{"getattr", "getattr(x, 'y')", lines("Line 1: call of getattr is denied")},
		{"open", "open('/etc/passwd')", lines("Line 1: call of open is denied")},
		{"pickle", "import pickle\npickle.loads(b'')", lines("Line 1: import of pickle is denied", "Line 2: call of pickle.loads is denied")},
		{"in a yield", "def f():\n  yield eval('1')", lines("Line 2: call of eval is denied")},
		{"a sum", "import json, math, re, datetime, collections\ndef main(a, b):\n    return {'sum': a + b, 'x': re.compile('a'), 'y': [1].remove(1)}", nil},
		{"numbers", "import numpy as np, pandas as pd\nprint(pd.DataFrame({'a': np.arange(3)}).eval('a + 1'))", nil},
	})
}
