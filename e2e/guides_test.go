package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// command is one command of a page, and what the page says of its output.
type command struct {
	line int
	text string
	want []string
}

// commands returns the commands of a page. What is fenced on it is for a
// console, so that nothing looks like a command and is not run.
func commands(t *testing.T, page string) (list []command) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "docs", "guides", page))
	if err != nil {
		t.Fatal(err)
	}
	inside, more := false, false
	for i, line := range strings.Split(string(b), "\n") {
		last := len(list) - 1
		switch {
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
	if inside || len(list) == 0 {
		t.Fatalf("%s: a fence is open, or there is no command", page)
	}
	return list
}

// fits reports whether an output is what a page shows: "…" is anything on a
// line, and on a line of its own any lines.
func fits(want []string, got string) bool {
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

// The rule by which pages are held to what happens.
//
//suite:part core
func TestGuideRule(t *testing.T) {
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
		if fits(want, c.got) != c.ok {
			t.Errorf("%q and %q: want %v", c.want, c.got, c.ok)
		}
	}
}

// guide runs a page's commands, in one shell. Where a page has the server's
// usual address the test's own stands. A command may only fail where the page
// shows how.
type guide struct {
	page, addr string
	dir        string            // where the commands are run
	env        []string          // beside the test's
	shell      []string          // the shell, and what it is run in
	after      map[string]string // what stands in for systemd and the like: run after a command that begins so
}

const usualAddr = "127.0.0.1:2744"

func (g *guide) run(t *testing.T) {
	t.Helper()
	list := commands(t, g.page)
	var script strings.Builder
	script.WriteString("exec 2>&1 </dev/null\n")
	for i, c := range list {
		fmt.Fprintf(&script, "%s\nprintf '\\001%d %%d\\n' $?\n", strings.ReplaceAll(c.text, usualAddr, g.addr), i)
		for begin, then := range g.after {
			if strings.HasPrefix(c.text, begin) {
				fmt.Fprintf(&script, "{ %s\n} >/dev/null 2>&1\n", then)
			}
		}
	}
	script.WriteString("kill $(jobs -p); wait\n") // what a page leaves in the background ends before its folder
	file := filepath.Join(g.dir, "guide.sh")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), g.shell[0], append(g.shell[1:], file)...)
	cmd.Dir, cmd.Env = g.dir, append(os.Environ(), g.env...)
	cmd.WaitDelay = time.Second
	out, _ := cmd.CombinedOutput() // the commands' own codes count
	rest := strings.ReplaceAll(string(out), g.addr, usualAddr)
	for i, c := range list {
		got, after, ok := strings.Cut(rest, fmt.Sprintf("\x01%d ", i))
		if !ok {
			t.Fatalf("%s:%d: %s\ndid not end: %s", g.page, c.line, c.text, rest)
		}
		code, after, _ := strings.Cut(after, "\n")
		rest = after
		shown := strings.Contains("\n"+strings.Join(c.want, "\n"), "\nbrig: ")
		if (code != "0") != shown || !fits(c.want, got) {
			t.Errorf("%s:%d: %s\nexits with %s and says\n%s", g.page, c.line, c.text, code, got)
		}
	}
}

// freeAddr is an address of this machine on which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Everything that the guides say to type is typed, on a server of its own.
//
//suite:part install full
func TestGuides(t *testing.T) {
	needRoot(t)
	for _, page := range []string{"user.md", "providers.md", "troubleshooting.md", "migration.md"} {
		t.Run(page, func(t *testing.T) {
			data, work := t.TempDir(), t.TempDir()
			s := startServer(t, data)
			path := filepath.Dir(bin(t, "brig")) + ":" + os.Getenv("PATH")
			g := guide{
				page: page, addr: strings.TrimPrefix(s.url, "http://"), dir: work, shell: []string{"bash"},
				env: []string{"PATH=" + path, "HOME=" + work, "BRIG_DATA_DIR=" + data, "NODE_PATH=" + filepath.Join(work, "node_modules")},
			}
			g.run(t)
			if status, body := s.do("GET", "/v1/sandboxes", ""); status != 200 || strings.Contains(body, `"running"`) {
				t.Errorf("%s leaves sandboxes: %d %s", page, status, body)
			}
		})
	}
}

// The page on trouble has each code.
//
//suite:part core
func TestTroubleHasCodes(t *testing.T) {
	b, err := os.ReadFile("../docs/guides/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range brig.Kinds {
		if !strings.Contains(string(b), "\n| "+k.Code()+" | ") {
			t.Errorf("it does not say what to do about %s", k.Code())
		}
	}
}
