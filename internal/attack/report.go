package attack

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Ledger holds the recorded entries without duplicates. An entry that was bad at
// least once counts as bad.
type Ledger struct {
	cases, mutants map[string]map[string]bool // id -> what -> bad
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{cases: map[string]map[string]bool{}, mutants: map[string]map[string]bool{}}
}

// Read parses a record file. A case without a result counts as an escape, because its test did
// not end.
func Read(r io.Reader) (*Ledger, error) {
	b := NewLedger()
	unfinished := map[Entry]int{} // cases that began and have no result yet
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var e Entry
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the book of attacks: %w", err)
		}
		if begun := (Entry{ID: e.ID, What: e.What}); e.Begun {
			unfinished[begun]++
			continue
		} else if e.Off == "" && unfinished[begun] > 0 {
			unfinished[begun]--
		}
		if e.Skipped {
			continue
		}
		to, what := b.cases, e.What
		if e.Off != "" {
			to, what = b.mutants, e.Off+": "+e.What
		}
		if to[e.ID] == nil {
			to[e.ID] = map[string]bool{}
		}
		to[e.ID][what] = to[e.ID][what] || e.Bad
	}
	for e, n := range unfinished {
		if n > 0 {
			if b.cases[e.ID] == nil {
				b.cases[e.ID] = map[string]bool{}
			}
			b.cases[e.ID][e.What] = true
		}
	}
	return b, in.Err()
}

// Add adds the entries of another ledger. An entry that is bad in either ledger is bad in the
// result.
func (b *Ledger) Add(other *Ledger) {
	for _, of := range []struct{ to, from map[string]map[string]bool }{{b.cases, other.cases}, {b.mutants, other.mutants}} {
		for id, entries := range of.from {
			if of.to[id] == nil {
				of.to[id] = map[string]bool{}
			}
			for what, bad := range entries {
				of.to[id][what] = of.to[id][what] || bad
			}
		}
	}
}

// Amend adds the entries of tests that ran again. A control that detected its attack in the
// later run counts as detected. A case that escaped in any run remains an escape.
func (b *Ledger) Amend(later *Ledger) {
	for id, entries := range later.mutants {
		for what, bad := range entries {
			if _, ok := b.mutants[id][what]; ok && !bad {
				b.mutants[id][what] = false
			}
		}
	}
	b.Add(later)
}

// Escapes lists the cases that escaped, with their IDs.
func (b *Ledger) Escapes() (out []string) {
	for id, entries := range b.cases {
		for _, what := range badEntries(entries) {
			out = append(out, id+": "+what)
		}
	}
	slices.Sort(out)
	return out
}

// IsEmpty reports whether nothing was recorded.
func (b *Ledger) IsEmpty() bool { return len(b.cases)+len(b.mutants) == 0 }

// badEntries lists the bad entries.
func badEntries(of map[string]bool) (out []string) {
	for what, b := range of {
		if b {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}

// Report writes a table of the attacks and a last line with totals. It returns
// the problems: escapes, undetected mutants, and classes that are not in the
// catalogue. If all is set, it also reports classes without a case or without a
// mutant.
func (b *Ledger) Report(w io.Writer, catalogue []Class, all bool) (problems []string) {
	var tried, escaped, mutants, red int
	known := map[string]bool{}
	fmt.Fprintf(w, "%-7s %6s %8s %12s  %s\n", "id", "tried", "escaped", "mutants red", "what")
	for _, c := range catalogue {
		known[c.ID] = true
		cases, controls := b.cases[c.ID], b.mutants[c.ID]
		out, unseen := badEntries(cases), badEntries(controls)
		fmt.Fprintf(w, "%-7s %6d %8d %12s  %s\n", c.ID, len(cases), len(out), fmt.Sprintf("%d of %d", len(controls)-len(unseen), len(controls)), c.Title)
		tried, escaped = tried+len(cases), escaped+len(out)
		mutants, red = mutants+len(controls), red+len(controls)-len(unseen)
		for _, what := range out {
			problems = append(problems, c.ID+" escaped: "+what)
		}
		for _, what := range unseen {
			problems = append(problems, c.ID+" did not see the mutant: "+what)
		}
		if all && len(cases) == 0 {
			problems = append(problems, c.ID+" has no case: "+c.Title)
		}
		if all && len(controls) == 0 {
			problems = append(problems, c.ID+" has no mutant: nothing shows that it can fail")
		}
	}
	for _, of := range []map[string]map[string]bool{b.cases, b.mutants} {
		for id := range of {
			if !known[id] {
				problems = append(problems, cmp.Or(id, "an empty id")+" is not in the catalogue")
			}
		}
	}
	slices.Sort(problems)
	problems = slices.Compact(problems)
	for _, line := range problems {
		fmt.Fprintln(w, "WRONG:", line)
	}
	fmt.Fprintf(w, "%d tried, %d escaped, %d of %d mutants red\n", tried, escaped, red, mutants)
	return problems
}
