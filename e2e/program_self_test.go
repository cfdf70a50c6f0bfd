package e2e

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// programsOf reads programs from the test data of package interpreter.
func programsOf(t *testing.T, name string) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile("../interpreter/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return a.Files
}

// ranProgram is the response to a run.
type ranProgram struct {
	Stdout, Stderr string
	ExitCode       int `json:"exit_code"`
	Result         json.RawMessage
	Error          any
}

// runFile runs a program in the language that its file extension indicates, with the given input
// files by path.
func (s *server) runFile(t *testing.T, p txtar.File, files map[string]string) (a ranProgram) {
	t.Helper()
	type file struct {
		Path    string `json:"path"`
		Content []byte `json:"content_b64"`
	}
	in := struct {
		Language string `json:"language"`
		Code     string `json:"code"`
		Files    []file `json:"files,omitempty"`
	}{Language: map[string]string{"py": "python", "sh": "bash", "js": "javascript", "mjs": "javascript"}[p.Name[strings.LastIndex(p.Name, ".")+1:]], Code: string(p.Data)}
	for name, text := range files {
		in.Files = append(in.Files, file{name, []byte(text)})
	}
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	status, text := s.do("POST", "/v1/run", string(body))
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return a
}

// TestMainFunctionRunsOnce verifies that a program's main function runs exactly once, regardless of how
// the program calls it.
//
//suite:part core
func TestMainFunctionRunsOnce(t *testing.T) {
	s := startServer(t, t.TempDir())
	value := regexp.MustCompile(`(?m)^(?:#|//) value: (.*)$`)
	for _, p := range testenv.Share(t, append(programsOf(t, "main-python.txtar"), programsOf(t, "main-javascript.txtar")...), 20) {
		t.Run(p.Name, func(t *testing.T) {
			want := "null"
			if m := value.FindSubmatch(p.Data); m != nil {
				want = string(m[1])
			}
			a := s.runFile(t, p, nil)
			if a.ExitCode != 0 || a.Error != nil || string(a.Result) != want || strings.Count(a.Stdout, "ran") != 1 {
				t.Errorf("exit %d, %v, result %s, want %q\nstdout %q\n%s", a.ExitCode, a.Error, a.Result, want, a.Stdout, a.Stderr)
			}
		})
	}
}

// TestProgramCanReadItsSource verifies that a program can use its own source file, even next to a file of the
// caller with the same name.
//
//suite:part core
func TestProgramCanReadItsSource(t *testing.T) {
	s := startServer(t, t.TempDir())
	for _, p := range testenv.Share(t, programsOf(t, "self.txtar"), 12) {
		for _, nameTaken := range []bool{false, true} {
			files := map[string]string{"data.txt": "ok"}
			name := p.Name
			if nameTaken {
				name += "/taken"
				for _, other := range []string{"main.py", "main.js", "main.mjs", "main.sh"} {
					files[other] = "another program"
				}
			}
			t.Run(name, func(t *testing.T) {
				if a := s.runFile(t, p, files); a.ExitCode != 0 || a.Error != nil || strings.TrimSpace(a.Stdout) != "ok" {
					t.Errorf("exit %d, %v\nstdout %q\n%s", a.ExitCode, a.Error, a.Stdout, a.Stderr)
				}
			})
		}
	}
}

// TestProgramFileAndWorkspace verifies that a program's source file is never committed to its
// workspace, however the program ends, while a file of the same name that the program wrote
// itself is committed.
//
//suite:part workspaces
func TestProgramFileAndWorkspace(t *testing.T) {
	e, b, _ := withWorkspaces(t)
	if _, err := e.CreateWorkspace(b.ctx, "data"); err != nil {
		t.Fatal(err)
	}
	sealed := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceReadOnly}
	direct := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	// Only the forked process uses the file, and it cannot report this to the server.
	const forked = "import os, sys\nif os.fork() == 0:\n    open('g', 'w').write(open(getattr(sys.modules['__main__'], '__fi' 'le__')).read())\n    os._exit(0)\nos.wait()\nassert open('g').read()"
	for _, c := range []struct {
		name    string
		program brig.Program
		want    string // the files of the workspace
	}{
		{"python", brig.Program{Language: brig.Python, Code: "open('a', 'w').write(open(__file__).read())"}, "a"},
		{"javascript", brig.Program{Language: brig.JavaScript, Code: "require('fs').copyFileSync(__filename, 'b')"}, "a b"},
		{"module", brig.Program{Language: brig.JavaScript, Code: "import fs from 'fs'\nfs.copyFileSync(new URL(import.meta.url), 'c')"}, "a b c"},
		{"module that exits", brig.Program{Language: brig.JavaScript, Code: "import fs from 'fs'\nfs.writeFileSync('c', 'x')\nprocess.exit(0)"}, "a b c"},
		{"module that exits again", brig.Program{Language: brig.JavaScript, Code: "import fs from 'fs'\nfs.writeFileSync('c', 'x')\nprocess.exit(0)"}, "a b c"},
		{"bash", brig.Program{Language: brig.Bash, Code: `cp "$0" d`}, "a b c d"},
		{"killed", brig.Program{Language: brig.Python, Code: "import os\nopen('e', 'w').write(open(__file__).read())\nos.kill(os.getpid(), 9)"}, "a b c d e"},
		{"timeout", brig.Program{Language: brig.Python, Code: "import time\nopen('f', 'w').write(open(__file__).read())\nwhile True: time.sleep(1)", Timeout: time.Second, Grace: 10 * time.Second}, "a b c d e f"},
		{"another file", brig.Program{Language: brig.Python, Code: "open('main.py', 'w').write('mine')"}, "a b c d e f main.py"},
		{"beside it", brig.Program{Language: brig.Python, Code: "assert open(__file__).read() != open('main.py').read() == 'mine'"}, "a b c d e f main.py"},
		{"forked", brig.Program{Language: brig.Python, Code: forked}, "a b c d e f g main.py"},
		{"read-only", brig.Program{Language: brig.Python, Code: "import os\nassert open(__file__).read() and open(os.path.dirname(__file__) + '/main.py').read() == 'mine'", Workspace: sealed}, "a b c d e f g main.py"},
		{"read-only javascript", brig.Program{Language: brig.JavaScript, Code: "require('fs').readFileSync(__filename); require('fs').readFileSync(__dirname + '/main.py')", Workspace: sealed}, "a b c d e f g main.py"},
		{"read-only module", brig.Program{Language: brig.JavaScript, Code: "import fs from 'fs'\nfs.readFileSync(new URL(import.meta.url)); fs.readFileSync(new URL('main.py', import.meta.url))", Workspace: sealed}, "a b c d e f g main.py"},
		{"read-only bash", brig.Program{Language: brig.Bash, Code: `cat "$0" "$(dirname "$0")/main.py"`, Workspace: sealed}, "a b c d e f g main.py"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.program.Workspace.Name == "" {
				c.program.Workspace = direct
			}
			o, err := e.Run(b.ctx, c.program, brig.IO{})
			ends := map[string]int{"killed": 137, "timeout": 124}
			if err != nil || o.ExitCode != ends[c.name] {
				t.Fatalf("exit %d, %v\n%s", o.ExitCode, err, o.Stderr.Head)
			}
			found, err := e.WorkspaceFiles(b.ctx, "data", 0, "")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range found {
				names = append(names, strings.TrimPrefix(f.Path, "/workspace/"))
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("the workspace has %q, want %q", got, c.want)
			}
		})
	}
}
