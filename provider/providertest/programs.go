package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// Programs checks that programs have the same outcome with every provider: main
// receives its arguments unchanged, and each program of a corpus ends as
// expected. A provider without Node.js skips JavaScript programs.
func Programs(t *testing.T, run func(ctx context.Context, p brig.Program) (*brig.Outcome, error)) {
	do := func(t *testing.T, p brig.Program) *brig.Outcome {
		t.Helper()
		p.Timeout = programTimeout
		o, err := run(t.Context(), p)
		if got := brig.AsError(err); got != nil && got.Field == "language" && p.Language == brig.JavaScript {
			t.Skip("no Node.js: " + got.Message)
		}
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		return o
	}
	for _, a := range arguments() {
		for language, code := range map[brig.Language]string{
			brig.Python:     "def main(**given):\n    return given\n",
			brig.JavaScript: "function main(given) { return given; }\n",
		} {
			if a.exact && language == brig.JavaScript {
				continue // the language does not support large numbers
			}
			t.Run("arguments/"+a.name+"/"+string(language), func(t *testing.T) {
				o := do(t, brig.Program{Language: language, Code: code, Arguments: json.RawMessage(a.json)})
				if o.ExitCode != 0 || o.Error != nil || !sameJSON(t, o.Value, a.json) {
					t.Errorf("%s came back as %s (exit code %d, error %+v, stderr %s)",
						brig.Clip(a.json, 500), brig.Clip(string(o.Value), 500), o.ExitCode, o.Error, o.Stderr.Head)
				}
			})
		}
	}
	for _, c := range corpus() {
		t.Run("corpus/"+c.name, func(t *testing.T) { c.check(t, do(t, c.program)) })
	}
}

// programTimeout is the timeout of each program. It equals the lowest maximum
// timeout of all providers.
const programTimeout = 30 * time.Second

type argument struct {
	name, json string
	exact      bool // numbers are exact beyond the range of JavaScript
}

func arguments() []argument {
	deep := strings.Repeat(`{"a":[`, 30) + `1` + strings.Repeat(`]}`, 30)
	return []argument{
		{"empty", `{}`, false},
		{"nested", `{"a":{"b":[1,{"c":[[],{},[[2]]]}]},"deep":` + deep + `}`, false},
		{"unicode", `{"é":"naïve 日本語 🎉 \u202e\ufeff","escaped":"\ud83d\ude00 \u00e9","combined":"e\u0301"}`, false},
		{"numbers", `{"zero":0,"negative":-7,"small":1e-300,"float":0.1,"sum":0.30000000000000004,"most":9007199254740991}`, false},
		{"large integers", `{"a":9223372036854775808,"b":-170141183460469231731687303715884105728,"c":1000000000000000000000000000001}`, true},
		{"constants", `{"null":null,"true":true,"false":false,"list":[null,true,false]}`, false},
		{"empty values", `{"text":"","list":[],"object":{},"":"no name"}`, false},
		{"quotes", `{"q":"\"'` + "`" + `\\ \\n ${x} {{y}} %s \/ '''","\"key\"":"'\"\"\"","html":"<script>&amp;</script>"}`, false},
		{"control characters", `{"c":"\u0000\u0001\n\r\t\u001f\u007f\u2028\u2029"}`, false},
		{"markers", `{"m":"__RAGFLOW_RESULT__:eyJwcmVzZW50Ijp0cnVlfQ=="}`, false},
		{"keywords", `{"class":1,"def":2,"with space":3,"self":4,"main":5,"constructor":6}`, false},
		{"100 kB", `{"text":"` + strings.Repeat("0123456789abcdeé", 100<<10/17) + `"}`, false},
	}
}

// sample is a program and its expected outcome.
type sample struct {
	name    string
	program brig.Program
	exit    int
	// stdout and stderr are the expected output on success. Not every service
	// returns the output of a failed program.
	stdout, stderr string
	value          string // empty for no value
	error, message string // of the exception that ends the program
	artifacts      map[string]string
}

func (c sample) check(t *testing.T, o *brig.Outcome) {
	t.Helper()
	if o.ExitCode != c.exit || o.TimedOut || o.OOMKilled || !o.Done {
		t.Errorf("it ended with %d (timed out: %v, out of memory: %v, done: %v), want %d; stderr: %s", o.ExitCode, o.TimedOut, o.OOMKilled, o.Done, c.exit, o.Stderr.Head)
	}
	if c.exit == 0 {
		for what, s := range map[string]struct {
			got  brig.Output
			want string
		}{"stdout": {o.Stdout, c.stdout}, "stderr": {o.Stderr, c.stderr}} {
			if got := string(s.got.Head) + string(s.got.Tail); got != s.want || s.got.Total != int64(len(s.want)) {
				t.Errorf("%s is %q (%d bytes), want %q (%d)", what, brig.Clip(got, 500), s.got.Total, brig.Clip(s.want, 500), len(s.want))
			}
		}
	}
	if (o.Value == nil) != (c.value == "") || o.Value != nil && !sameJSON(t, o.Value, c.value) {
		t.Errorf("the value is %s, want %s", o.Value, c.value)
	}
	switch {
	case (o.Error != nil) != (c.error != ""):
		t.Errorf("the error is %+v, want %q", o.Error, c.error)
	case o.Error != nil && (o.Error.Name != c.error || o.Error.Message != c.message || o.Error.Traceback == "" || o.Error.Code != ""):
		t.Errorf("the error is %+v, want %s: %s with its traceback", o.Error, c.error, c.message)
	}
	if len(o.Artifacts) != len(c.artifacts) {
		t.Errorf("there are %d artifacts, want %d (skipped: %v)", len(o.Artifacts), len(c.artifacts), o.Skipped)
	}
	for _, f := range o.Artifacts {
		if want, ok := c.artifacts[f.Path]; !ok || want != string(f.Data) {
			t.Errorf("the artifact %s is %q, want %q", f.Path, f.Data, want)
		}
	}
}

// corpus returns programs of the kinds that AI agents write.
func corpus() []sample {
	python := func(code, arguments string) brig.Program {
		p := brig.Program{Language: brig.Python, Code: code}
		if arguments != "" {
			p.Arguments = json.RawMessage(arguments)
		}
		return p
	}
	node := func(code, arguments string) brig.Program {
		p := python(code, arguments)
		p.Language = brig.JavaScript
		return p
	}
	var lines strings.Builder
	for i := range 5000 {
		lines.WriteString("line " + strings.Repeat("x", i%30) + "\n")
	}
	return []sample{
		{name: "just code", program: python("print('hello', 6*7)\n", ""), stdout: "hello 42\n"},
		{name: "a script", program: python("import sys\n\ndef main():\n    print('ran', __name__)\n    return 7\n\nif __name__ == '__main__':\n    main()\n", ""), stdout: "ran __main__\n"},
		{name: "arguments and output", program: python("def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\ndef main(n, name='?'):\n    print(f'fib for {name}')\n    return {'n': n, 'fib': fib(n)}\n", `{"n":100,"name":"Ann"}`), stdout: "fib for Ann\n", value: `{"n":100,"fib":354224848179261915075}`},
		{name: "the test of a connection", program: python("import json\nimport math\n\ndef main():\n    print('2 + 2 =', 2 + 2)\n    print(json.dumps({'a': [1, 2]}))\n    print(math.sqrt(16))\n    print('TEST_PASSED')\n    return None\n", `{}`), stdout: "2 + 2 = 4\n{\"a\": [1, 2]}\n4.0\nTEST_PASSED\n", value: `null`},
		{name: "an exception", program: python("def main(x):\n    raise ValueError('no good: ' + x)\n", `{"x":"é"}`), exit: 1, error: "ValueError", message: "no good: é"},
		{name: "an exit code", program: python("import sys\nsys.exit(3)\n", ""), exit: 3},
		{name: "both streams", program: python("import sys\nprint('añb 🎉')\nprint('warned', file=sys.stderr)\nsys.stdout.write('no newline')\n", ""), stdout: "añb 🎉\nno newline", stderr: "warned\n"},
		{name: "much output", program: python("print(''.join('line %s\\n' % ('x' * (i % 30)) for i in range(5000)), end='')\n", ""), stdout: lines.String()},
		{name: "artifacts", program: python("import os\n\ndef main():\n    os.makedirs('artifacts', exist_ok=True)\n    with open('artifacts/table.csv', 'wb') as f:\n        f.write(b'a,b\\n\\x00\\xff\\n')\n    with open('artifacts/no.exe', 'w') as f:\n        f.write('no')\n    return ['done']\n", `{}`), value: `["done"]`, artifacts: map[string]string{"table.csv": "a,b\n\x00\xff\n"}},
		{name: "JavaScript", program: node("function main({items}) {\n  console.log('items', items.length);\n  return items.filter((x) => x % 2).map((x) => ({x, square: x * x}));\n}\n", `{"items":[1,2,3]}`), stdout: "items 3\n", value: `[{"x":1,"square":1},{"x":3,"square":9}]`},
		{name: "JavaScript that waits", program: node("async function main() {\n  await new Promise((done) => setTimeout(done, 10));\n  console.error('late');\n  return null;\n}\n", `{}`), stderr: "late\n", value: `null`},
		{name: "JavaScript without a value", program: node("console.log([1, 2].map((x) => x + 1).join());\n", ""), stdout: "2,3\n"},
		{name: "an exception of JavaScript", program: node("function main() { throw new TypeError('no such thing'); }\n", `{}`), exit: 1, error: "TypeError", message: "no such thing"},
	}
}

// sameJSON reports whether two JSON values are equal. It compares numbers by
// their digits.
func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	read := func(b []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Errorf("%s is not JSON: %v", brig.Clip(string(b), 200), err)
		}
		return v
	}
	return reflect.DeepEqual(read(got), read([]byte(want)))
}
