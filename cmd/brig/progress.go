package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// newProgress returns report, which shows the progress of a long operation on one line, and done,
// which clears the line. If the output is not a terminal, report prints each step once.
func (c *cli) newProgress() (report func(brig.Progress), done func()) {
	if c.asJSON || !isTerminal(c.stderr) {
		last := ""
		return func(p brig.Progress) {
			if !c.asJSON && p.Step != last {
				last = p.Step
				fmt.Fprintln(c.stderr, sanitizeText(p.Step))
			}
		}, func() {}
	}
	const width = 78
	var line progressLine
	return func(p brig.Progress) {
			text := []rune(line.text(p, time.Now()))
			fmt.Fprintf(c.stderr, "\r\x1b[K%s", string(text[:min(len(text), width)]))
		}, func() {
			_, _ = io.WriteString(c.stderr, "\r\x1b[K")
		}
}

// progressLine formats the progress of consecutive steps.
type progressLine struct {
	step        string
	begin       time.Time
	doneAtStart int64 // the bytes that were done when the step began
}

// minRate is the minimum duration of a step before its rate is meaningful.
const minRate = time.Second

// text returns the name of a step with its percentage, rate and remaining time,
// as far as they are known.
func (l *progressLine) text(p brig.Progress, now time.Time) string {
	if p.Step != l.step {
		l.step, l.begin, l.doneAtStart = p.Step, now, p.Done
	}
	text := sanitizeText(p.Step)
	switch {
	case p.Total > 0:
		text += fmt.Sprintf(" %d%%", p.Done*100/p.Total)
	case p.Done > 0:
		text += " " + brig.FormatBytes(p.Done>>20<<20)
	}
	took := now.Sub(l.begin)
	if took < minRate || p.Done-l.doneAtStart < brig.MiB { // a smaller number may count items
		return text
	}
	rate := float64(p.Done-l.doneAtStart) / took.Seconds()
	parts := []string{text, brig.FormatBytes(int64(rate)>>20<<20) + "/s"}
	if rate < brig.MiB {
		parts[1] = brig.FormatBytes(int64(rate)>>10<<10) + "/s"
	}
	if remaining := p.Total - p.Done; remaining > 0 {
		parts = append(parts, formatAge(time.Duration(float64(remaining)/rate*float64(time.Second)))+" left")
	}
	return strings.Join(parts, ", ")
}
