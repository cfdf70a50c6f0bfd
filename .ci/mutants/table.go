package main

import (
	"fmt"
	"strings"

	"github.com/brig-run/brig/internal/mutants"
)

// columns selects the mutants that each column of a row counts.
var columns = []func(*mutants.Mutant) bool{
	func(m *mutants.Mutant) bool { return m.Killed == mutants.Packages },
	func(m *mutants.Mutant) bool { return m.Killed == mutants.Small },
	func(m *mutants.Mutant) bool { return m.Killed == mutants.Full },
	survives,
	isUntried,
}

// survives reports whether no test detects a mutant after all stages, or no test needs to detect
// it.
func survives(m *mutants.Mutant) bool {
	return m.Killed == "" && (m.Survived == mutants.Full || m.Why != "")
}

// isUntried reports whether a surviving mutant has not been through every stage
// yet.
func isUntried(m *mutants.Mutant) bool { return m.Killed == "" && !survives(m) }

// table writes docs/mutants.md.
func table(list []mutants.Mutant) string {
	var b strings.Builder
	b.WriteString(head)
	sums := make([]int, len(columns)+1)
	row := func(what string, counts []int) {
		fmt.Fprintf(&b, "| %s |", what)
		for _, n := range counts {
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	for _, t := range targets {
		counts := make([]int, len(columns)+1)
		for i := range list {
			m := &list[i]
			if targetOf(m).what != t.what || m.Killed == mutants.Invalid {
				continue
			}
			counts[0]++
			for c, in := range columns {
				if in(m) {
					counts[c+1]++
				}
			}
		}
		for i, n := range counts {
			sums[i] += n
		}
		row(t.what, counts)
	}
	row("all", sums)
	section(&b, list, "Killed by `make test-all` only", columns[2])
	section(&b, list, "Killed by no test", survives)
	section(&b, list, "Not tried with every stage yet", isUntried)
	return b.String()
}

// section lists the mutants for which in returns true.
func section(b *strings.Builder, list []mutants.Mutant, title string, in func(*mutants.Mutant) bool) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	empty := true
	for i := range list {
		m := &list[i]
		if !in(m) {
			continue
		}
		if empty {
			b.WriteString("| code | line | change | detected by | reason |\n| --- | --- | --- | --- | --- |\n")
		}
		empty = false
		fmt.Fprintf(b, "| %s:%d | `%s` | `%s` to `%s` | %s | %s |\n", m.File, m.Line, cell(strings.TrimSpace(m.Source)), cell(m.From), cell(m.To), m.By, m.Why)
	}
	if empty {
		b.WriteString("None.\n")
	}
}

// cell escapes code for a table cell.
func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "`", "'")
}

const head = `# Mutants

` + "`make mutants`" + ` changes one token of security-relevant code at a time, and looks for a
test that fails: first those of the package, then the end-to-end tests of
` + "`make test`" + `, then those of ` + "`make test-all`" + `. The program gremlins lists the places, and a
sample of each kind of code is tried. ` + "`.ci/mutants.json`" + ` records the results;
` + "`make mutants N=0`" + ` continues with the recorded mutants. This page is generated.

The switches that turn one protection off are a separate list: each has a test that
must see the attack succeed without the protection. The suite prints their number in
the line *Attacks*: 246 of 256 are in ` + "`make test`" + `. The others are in ` + "`make test-all`" + ` only:
seven need a Docker Engine, which takes a minute to start (` + "`PART=docker`" + `), and three
measure bandwidth on a machine with nothing beside (` + "`PART=egress`" + `).

| code | mutants | killed by the package's tests | by the end-to-end tests of ` + "`make test`" + ` | by ` + "`make test-all`" + ` only | by no test | not tried with every stage |
| --- | --- | --- | --- | --- | --- | --- |
`
