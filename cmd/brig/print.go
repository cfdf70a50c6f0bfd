package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/rest"
)

// printJSON writes v as the JSON of the REST API.
func (c *cli) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(rest.JSON(v)); err != nil {
		return err
	}
	_, err := c.stdout.Write(escapeJSON(b.Bytes()))
	return err
}

// printError writes an error in readable form, or as JSON with --json. It
// includes the cause, because the reader is the operator.
func (c *cli) printError(e *brig.Error) {
	if c.asJSON {
		b, err := json.Marshal(httpapi.Body(e))
		if err == nil {
			fmt.Fprintln(c.stderr, string(escapeJSON(b)))
			return
		}
	}
	message := e.Message
	if e.Field != "" {
		message = e.Field + ": " + message
	}
	printProblem(c.stderr, message, e.Kind.Code(), e.Hint)
	if e.Err != nil && e.Kind != brig.Canceled {
		fmt.Fprintln(c.stderr, "cause:", sanitizeText(e.Err.Error()))
	}
}

// printProblem writes a message with its code and hint, if they are not empty.
func printProblem(w io.Writer, message, code, hint string) {
	if code != "" {
		message += " (" + code + ")"
	}
	fmt.Fprintln(w, colorize(w, red, "brig:"), sanitizeText(message))
	if hint != "" {
		fmt.Fprintln(w, colorize(w, bold, "hint:"), sanitizeText(hint))
	}
}

// These are the ANSI codes of the terminal colors.
const (
	bold   = "1"
	red    = "1;31"
	green  = "32"
	yellow = "33"
)

// colorize returns text in a color if w is a terminal and the user has not
// disabled colors; see https://no-color.org.
func colorize(w io.Writer, color, text string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// sanitizeText removes terminal control characters from text that a guest may have
// written.
func sanitizeText(s string) string { return replaceUnsafe(s, "\n\t") }

// sanitizeCell is like sanitizeText, for a value that must remain on one line and in one
// column: a name from a guest must not appear as several rows or columns.
func sanitizeCell(s string) string { return replaceUnsafe(s, "") }

// replaceUnsafe replaces characters that control a terminal or reverse the text
// direction, except those in kept.
func replaceUnsafe(s, kept string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(kept, r):
			return r
		case isUnsafeRune(r):
			return '�'
		}
		return r
	}, s)
}

// relativeTime formats a time relative to now.
func relativeTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if d := time.Since(t); d >= 0 {
		return formatAge(d) + " ago"
	}
	return "in " + formatAge(time.Until(t))
}

// formatAge formats a duration with its largest unit: 59s, 12m, 3h, 5d.
func formatAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}
