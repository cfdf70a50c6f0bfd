package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// splitWords splits an example line like a shell, without redirections. It supports
// quotes, but not variables.
func splitWords(line string) (out []string) {
	word, begun, quote := "", false, rune(0)
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && r == ' ':
			if begun {
				out = append(out, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(r), true
		}
	}
	if i := slices.IndexFunc(out, func(w string) bool { return w == ">" || w == "<" }); i >= 0 {
		out = out[:i]
	}
	return out
}

// parse returns the error for a command line's flags and arguments, if any. It does not run the
// command.
func parse(args []string) (err error) {
	c := &cli{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	root := c.root()
	ran := false
	forEachCommand(root, func(cmd *cobra.Command) {
		if cmd.RunE != nil || cmd.Run != nil {
			cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
				ran = true
				if cmd.Annotations[onlyGroup] != "" {
					return unknownCommandError(cmd, strings.Join(args, " "))
				}
				return nil
			}
		}
	})
	root.SetArgs(separateCommand(root, args))
	root.SetOut(io.Discard)
	if err := root.Execute(); err != nil || ran {
		return err
	}
	return brig.Errorf(brig.InvalidArgument, "no command runs")
}

// TestEveryCommandHasExample checks that every command has a short description and an
// example, and that each example parses and uses its command.
func TestEveryCommandHasExample(t *testing.T) {
	paths := map[string]bool{}
	forEachCommand((&cli{}).root(), func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "brig ")
		paths[path] = true
		if !cmd.Runnable() || cmd.Hidden {
			return
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 80 {
			t.Errorf("%s: short description %q", path, cmd.Short)
		}
		found := false
		for _, line := range strings.Split(cmd.Example, "\n") {
			_, line, ok := strings.Cut(line, "brig ")
			if !ok || strings.TrimSpace(line) == "" {
				t.Errorf("%s: %q is not an example", path, line)
				continue
			}
			args := splitWords(line)
			if err := parse(args); err != nil && line != "--version" {
				t.Errorf("%s: brig %s: %v", path, line, err)
			}
			found = found || cmd.Annotations[onlyGroup] != "" || strings.Contains(" "+line, " "+path)
		}
		if !found && path != "brig" && path != "version" {
			t.Errorf("%s: no example shows the command", path)
		}
	})
	for path := range examples {
		if !paths[path] {
			t.Errorf("there is an example of %q, which is not a command", path)
		}
	}
	for path := range emptyLists {
		if !paths[path] {
			t.Errorf("emptyLists has %q, which is not a command", path)
		}
	}
	// As a control, a wrong example must be an error.
	for _, wrong := range []string{"sandbox create --nothing", "sandbox get", "sandbox frobnicate", "run --timeout 5 -c x"} {
		if parse(splitWords(wrong)) == nil {
			t.Errorf("brig %s parses", wrong)
		}
	}
}

// TestCommandArgumentsAreSeparated checks that brig separates its own arguments from those of the
// program in the sandbox.
func TestCommandArgumentsAreSeparated(t *testing.T) {
	for in, want := range map[string]string{
		"sandbox exec one ls -la":                 "sandbox exec one -- ls -la",
		"sandbox exec one -- ls -la":              "sandbox exec one -- ls -la",
		"sb exec -it one bash -i":                 "sandbox exec -it one -- bash -i",
		"sandbox exec -e A=1 one env -i":          "sandbox exec -e A=1 one -- env -i",
		"sandbox exec one --user root id -u":      "sandbox exec one --user root -- id -u",
		"sandbox exec -eA=1 one env":              "sandbox exec -eA=1 one -- env",
		"sandbox exec --cwd=/tmp one pwd -P":      "sandbox exec --cwd=/tmp one -- pwd -P",
		"sandbox start one sleep 5":               "sandbox start one -- sleep 5",
		"sandbox exec one":                        "sandbox exec one",
		"run python3 -c x":                        "run -- python3 -c x",
		"run --memory 64MiB ls -l":                "run --memory 64MiB -- ls -l",
		"--json run ls -l":                        "run --json -- ls -l",
		"run script.py":                           "run script.py",
		"run script.py --timeout 5s":              "run script.py --timeout 5s",
		"run script.py a --timeout 5s":            "run script.py -- a --timeout 5s",
		"run script.py -- a":                      "run script.py -- a",
		"run -c x":                                "run -c x",
		"sandbox shell one ls -la":                "sandbox shell one ls -la",
		"sandbox ls":                              "sandbox ls",
		"frobnicate a -b":                         "frobnicate a -b",
		"--url http://127.0.0.1:1 sb exec a ls -": "sandbox exec --url http://127.0.0.1:1 a -- ls -",
	} {
		if got := strings.Join(separateCommand((&cli{}).root(), strings.Fields(in)), " "); got != want {
			t.Errorf("brig %s becomes %s, want %s", in, got, want)
		}
	}
}

// TestErrorFieldsAreShownAsFlags checks that fields of the API are replaced with the flags and
// arguments of the current command, in errors and hints.
func TestErrorFieldsAreShownAsFlags(t *testing.T) {
	for _, c := range []struct{ command, field, hint, wantField, wantHint string }{
		{"run", "timeout_ms", "raise timeout_ms", "--timeout", "raise --timeout"},
		{"run", "limits.memory", "raise limits.memory", "--memory", "raise --memory"},
		{"run", "limits.open_files", "raise limits.processes, limits.open_files or limits.disk", "--open-files", "raise --processes, --open-files or --disk"},
		{"run", "egress.rules[2].host", "leave out egress: the sandbox then connects to nothing", "--allow", "leave out --allow: the sandbox then connects to nothing"},
		{"run", "files[0].path", "give a path relative to it", "--file", "give a path relative to it"},
		{"run", "name", "", "--name", ""},
		{"sandbox create", "name", "", "NAME", ""},
		{"sandbox create", "image", "leave out image or template", "--image", "leave out --image or --template"},
		{"sandbox create", "freeze_after_ms", "", "--freeze-after", ""},
		{"sandbox create", "pause_after_ms", "", "--pause-after", ""},
		{"sandbox stop", "grace_ms", "", "--grace", ""},
		{"sandbox logs", "tail", "", "--tail", ""},
		{"sandbox code", "context_id", "leave out context_id or language", "--context", "leave out --context or --language"},
		{"sandbox get", "limits.memory", "raise limits.memory", "limits.memory", "raise limits.memory"}, // the command has no such flag
		{"sandbox exec", "command[0]", "name a program", "CMD", "name a program"},
		{"tenant update", "quota.execution_ms_per_day", "", "--execution-time-per-day", ""},
		{"tenant update", "ceilings.images", "", "--images", ""},
		{"key create", "ttl_ms", "", "--ttl", ""},
		{"key grant", "sandboxes", "", "--sandbox", ""},
		{"image pull", "ref", "", "REF", ""},
		{"image pull", "username", "", "--username", ""},
		{"workspace restore", "version", "", "VERSION", ""},
		{"provider configure", "terms.max", "", "--max", ""},
		{"run", "--args", "for example --args '{}'", "--args", "for example --args '{}'"},
		{"run", "placement.provider", "", "--provider", ""},
		{"secret set", "hosts", brig.HintValueAgain, "--host", "give the value again, without --keep-value: the change lets it go further than before"},
		{"secret set", "plain", brig.HintValueAgain, "--plain", "give the value again, without --keep-value: the change lets it go further than before"},
		{"run", "require.memory", "", "--require", ""},
	} {
		cmd, _, err := (&cli{}).root().Find(strings.Fields(c.command))
		if err != nil {
			t.Fatal(err)
		}
		e := replaceFieldsWithFlags(cmd, brig.InvalidField(c.field, "x").WithHint("%s", c.hint))
		if e.Field != c.wantField || e.Hint != c.wantHint {
			t.Errorf("%s, field %s: %q, hint %q; want %q, %q", c.command, c.field, e.Field, e.Hint, c.wantField, c.wantHint)
		}
	}
}

// TestRemoveAllRequiresConfirmation checks that the removal of all sandboxes requires a
// confirmation, and that only "y" and "yes" confirm it.
func TestRemoveAllRequiresConfirmation(t *testing.T) {
	for answer, ok := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		var errs bytes.Buffer
		p := prompt{in: strings.NewReader(answer), out: &errs, terminal: true}
		err := p.confirmYes("Remove 2 sandboxes (a, b)?")
		if (err == nil) != ok || errs.String() != "Remove 2 sandboxes (a, b)? [y/N] " {
			t.Errorf("%q: %v, asked %q", answer, err, errs.String())
		}
	}
}

// TestListingSupportsFormats checks the output formats of lists, and the hint for an empty list.
func TestListingSupportsFormats(t *testing.T) {
	items := []*brig.Tenant{{Name: "a", Quota: brig.Quota{Sandboxes: 3}}, {Name: "b\x1b[31m\nc"}}
	row := func(t *brig.Tenant) []string { return []string{t.Name, formatBound(t.Quota.Sandboxes)} }
	for _, c := range []struct {
		name      string
		show      listing
		items     []*brig.Tenant
		terminal  bool
		out, errs string
	}{
		{"a table", listing{}, items, true, "NAME SANDBOXES a 3 b\ufffd[31m\ufffdc -", ""},
		{"names", listing{quiet: true}, items, true, "a b\ufffd[31m\ufffdc", ""},
		{"a template", listing{format: "{{.name}}:{{.quota.sandboxes}}:{{.budget}}"}, items, true, "a:3: b\ufffd[31m\ufffdc::", ""},
		{"nothing, for a person", listing{empty: "No tenants."}, nil, true, "NAME SANDBOXES", "No tenants.\n"},
		{"nothing, for a script", listing{empty: "No tenants."}, nil, false, "NAME SANDBOXES", ""},
	} {
		var out, errs bytes.Buffer
		cl := &cli{stdout: &out, stderr: &errs, show: c.show, terminal: c.terminal}
		if err := list(cl, c.items, "NAME\tSANDBOXES", row); err != nil {
			t.Error(err)
		}
		if strings.Join(strings.Fields(out.String()), " ") != c.out || errs.String() != c.errs {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, out.String(), errs.String(), c.out, c.errs)
		}
	}
}

// TestAgeUsesLargestUnit checks that ages are formatted with a single unit.
func TestAgeUsesLargestUnit(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59*time.Second + 999*time.Millisecond: "59s", 61 * time.Second: "1m", 59 * time.Minute: "59m",
		25 * time.Hour: "25h", 49 * time.Hour: "2d", 400 * 24 * time.Hour: "400d",
	} {
		if got := formatAge(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// TestProgressShowsRateAndRemainingTime checks that the progress line contains the percentage, the
// rate and the remaining time.
func TestProgressShowsRateAndRemainingTime(t *testing.T) {
	begin := time.Unix(1000, 0)
	p := &progressLine{}
	for _, c := range []struct {
		after time.Duration
		at    brig.Progress
		want  string
	}{
		{0, brig.Progress{Step: "resolve"}, "resolve"},
		{0, brig.Progress{Step: "pull", Done: 0, Total: 100 << 20}, "pull 0%"},
		{2 * time.Second, brig.Progress{Step: "pull", Done: 20 << 20, Total: 100 << 20}, "pull 20%, 10MiB/s, 8s left"},
		{12 * time.Second, brig.Progress{Step: "pull", Done: 100 << 20, Total: 100 << 20}, "pull 100%, 8MiB/s"},
		{13 * time.Second, brig.Progress{Step: "unpack", Done: 3 << 20}, "unpack 3MiB"},
		{15 * time.Second, brig.Progress{Step: "unpack", Done: 7 << 20}, "unpack 7MiB, 2MiB/s"},
	} {
		if got := p.text(c.at, begin.Add(c.after)); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
}

// TestColorsRequireTerminal checks that colors are used only on terminals, and only if the
// user has not disabled them.
func TestColorsRequireTerminal(t *testing.T) {
	_, tty := openPTY(t)
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if got := colorize(tty, red, "x"); got != "\x1b[1;31mx\x1b[0m" {
		t.Errorf("on a terminal: %q", got)
	}
	if got := colorize(io.Discard, red, "x"); got != "x" {
		t.Errorf("in a file: %q", got)
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got := colorize(tty, red, "x"); got != "x" {
				t.Errorf("with %s=%s: %q", name, value, got)
			}
		})
	}
}

// TestWatchedListPrintsChanges checks that ls --watch prints a list again only if it has changed,
// and that it ends with its context or with an error.
func TestWatchedListPrintsChanges(t *testing.T) {
	var out bytes.Buffer
	c := &cli{stdout: &out}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lists := []string{"a\n", "a\n", "a b\n"}
	err := printWhenChanged(ctx, c, func() error {
		_, err := io.WriteString(c.stdout, lists[0])
		if lists = lists[1:]; len(lists) == 0 {
			cancel()
		}
		return err
	})
	if err != nil || out.String() != "a\na b\n" || c.stdout != &out {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := printWhenChanged(t.Context(), c, func() error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v", err)
	}
}
