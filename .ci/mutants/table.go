package main

import (
	"fmt"
	"strings"

	"github.com/brig-run/brig/internal/mutants"
)

// table writes docs/mutants.md.
func table(list []mutants.Mutant) string {
	var b strings.Builder
	b.WriteString(head)
	stages := []mutants.Stage{mutants.Packages, mutants.Small, mutants.Full, mutants.Nothing, mutants.Untried}
	b.WriteString("\n| code | mutants | package tests | end-to-end tests of `make test` | only `make test-all` | nothing | not tried |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	sum := map[mutants.Stage]int{}
	for _, t := range append(append([]target(nil), targets...), target{what: "all"}) {
		count := map[mutants.Stage]int{}
		for i := range list {
			if m := &list[i]; targetOf(m).what == t.what && m.Killed != mutants.Invalid {
				count[m.Killed]++
				sum[m.Killed]++
			}
		}
		if t.what == "all" {
			count = sum
		}
		total := 0
		for _, n := range count {
			total += n
		}
		fmt.Fprintf(&b, "| %s | %d |", t.what, total)
		for _, s := range stages {
			fmt.Fprintf(&b, " %d |", count[s])
		}
		b.WriteString("\n")
	}
	for _, s := range []struct {
		stage      mutants.Stage
		title, why string
	}{
		{mutants.Full, "Killed by `make test-all` only", "why not by `make test`"},
		{mutants.Nothing, "Killed by nothing", "why"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		none := true
		for i := range list {
			if m := &list[i]; m.Killed == s.stage {
				if none {
					fmt.Fprintf(&b, "| mutant | test | %s |\n| --- | --- | --- |\n", s.why)
				}
				none = false
				fmt.Fprintf(&b, "| `%s:%d` `%s` becomes `%s` | %s | %s |\n", m.File, m.Line, escape(m.From), escape(m.To), m.By, m.Why)
			}
		}
		if none {
			b.WriteString("None.\n")
		}
	}
	return b.String()
}

// escape makes a token fit for a cell.
func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const head = `# Mutants

` + "`make mutants`" + ` changes one token of the code that protects, and looks for a test that
fails: first those of the package, then the end-to-end tests of ` + "`make test`" + `, then
those of ` + "`make test-all`" + `. The program gremlins lists the places; a sample of each kind
of code is tried. ` + "`.ci/mutants.json`" + ` keeps the results, and ` + "`make mutants N=0`" + ` goes on
with them. This page is generated.

The switches that turn one protection off are a separate list: each is a test of
` + "`make test`" + ` that must see the attack succeed (the *mutants* in the line *Attacks* that
the suite prints).
`
