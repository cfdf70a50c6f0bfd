package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/door"
)

// printJSON writes v in the REST API's form.
func (c *cli) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(rest.JSON(v))
}

// printError writes an error for a person, or for a program that asked for
// JSON. The cause is shown too: the operator is the one who reads it.
func (c *cli) printError(e *brig.Error) {
	if c.asJSON {
		b, err := json.Marshal(door.Body(e))
		if err == nil {
			fmt.Fprintln(c.stderr, string(b))
			return
		}
	}
	message := e.Message
	if e.Field != "" {
		message = e.Field + ": " + message
	}
	fmt.Fprintf(c.stderr, "brig: %s (%s)\n", clean(message), e.Kind.Code())
	if e.Hint != "" {
		fmt.Fprintln(c.stderr, "hint:", clean(e.Hint))
	}
	if e.Err != nil && e.Kind != brig.Canceled {
		fmt.Fprintln(c.stderr, "cause:", clean(e.Err.Error()))
	}
}

// clean keeps what a guest may have written from speaking to the terminal.
func clean(s string) string { return without(s, "\n\t") }

// cell is clean for what has one line, and one place in it: a name that a guest
// gave must not look like more than one.
func cell(s string) string { return without(s, "") }

// without replaces what controls a terminal, or turns the direction of a text
// around, but for what is kept.
func without(s, kept string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(kept, r):
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return '�'
		}
		return r
	}, s)
}

// isUsage tells cobra's own complaints from everything else.
func isUsage(err error) bool {
	for _, s := range []string{"unknown command", "unknown flag", "accepts ", "requires ", "unknown shorthand", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), s) {
			return true
		}
	}
	return false
}

// table writes rows in columns.
func (c *cli) table(header string, rows [][]string) error {
	w := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, r := range rows {
		for i := range r {
			r[i] = cell(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// list shows a list as JSON, or a row of a table for each of its items.
func list[T any](c *cli, items []T, header string, row func(T) []string) error {
	if c.asJSON {
		return c.printJSON(items)
	}
	var rows [][]string
	for _, item := range items {
		rows = append(rows, row(item))
	}
	return c.table(header, rows)
}

// ago writes a moment as people do.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t).Round(time.Second)
	if d < 0 {
		return "in " + (-d).String()
	}
	return d.String() + " ago"
}

// progress returns a function that shows long work on one line, or nothing
// when nobody watches.
func (c *cli) progress() (report func(brig.Progress), done func()) {
	if c.asJSON || !isTerminal(c.stderr) {
		last := ""
		return func(p brig.Progress) {
			if !c.asJSON && p.Step != last {
				last = p.Step
				fmt.Fprintln(c.stderr, clean(p.Step))
			}
		}, func() {}
	}
	return func(p brig.Progress) {
			line := clean(p.Step)
			switch {
			case p.Total > 0:
				line = fmt.Sprintf("%s %d%%", line, p.Done*100/p.Total)
			case p.Done > 0:
				line = fmt.Sprintf("%s %s", line, brig.FormatBytes(p.Done>>20<<20))
			}
			if len(line) > 78 {
				line = line[:78]
			}
			fmt.Fprintf(c.stderr, "\r\x1b[K%s", line)
		}, func() {
			_, _ = io.WriteString(c.stderr, "\r\x1b[K")
		}
}
