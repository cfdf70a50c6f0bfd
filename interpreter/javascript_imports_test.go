package interpreter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// Brig compiles the program, but no TypeScript file that the program imports. The error says so. The
// controls are a file that does not exist, and a JavaScript file.
func TestImportOfTypeScriptFileIsExplained(t *testing.T) {
	version, err := exec.Command("node", "-p", "!!process.features.typescript").Output()
	if err != nil {
		t.Skip("no node")
	}
	strips := strings.TrimSpace(string(version)) == "true" // this Node.js loads TypeScript files
	const hint = " is TypeScript, and only the program itself is compiled"
	for _, c := range []struct{ code, hint string }{
		{`import { x } from "./lib"; console.log(x as number)`, "lib.ts" + hint},
		{`import { x } from "./lib.js"; console.log(x as number)`, "lib.ts" + hint},
		{`import { x } from "./lib.ts"; console.log(x as number)`, "lib.ts" + hint},
		{`const { x } = await import("./lib"); console.log(x as number)`, "lib.ts" + hint},
		{`const { x } = require("./lib"); console.log(x as number)`, "lib.ts" + hint},
		{`const { x } = require("./lib.ts"); console.log(x as number)`, "lib.ts" + hint},
		{`import { x } from "./parts"; console.log(x as number)`, "parts/index.ts" + hint},
		{`import { x } from "./lib"; export function main(): number { return x }`, "lib.ts" + hint},
		{`import { x } from "./nothing"; console.log(x as number)`, ""},
		{`const { x } = require("./nothing"); console.log(x as number)`, ""},
		{`import { x } from "./plain.mjs"; console.log(x as number)`, ""},
		{`throw new Error("Cannot find module './lib'") as Error`, ""},
		{`throw null`, ""},
	} {
		if strips && strings.Contains(c.code, ".ts\"") {
			c.hint = ""
		}
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			js, err := interpreter.TypeScript(c.code)
			if err != nil {
				t.Fatal(err)
			}
			d := startNode(t)
			d.stdin.Close()
			if err := os.Mkdir(filepath.Join(d.dir, "parts"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"lib.ts": "export const x: number = 42", "parts/index.ts": "export const x: number = 42", "plain.mjs": "export const x = 42"} {
				if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			end, code, stdout, stderr := d.runProgram(interpreter.Request{Code: js})
			if c.hint == "" {
				if strings.Contains(stderr, hint) {
					t.Errorf("exit %d, %q", code, stderr)
				}
				return
			}
			if code != 1 || stdout != "" || !strings.Contains(stderr, "\nbrig: "+c.hint) || end.Failure == nil || !strings.Contains(end.Failure.Message, c.hint) {
				t.Errorf("exit %d, %+v, %q\n%s", code, end.Failure, stdout, stderr)
			}
		})
	}
}
