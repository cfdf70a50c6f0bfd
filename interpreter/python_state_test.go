package interpreter_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// notebook is a list of steps. Each step runs in a new interpreter or, as the
// reference, as a cell of one interpreter.
type notebook struct {
	t     *testing.T
	start func(t *testing.T) *driver
	one   *driver // the only interpreter, or nil for one interpreter per step
	state json.RawMessage
	count int
}

// run runs a step and returns its result, its output and the name of its error.
func (n *notebook) run(code string) (result, stdout, stderr, failed string) {
	n.t.Helper()
	var messages []interpreter.Message
	if n.one != nil {
		messages, stdout, stderr = n.one.runCell(code)
	} else {
		d := n.start(n.t)
		messages, stdout, stderr = d.sendRequest(interpreter.Request{Op: "step", Code: code, State: n.state, Count: n.count})
		n.state = messages[len(messages)-1].State
		if n.state == nil {
			n.t.Fatalf("%q left no state", code)
		}
		d.cmd.Process.Kill()
	}
	n.count++
	for _, m := range messages {
		switch m.Type {
		case "started":
			if m.Count != n.count {
				n.t.Errorf("step %d reports the number %d", n.count, m.Count)
			}
		case "result":
			result = representationOf(m, "text/plain")
		case "error":
			failed = m.Name + ": " + m.Value
		}
	}
	return result, stdout, stderr, failed
}

// notebooks are the notebooks of TestPythonStepsMatchSeparateInterpreters. The value of the last
// step depends on the state of the earlier steps.
var notebooks = []struct {
	name  string
	steps []string
	want  string
	needs string // a package; "" for none
}{
	{"scalars", []string{"a, b, c, d = 1, 2.5, 'ü\\n', None", "(a, b, c, d, type(b))"}, `(1, 2.5, 'ü\n', None, <class 'float'>)`, ""},
	{"numbers", []string{"import math\na = [float('nan'), float('inf'), 10**50, 1+2j, True]", "(math.isnan(a[0]), a[1:])"}, "(True, [inf, 100000000000000000000000000000000000000000000000000, (1+2j), True])", ""},
	{"containers", []string{"x = {'a': [1, (2, {3}), frozenset({4})], 5: b'six', (7, 8): bytearray(b'9')}", "x"}, "{'a': [1, (2, {3}), frozenset({4})], 5: b'six', (7, 8): bytearray(b'9')}", ""},
	{"collections", []string{"from collections import *\nx = [deque([1, 2], 2), Counter('aab'), OrderedDict(z=1), defaultdict(list, k=[1])]", "x[3]['n'].append(2)\nx[0].append(3)", "x"}, "[deque([2, 3], maxlen=2), Counter({'a': 2, 'b': 1}), OrderedDict([('z', 1)]), defaultdict(<class 'list'>, {'k': [1], 'n': [2]})]", ""},
	{"identity", []string{"a = []\nb = [a, a]", "a.append(1)", "b, b[0] is a"}, "([[1], [1]], True)", ""},
	{"cycle", []string{"a = [1]\na.append(a)", "a[1][1][0], a[1] is a"}, "(1, True)", ""},
	{"moments", []string{"from datetime import *\nfrom decimal import Decimal\nfrom fractions import Fraction\nimport pathlib, uuid, re\nx = [datetime(2024, 1, 2, 3, tzinfo=timezone.utc), date(2024, 1, 2), time(3, 4), timedelta(1, 2, 3), Decimal('1.10'), Fraction(1, 3), pathlib.Path('/a/b'), uuid.UUID(int=5), range(1, 9, 2), slice(1, None), re.compile('a+', re.I), Ellipsis]",
		"str(x[10].search('bAA').group()) + str(x)"}, "~AA[datetime.datetime(2024, 1, 2, 3, 0, tzinfo=datetime.timezone.utc), datetime.date(2024, 1, 2), datetime.time(3, 4), datetime.timedelta(days=1, seconds=2, microseconds=3), Decimal('1.10'), Fraction(1, 3), PosixPath('/a/b'), UUID('00000000-0000-0000-0000-000000000005'), range(1, 9, 2), slice(1, None, None), re.compile('a+', re.IGNORECASE), Ellipsis]", ""},
	{"imports", []string{"import math, os.path as p\nfrom json import dumps as d\nfrom random import randint\nfrom typing import Any, List", "math.floor(2.5), p.join('a', 'b'), d([1]), randint(3, 3), Any is not None"}, "(2, 'a/b', '[1]', 3, True)", ""},
	{"function", []string{"def f(a, b=[], *, c=3):\n    'doc'\n    b.append(a)\n    return b, c, k", "k = 'global'", "f(1)", "f(2, c=4), f.__doc__, f.__name__"}, "(([1, 2], 4, 'global'), 'doc', 'f')", ""},
	{"recursion", []string{"def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)", "fact(10)"}, "3628800", ""},
	{"lambdas", []string{"f, g = lambda: 1, lambda: 2\nh = [lambda x, n=n: x + n for n in range(3)]", "f(), g(), [e(10) for e in h]"}, "(1, 2, [10, 11, 12])", ""},
	{"closure", []string{"def counter():\n    n = 0\n    def step(by=1):\n        nonlocal n\n        n += by\n        return n\n    return step\nc = counter()\nd = c", "c()", "d(5)", "c(), c is d"}, "(7, True)", ""},
	{"shared closure", []string{"def pair():\n    n = 0\n    def get(): return n\n    def put(to):\n        nonlocal n\n        n = to\n    return get, put\nget, put = pair()\nboth = [put]", "put(7)", "get()", "both[0](9)", "get()"}, "9", ""},
	{"decorator", []string{"import functools\ndef twice(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return [f(*a), f(*a)]\n    return inner\n@twice\ndef g(x):\n    return x + 1", "g(1), g.__name__, g.__wrapped__(5)"}, "([2, 2], 'g', 6)", ""},
	{"partial", []string{"from functools import partial\nf = partial(int, base=2)", "f('101')"}, "5", ""},
	{"generators and async", []string{"def g(n):\n    yield from range(n)\nasync def a():\n    return 7", "list(g(3)), await a()"}, "([0, 1, 2], 7)", ""},
	{"class", []string{"class A:\n    shared = [0]\n    def __init__(self, x):\n        self.x = x\n        self.__private = 9\n    def get(self):\n        return self.x, self.__private\n    @staticmethod\n    def s():\n        return 's'\n    @classmethod\n    def c(cls):\n        return cls.__name__\n    @property\n    def double(self):\n        return self.x * 2\n    def __repr__(self):\n        return f'A({self.x})'",
		"class B(A):\n    'of A'\n    def get(self):\n        return ('B',) + super().get()\nb = B(4)\nbs = [b, b]", "b.shared.append(b.x)", "b, b.get(), b.s(), B.c(), b.double, bs[0] is b, isinstance(b, A), A.shared, B.__doc__"}, "(A(4), ('B', 4, 9), 's', 'B', 8, True, True, [0, 4], 'of A')", ""},
	{"methods", []string{"class A:\n    def __init__(self): self.n = 0\n    def add(self): self.n += 1; return self.n\na = A()\nadd = a.add", "add()", "add(), a.n"}, "(2, 2)", ""},
	{"abstract", []string{"import abc\nclass Base(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\nclass Real(Base):\n    def f(self): return 'real'\nr = Real()", "r.f(), isinstance(r, Base)"}, "('real', True)", ""},
	{"still abstract", []string{"import abc\nclass Base(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def f(self): ...\n    @abc.abstractmethod\n    def g(self): ...\nclass Half(Base):\n    f = 1", "try:\n    Half()\nexcept TypeError as e:\n    said = str(e)", "'g' in said, sorted(Base.__abstractmethods__)"}, "(True, ['f', 'g'])", ""},
	{"abstract of a library", []string{"from collections.abc import Mapping\nclass M(Mapping):\n    def __init__(self, **its): self.its = its\n    def __getitem__(self, k): return self.its[k]\n    def __iter__(self): return iter(self.its)\n    def __len__(self): return len(self.its)\nm = M(a=1)", "m['a'], dict(M(b=2))"}, "(1, {'b': 2})", ""},
	{"exceptions", []string{"class Mine(ValueError):\n    def __str__(self):\n        return 'mine'", "try:\n    raise Mine()\nexcept ValueError as e:\n    out = str(e)", "out"}, "'mine'", ""},
	{"dataclass", []string{"from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int\n    y: list = field(default_factory=list)\n    z: str = 'z'\n    def total(self):\n        return self.x + len(self.y)\np = P(1)", "p.y.append(5)\nq = P(2)", "p, q, p.total(), p == P(1, [5])"}, "(P(x=1, y=[5], z='z'), P(x=2, y=[], z='z'), 2, True)", ""},
	{"frozen", []string{"from dataclasses import dataclass\n@dataclass(frozen=True)\nclass K:\n    a: int\nd = {K(1): 'one'}", "d[K(1)]"}, "'one'", ""},
	{"named tuple", []string{"from collections import namedtuple\nP = namedtuple('P', 'x y', defaults=[5])\np = P(1)", "p, P(2).y, p.x"}, "(P(x=1, y=5), 5, 1)", ""},
	{"enumeration", []string{"import enum\nclass C(enum.Enum):\n    RED = 1\n    BLUE = 'b'\nc = C.RED", "c, c is C.RED, C('b')"}, "(<C.RED: 1>, True, <C.BLUE: 'b'>)", ""},
	{"flags", []string{"import enum\nclass F(enum.IntFlag):\n    A = 1\n    B = 2\nf, g = F.A | F.B, F.A", "f == F(3), F.B in f, g is F.A, type(f) is F"}, "(True, True, True, True)", ""},
	{"redefined", []string{"def f(): return 1", "def f(): return 2", "f()"}, "2", ""},
	{"deleted", []string{"x = 1\ny = 2", "del x", "'x' in globals(), y"}, "(False, 2)", ""},
	{"error keeps", []string{"x = 1\n1/0", "x"}, "1", ""},
	{"tool", []string{"from typing import Any\nclass Tool:\n    def __call__(self, *args, **kwargs):\n        return self.forward(*args, **kwargs)\n    def forward(self, *args, **kwargs):\n        pass\nclass Add(Tool):\n    name = 'add'\n    inputs = {'a': {'type': 'integer'}}\n    def forward(self, a: int, b: int) -> int:\n        return a + b\nadd = Add()", "add(2, b=3), add.inputs['a']"}, "(5, {'type': 'integer'})", ""},
	{"arrays", []string{"import numpy as np\na = np.arange(6).reshape(2, 3)\nb = a.T\nf = np.float32(1.5)", "a[0, 0] = 9", "a.tolist(), f, a.dtype == np.arange(1).dtype, str(type(f))"}, "~([[9, 1, 2], [3, 4, 5]], 1.5, True, \"<class 'numpy.float32'>\")", "numpy"},
	{"frames", []string{"import pandas as pd\nd = pd.DataFrame({'n': [1, 2], 's': ['a', None], 't': pd.to_datetime(['2024-01-01', '2024-01-02'])}, index=['p', 'q'])\ns = d['n']", "d.to_dict('list')['s'], d.loc['q', 'n'], str(d.dtypes['t']), s.sum(), s.name"}, "(['a', None], 2, 'datetime64[ns]', 3, 'n')", "pandas"},
	{"pictures", []string{"from PIL import Image\ni = Image.new('RGB', (3, 2), (1, 2, 3))", "i.size, i.mode, i.getpixel((2, 1))"}, "((3, 2), 'RGB', (1, 2, 3))", "PIL"},
	{"magics", []string{"x = 1\n!true\ndef f():\n    return x + 1", "f()"}, "2", ""},
}

// A notebook has the same results in one interpreter for all steps as in a new interpreter for
// each step.
func TestPythonStepsMatchSeparateInterpreters(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, flavor string) {
		for _, s := range notebooks {
			if flavor != "cpython" && !slices.Contains([]string{"closure", "class", "tool", "magics", "error keeps"}, s.name) {
				continue // the state is the same in both flavors; only the source locations differ
			}
			t.Run(s.name, func(t *testing.T) {
				if s.needs != "" {
					skipWithoutModules(t, s.needs)
				}
				for _, n := range []*notebook{{t: t, start: start, one: start(t)}, {t: t, start: start}} {
					var got, failed, stderr string
					for _, step := range s.steps {
						got, _, stderr, failed = n.run(step)
						if strings.Contains(stderr, "brig:") {
							t.Errorf("after %q: %s", step, stderr)
						}
					}
					if want, part := strings.CutPrefix(s.want, "~"); failed != "" || !part && got != want || part && !strings.Contains(got, want) {
						t.Errorf("one interpreter %v: %s%s, want %s", n.one != nil, got, failed, s.want)
					}
				}
			})
		}
	})
}

// State that cannot be carried over is reported, and does not affect the rest.
func TestPythonStepsReportLostState(t *testing.T) {
	n := &notebook{t: t, start: func(t *testing.T) *driver { return startPython(t, "BRIG_NO_IPYTHON=1") }}
	_, _, reported, _ := n.run("import threading, io\nlock = threading.Lock()\nx = [1]\nboth = [x, lock]\ng = (i for i in x)\nclass D:\n    def __del__(self): print('deleted')\nd = D()\nimport enum\nclass E(enum.Enum):\n    X = 1\n    @property\n    def low(self): return 'x'\nclass G(enum.Enum):\n    X = 1\n    @classmethod\n    def of(cls): return 'x'\nbig = 'x' * (9 << 20)\ndeep = []\nfor _ in range(5000): deep = [deep]\nsix = 6")
	for _, name := range []string{"lock", "both", "g", "D", "d", "E", "G", "big", "deep"} {
		if !strings.Contains(reported, "brig: "+name+" is not carried to the next step: ") {
			t.Errorf("stderr does not report %s: %s", name, reported)
		}
	}
	if got, _, _, failed := n.run("x, six, threading.active_count()"); got != "([1], 6, 1)" {
		t.Errorf("%s %s", got, failed)
	}
	if _, _, _, failed := n.run("lock"); failed != "NameError: name 'lock' is not defined" {
		t.Error(failed)
	}
}

// forged are states that no driver writes. Each of them tries to run code that creates the file
// ran while the state is restored.
var forged = []struct{ name, state string }{
	{"a decorator", `{"v":1,"names":{"f":{"at":0}},"heap":[["function","c",1,"f",0,[],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}]],"sources":{"c":"@open('ran', 'w')\ndef f(x=open('ran', 'w')) -> open('ran', 'w'):\n    open('ran', 'w')\n"}}`},
	{"a free name", `{"v":1,"names":{"f":{"at":0}},"heap":[["function","c",1,"f",0,[["x=open('ran','w')",[]]],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}]],"sources":{"c":"def f():\n    pass\n"}}`},
	{"a metaclass", `{"v":1,"names":{"C":{"at":0}},"heap":[["class","touch ran",[],[],{"meta":{"at":1},"qualname":"C","data":null}],["global","subprocess","Popen"]],"sources":{}}`},
	{"a base that is told", `{"v":1,"names":{"B":{"at":0}},"heap":[["class","B",[{"at":1}],[],{"meta":{"at":4},"qualname":"B","data":null}],["class","A",[],[["__init_subclass__",["classmethod",{"at":2}]],["__set_name__",["value",{"at":2}]]],{"meta":{"at":4},"qualname":"A","data":null}],["function","c",1,"f",0,[],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}],null,["global","builtins","type"]],"sources":{"c":"def f(*a, **k):\n    open('ran', 'w')\n"}}`},
	{"its own end", `{"v":1,"names":{"x":{"at":0}},"heap":[["object",{"at":1},[]],["class","A",[],[["__del__",["value",{"at":2}]]],{"meta":{"at":3},"qualname":"A","data":null}],["function","c",1,"f",0,[],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}],["global","builtins","type"]],"sources":{"c":"def f(*a):\n    open('ran', 'w')\n"}}`},
	{"a field", `{"v":1,"names":{"C":{"at":0}},"heap":[["class","C",[],[],{"meta":{"at":1},"qualname":"C","data":[{"init":true},[["x=open('ran','w')",{"init":true,"repr":true,"compare":true,"kw_only":false},[]]]]}],["global","builtins","type"]],"sources":{}}`},
	{"a hash", `{"v":1,"names":{"s":{"at":4}},"heap":[["object",{"at":1},[]],["class","A",[],[["__hash__",["value",{"at":2}]],["__eq__",["value",{"at":2}]]],{"meta":{"at":3},"qualname":"A","data":null}],["function","c",1,"f",0,[],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}],["global","builtins","type"],["set",[{"at":0}]]],"sources":{"c":"def f(*a):\n    open('ran', 'w')\n    return 1\n"}}`},
	{"a getter", `{"v":1,"names":{"C":{"at":0}},"heap":[["class","C",[],[],{"meta":{"at":3},"qualname":"C","data":[{"init":true},[["x",{"init":true,"repr":true,"compare":true,"kw_only":false},["default",{"at":4}]]]]}],["class","A",[],[["__get__",["value",{"at":2}]],["__set_name__",["value",{"at":2}]],["__hash__",["value",{"at":2}]]],{"meta":{"at":3},"qualname":"A","data":null}],["function","c",1,"f",0,[],{"name":"f","qualname":"f","doc":null,"defaults":null,"kwdefaults":null,"dict":[]}],["global","builtins","type"],["object",{"at":1},[]]],"sources":{"c":"def f(*a):\n    open('ran', 'w')\n"}}`},
	{"a method", `{"v":1,"names":{"x":{"at":0}},"heap":[["member",{"at":1},"touch ran"],["object",{"at":2},[]],["global","subprocess","Popen"]],"sources":{}}`},
	{"builtins", `{"v":1,"names":{"__builtins__":{"at":0},"__loader__":1,"display":{"at":1},"get_ipython":{"at":1}},"heap":[["dict",[["print",{"at":1}],["len",{"at":1}]]],["global","os","system"]],"sources":{}}`},
	{"an enumeration", `{"v":1,"names":{"E":{"at":0}},"heap":[["enum","touch ran",{"at":1},[["X",1]]],["global","os","system"]],"sources":{}}`},
	{"a record", `{"v":1,"names":{"r":{"at":0}},"heap":[["record",{"at":1},["touch ran"]],["global","os","system"]],"sources":{}}`},
	{"another name", `{"v":1,"names":{"x":{"at":0}},"heap":[["_system","touch ran"]],"sources":{}}`},
	{"nothing of ours", `{"v":1,"names":7,"heap":"x","sources":[]}`},
	{"no state", `[1,2,3]`},
	{"another version", `{"v":2}`},
	{"itself", `{"v":1,"names":{"x":{"at":0}},"heap":[["tuple",[{"at":0}]]],"sources":{}}`},
}

// A state is treated as data: a forged state cannot run code in the next step.
func TestPythonForgedStateIsData(t *testing.T) {
	runFlavors(t, func(t *testing.T, start func(t *testing.T) *driver, flavor string) {
		for _, f := range forged {
			if flavor != "cpython" && f.name != "builtins" {
				continue // both flavors restore states with the same code; only the shell's own names differ
			}
			t.Run(f.name, func(t *testing.T) {
				d := start(t)
				messages, stdout, stderr := d.sendRequest(interpreter.Request{Op: "step", Code: "import gc\n_ = gc.collect()\nprint(len('four'))\n42", State: json.RawMessage(f.state)})
				result := ""
				for _, m := range messages {
					if m.Type == "result" {
						result = representationOf(m, "text/plain")
					}
				}
				if result != "42" || stdout != "4\n" {
					t.Errorf("messages %+v, stdout %q, stderr %q", messages, stdout, stderr)
				}
				if _, err := os.Stat(filepath.Join(d.dir, "ran")); err == nil {
					t.Error("it had something run")
				}
			})
		}
		// The control: a cell can create the file.
		d := start(t)
		d.runCell("open('ran', 'w')")
		if _, err := os.Stat(filepath.Join(d.dir, "ran")); err != nil {
			t.Error("the test would see nothing")
		}
	})
}
