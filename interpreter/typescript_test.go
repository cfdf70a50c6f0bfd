package interpreter_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
)

func TestTypeScript(t *testing.T) {
	for _, c := range []struct{ what, ts, js string }{
		{"types", "const a: number = 1 as const", "const a = 1;"},
		{"lines", "interface A {\n  x: number\n}\ntype B = string\n\nfoo()", "\n\n\n\n\nfoo();"},
		{"lines of a chain", "// one\nfetch(\n  'x')\n  .then((r: any) => {\n\n    return r\n  })", "\nfetch(\n\"x\" ).\nthen((r) => {\n\nreturn r;\n});"},
		{"template", "type A = 1\nconst t = `a\n b ${\n 1 +\n 2}`", "\nconst t = `a\n b ${\n1 +\n2}`;"},
		{"enum", "enum C { Red }\nC.Red", "var C = /* @__PURE__ */ ((C2) => { C2[C2[\"Red\"] = 0] = \"Red\"; return C2; })(C || {});\n0 /* Red */;"},
		{"parameters", "class P {\n  constructor(private a: number) {}\n}", "class P {\nconstructor(a) { this.a = a; } a;\n}"},
		{"unused values", "let v = 1\nfunction f() {}\n'last'", "let v = 1;\nfunction f() { }\n\"last\";"},
		{"imports", "import fs, {Stats} from 'fs'\nimport type {A} from 'a'\nfs.x", "import fs from \"fs\";\n\nfs.x;"},
		{"await", "const x: any = await f()", "const x = await f();"},
		{"signs", "let r = a / 2 / b, s = /[/`]/\nfoo('é😀',\n  b)", "let r = a / 2 / b, s = /[/`]/;\nfoo( \"é😀\",\nb );"},
		{"regular expression after a block", "{}\n/`/.test(a)\nlet b: 1", "{ }\n/`/.test(a);\nlet b;"},
		{"empty", "", ""},
	} {
		js, err := interpreter.TypeScript(c.ts)
		lines := strings.Split(js, "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		if got := strings.Join(lines, "\n"); err != nil || got != c.js {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.what, err, got, c.js)
		}
	}
	if js, err := interpreter.TypeScriptCell("import fs, {Stats} from 'fs'"); err != nil || !strings.Contains(js, "Stats") {
		t.Errorf("a cell's import was removed: %q, %v", js, err)
	}
	if js, err := interpreter.TypeScriptCell(" {a: 1 as number} "); err != nil || !strings.HasPrefix(js, "({ a: 1 })") {
		t.Errorf("an object is %q, %v", js, err)
	}
}

func TestTypeScriptErrors(t *testing.T) {
	for _, c := range []struct {
		ts           string
		line, column int
		trace        string
	}{
		{"let é: = 3", 1, 8, "a.ts:1\nlet é: = 3\n       ^\n\nSyntaxError: Unexpected \"=\"\n    at a.ts:1:8"},
		{"\n\tfoo(", 2, 6, "a.ts:2\n\tfoo(\n\t    ^\n\nSyntaxError: "},
		{strings.Repeat(" ", 17<<20), 0, 0, "SyntaxError: 17825792 bytes"},
	} {
		_, err := interpreter.TypeScript(c.ts)
		var e *interpreter.SyntaxError
		if !errors.As(err, &e) || e.Line != c.line || e.Column != c.column || !strings.HasPrefix(e.Traceback("a.ts"), c.trace) {
			t.Errorf("%.20q: %#v", c.ts, err)
		}
	}
}

// TestTranspilerProcess is not a test, but the process of a Transpiler.
func TestTranspilerProcess(t *testing.T) {
	if flag.Arg(0) != "child" {
		t.Skip("the process of a Transpiler")
	}
	if err := interpreter.TypeScriptMain(os.Stdin, os.Stdout); err != nil {
		t.Fatal(err)
	}
	os.Exit(0)
}

func TestTranspiler(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a program may")
	}
	tr := &interpreter.Transpiler{Binary: "/proc/self/exe", Argv: []string{os.Args[0], "-test.run=^TestTranspilerProcess$", "child"}, Timeout: 2 * time.Second}
	defer tr.Close()
	good := func() {
		t.Helper()
		if js, err := tr.Program(context.Background(), "let a: number = 1"); err != nil || strings.TrimSpace(js) != "let a = 1;" {
			t.Errorf("%q, %v", js, err)
		}
	}
	good()
	var e *interpreter.SyntaxError
	if _, err := tr.Cell(context.Background(), "let a: = 1"); !errors.As(err, &e) || e.Line != 1 {
		t.Errorf("%#v", err)
	}
	good()
	// The first program overflows the compiler's stack, and the second exceeds its time limit.
	for _, code := range []string{
		strings.Repeat("[", 8<<20),
		strings.Repeat("a?(b):c=>", 60) + "1" + strings.Repeat(":d", 60),
	} {
		if _, err := tr.Cell(context.Background(), code); !errors.As(err, &e) {
			t.Errorf("%.20q: %#v", code, err)
		}
		good()
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tr.Cell(over, "1"); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("%v", err)
	}
	good()
}

// A process that is busy while its Transpiler is closed ends after its program.
func TestTranspilerCloseEndsBusyProcesses(t *testing.T) {
	marker := "brig-" + rand.Text()
	tr := &interpreter.Transpiler{Binary: "/bin/sh", Argv: []string{"sh", "-c", `read line; sleep 1; echo '{"js":"1"}'; read line # ` + marker}}
	done := make(chan error)
	go func() {
		_, err := tr.Program(context.Background(), "1")
		done <- err
	}()
	await := func(running bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); processRuns(t, marker) != running; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("whether the process runs is still %t", !running)
			}
		}
	}
	await(true)
	tr.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	await(false)
}

// processRuns reports whether a process of this machine has the marker in its arguments.
func processRuns(t *testing.T, marker string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), marker)
	})
}

func TestTypeScriptCells(t *testing.T) {
	d := startNode(t)
	for _, s := range []step{
		{what: "types", code: "interface A {\n  x: number\n}\nconst f = (a: A): number => {\n  if (a.x > 1)\n    throw new Error('x')\n  return a.x\n}\nf({x: 1})", value: "1"},
		{what: "user's lines", code: "type T = any\n\nf({x: 2} as T)", name: "Error", trace: "Error: x\n    at f (cell-1.js:6:7)\n    at cell-2.js:3:1"},
		{what: "enum", code: "enum Color { Red, Green }\nColor.Green", value: "1"},
		{what: "enum stays", code: "Color[0]", value: "'Red'"},
		{what: "type imports", code: "import fs, { Stats } from 'fs'; import type { X } from 'nowhere'", value: "-"},
		{what: "import stays", code: "typeof fs.statSync", value: "'function'"},
		{what: "object", code: "{a: 1 as number}", value: "{ a: 1 }"},
		{what: "decorator", code: "function dec(v: any, c: any) {}\nclass D { @dec m(): number { return 4 } }\nnew D().m()", value: "4"},
		{what: "again", code: "const f: number = await Promise.resolve(2); f satisfies number", value: "2"},
	} {
		js, err := interpreter.TypeScriptCell(s.code)
		if err != nil {
			t.Fatal(err)
		}
		s.code = js
		s.run(t, d)
	}
}

func FuzzTypeScript(f *testing.F) {
	for _, s := range []string{"", "let a: = 1", "`${`${1}`}`\n", "a\n/b/\nc", "enum A{}\n//x\n/*\n*/", "x = a as any\n/1", "@d class{}", "é😀 = `\\\n`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, code string) {
		if len(code) > 300 || strings.Count(code, "?") > 8 {
			return // slow programs are tested with a Transpiler
		}
		for _, compile := range []func(string) (string, error){interpreter.TypeScript, interpreter.TypeScriptCell} {
			js, err := compile(code)
			var e *interpreter.SyntaxError
			switch {
			case err != nil && !errors.As(err, &e):
				t.Fatalf("%#v", err)
			case err != nil:
				_ = e.Traceback("f")
			case strings.Count(js, "\n") > 10*strings.Count(code, "\n")+1000:
				t.Fatalf("too many lines: %q", js)
			}
		}
	})
}
