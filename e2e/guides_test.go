package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// command is one command of a documentation page, with the output shown on the
// page.
type command struct {
	line int
	text string
	want []string
}

// fileBlock matches the first line of a block with the content of the file that is named by its
// title.
var fileBlock = regexp.MustCompile("^```[a-z]+ title=\"([A-Za-z._-]+)\"$")

// commands returns the commands of a page in docs. Every fenced block of a page must be a console
// session, or a file with its name as the title, so that no block remains untested. The command
// for a file block writes the file.
func commands(t *testing.T, page string) (list []command) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	inside, more, file := false, false, false
	for i, line := range strings.Split(string(b), "\n") {
		last := len(list) - 1
		switch title := fileBlock.FindStringSubmatch(line); {
		case file && line == "```":
			list[last].text += "\nEND"
			file = false
		case file:
			list[last].text += "\n" + line
		case !inside && title != nil:
			list, file = append(list, command{line: i + 1, text: "cat > " + title[1] + " <<'END'"}), true
		case !inside && strings.HasPrefix(line, "```"):
			if line != "```console" {
				t.Errorf("%s:%d: %q is not a console", page, i+1, line)
			}
			inside = true
		case inside && line == "```":
			inside = false
		case !inside:
		case strings.HasPrefix(line, "$ "):
			list, more = append(list, command{line: i + 1, text: line[2:]}), true
		case last < 0:
			t.Fatalf("%s:%d: output of no command", page, i+1)
		case more && strings.HasPrefix(line, "> "):
			list[last].text += "\n" + line[2:]
		default:
			list[last].want, more = append(list[last].want, line), false
		}
	}
	if inside || file || len(list) == 0 {
		t.Fatalf("%s: a fence is open, or there is no command", page)
	}
	return list
}

// matchesPage reports whether an output matches the output on a page, where "…" matches any text
// within a line or, on its own line, any number of lines.
func matchesPage(want []string, got string) bool {
	if len(want) == 0 {
		return true
	}
	var b strings.Builder
	b.WriteString("^")
	for _, line := range want {
		if line == "…" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "\n")
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String()).MatchString(got)
}

// TestGuideComparison verifies the comparison of outputs with pages.
//
//suite:part core
func TestGuideComparison(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"", "anything\n", true},
		{"42", "42\n", true},
		{"42", "43\n", false},
		{"42", "42\n43\n", false},
		{"a … c", "a b c\n", true},
		{"…\nz", "x\ny\nz\n", true},
		{"…\nz", "z\n", true},
		{"…\nz", "x\n", false},
		{"a.c", "abc\n", false},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		if matchesPage(want, c.got) != c.ok {
			t.Errorf("%q and %q: want %v", c.want, c.got, c.ok)
		}
	}
}

// guide runs a page's commands in one shell. First replace is applied, and then the test's
// address replaces the server's usual address. A command may fail only if the page contains its
// error.
type guide struct {
	page, addr string
	list       []command         // default: the commands of the page
	replace    []string          // pairs of old and new text
	dir        string            // the working directory of the commands
	env        []string          // in addition to the test's environment
	shell      []string          // the shell, and its wrapper
	after      map[string]string // commands to run after a command with this prefix, in place of systemd and other services
}

const usualAddr = "127.0.0.1:2744"

func (g *guide) run(t *testing.T) {
	t.Helper()
	list := g.list
	if list == nil {
		list = commands(t, g.page)
	}
	replace := strings.NewReplacer(append(g.replace, usualAddr, g.addr)...)
	var script strings.Builder
	script.WriteString("exec 2>&1 </dev/null\n")
	for i, c := range list {
		fmt.Fprintf(&script, "%s\nprintf '\\001%d %%d\\n' $?\n", replace.Replace(c.text), i)
		for begin, then := range g.after {
			if strings.HasPrefix(c.text, begin) {
				fmt.Fprintf(&script, "{ %s\n} >/dev/null 2>&1\n", then)
			}
		}
	}
	script.WriteString("kill $(jobs -p); wait\n") // end the page's background processes before its folder is removed
	file := filepath.Join(g.dir, "guide.sh")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), g.shell[0], append(g.shell[1:], file)...)
	cmd.Dir, cmd.Env = g.dir, append(os.Environ(), g.env...)
	cmd.WaitDelay = time.Second
	out, _ := cmd.CombinedOutput() // the exit codes of the individual commands are checked below
	rest := strings.ReplaceAll(string(out), g.addr, usualAddr)
	for i, c := range list {
		got, after, ok := strings.Cut(rest, fmt.Sprintf("\x01%d ", i))
		if !ok {
			t.Fatalf("%s:%d: %s\ndid not end: %s", g.page, c.line, c.text, rest)
		}
		code, after, _ := strings.Cut(after, "\n")
		rest = after
		wantError := strings.Contains("\n"+strings.Join(c.want, "\n"), "\nbrig: ")
		if (code != "0") != wantError || !matchesPage(c.want, got) {
			t.Errorf("%s:%d: %s\nexits with %s and says\n%s", g.page, c.line, c.text, code, got)
		}
	}
}

// freeAddr returns an unused address of this host.
func freeAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testenv.Port(t))
}

// pages returns the pages of a folder of docs, except the given ones.
func pages(t *testing.T, folder string, but ...string) (list []string) {
	t.Helper()
	found, err := filepath.Glob("../docs/" + folder + "/*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("no pages in %s: %v", folder, err)
	}
	for _, name := range found {
		if page := folder + "/" + filepath.Base(name); !slices.Contains(but, page) {
			list = append(list, page)
		}
	}
	return list
}

// TestGuides runs every command of each guide on a separate server, except the deployment guide,
// which TestPackages runs.
//
//suite:part install full
func TestGuides(t *testing.T) {
	needRoot(t)
	runPages(t, pages(t, "guides", "guides/deployment.md"))
}

// TestTutorials writes every file and runs every command of the tutorials, with a wheel that is
// built beforehand.
//
//suite:part install full
func TestTutorials(t *testing.T) {
	needRoot(t)
	runPages(t, pages(t, "tutorials"))
}

// runPages runs each page on its own server. The working directory contains the wheel if the page
// installs it, and is empty otherwise.
func runPages(t *testing.T, list []string) {
	for _, page := range list {
		t.Run(filepath.Base(page), func(t *testing.T) {
			data, work := t.TempDir(), t.TempDir()
			if text, _ := os.ReadFile("../docs/" + page); strings.Contains(string(text), "bin/brig-*.whl") {
				if err := os.Mkdir(filepath.Join(work, "bin"), 0o755); err != nil {
					t.Fatal(err)
				}
				output(t, "../.ci/wheel", filepath.Join(work, "bin"))
			}
			s := startServer(t, data)
			path := filepath.Dir(bin(t, "brig")) + ":" + os.Getenv("PATH")
			g := guide{
				// Editors start brig mcp without the test's environment.
				replace: []string{`"args": ["mcp"]`, `"args": ["mcp", "--data-dir", "` + data + `"]`},
				page:    page, addr: strings.TrimPrefix(s.url, "http://"), dir: work, shell: []string{"bash"},
				env: []string{"PATH=" + path, "HOME=" + work, "BRIG_DATA_DIR=" + data, "NODE_PATH=" + filepath.Join(work, "node_modules"),
					"PIP_TARGET=" + filepath.Join(work, "site"), "PYTHONPATH=" + filepath.Join(work, "site")},
			}
			g.run(t)
			if status, body := s.do("GET", "/v1/sandboxes", ""); status != 200 || strings.Contains(body, `"running"`) {
				t.Errorf("%s leaves sandboxes: %d %s", page, status, body)
			}
		})
	}
}

// TestErrorReferenceCoversCodes verifies that the error reference documents each code.
//
//suite:part core
func TestErrorReferenceCoversCodes(t *testing.T) {
	b, err := os.ReadFile("../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range brig.Kinds {
		if !strings.Contains(string(b), "\n## "+k.Code()+"\n") {
			t.Errorf("it does not say what to do about %s", k.Code())
		}
	}
}
