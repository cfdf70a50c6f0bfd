package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// interpreters maps the languages of code blocks in README.md to commands that run code from
// standard input.
var interpreters = map[string]string{"python": "python3 -", "js": "node --input-type=module -"}

// readme returns the console commands and the code blocks of README.md, in order.
func readme(t *testing.T) (list []command) {
	t.Helper()
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	language, code := "", ""
	for i, line := range strings.Split(string(b), "\n") {
		last := len(list) - 1
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && language == "":
			if language, code = fence, ""; language == "" {
				language = "other" // commands of make
			}
		case isFence:
			if run := interpreters[language]; run != "" {
				list = append(list, command{line: i + 1, text: run + " <<'END'\n" + code + "END", want: []string{"…"}})
			}
			language = ""
		case interpreters[language] != "":
			code += line + "\n"
		case language == "console" && strings.HasPrefix(line, "$ "):
			list = append(list, command{line: i + 1, text: line[2:]})
		case language == "console":
			list[last].want = append(list[last].want, line)
		}
	}
	return list
}

// TestReadme runs the commands and the code of README.md in order, except for make commands. The
// wheel is built beforehand.
//
//suite:part install full
func TestReadme(t *testing.T) {
	needRoot(t)
	list := readme(t)
	code := 0
	for _, c := range list {
		if strings.Contains(c.text, "<<'END'") {
			code++
		}
	}
	if code != 3 || len(list) < 15 {
		t.Fatalf("README.md has %d commands, %d of them code", len(list), code)
	}
	data, work, addr := t.TempDir(), t.TempDir(), freeAddr(t)
	if err := os.Mkdir(filepath.Join(work, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, "../.ci/wheel", filepath.Join(work, "bin"))
	if err := os.CopyFS(filepath.Join(work, "sdk", "typescript"), os.DirFS("../sdk/typescript")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeSandboxes(t, data) })
	g := guide{
		page: "README.md", list: list, addr: addr, dir: work, shell: []string{"bash"},
		replace: []string{"sudo ", "", "brig serve", "brig serve --listen " + addr, "/var/lib/brig", data},
		env: []string{
			"PATH=" + filepath.Dir(bin(t, "brig")) + ":" + os.Getenv("PATH"), "HOME=" + work, "BRIG_DATA_DIR=" + data,
			"PIP_TARGET=" + filepath.Join(work, "site"), "PYTHONPATH=" + filepath.Join(work, "site"),
		},
	}
	g.run(t)
}
