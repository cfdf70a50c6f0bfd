package attack_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/attack"
)

// ending is a test that ends as it is told.
type ending struct {
	failed, skipped bool
	cleanups        []func()
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }
func (e *ending) Failed() bool     { return e.failed }
func (e *ending) Skipped() bool    { return e.skipped }

var catalogue = []attack.Class{{ID: "A-1", Title: "one"}, {ID: "A-2", Title: "two"}}

// report is what comes of a book that f writes.
func report(t *testing.T, f func()) (table string, wrong []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "book")
	t.Setenv(attack.Env, name)
	f()
	book, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	b, err := attack.Read(book)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	wrong = b.Report(&out, catalogue, true)
	return out.String(), wrong
}

func good() {
	attack.Tried("A-1", "x", false)
	attack.Tried("A-1", "x", false) // the same again is one
	attack.Tried("A-2", "y", false)
	attack.Seen("A-1", "x", "the wall", true)
	attack.Seen("A-2", "y", "the wall", true)
}

func ends(failed, skipped bool, f func(attack.T)) {
	e := &ending{failed: failed, skipped: skipped}
	f(e)
	for _, c := range e.cleanups {
		c()
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     func()
		wrong string // "" if all is well
		last  string
	}{
		{"good", func() {}, "", "2 tried, 0 escaped, 2 of 2 mutants red"},
		{"escaped", func() { attack.Tried("A-1", "z", true) }, "A-1 escaped: z", "3 tried, 1 escaped, 2 of 2 mutants red"},
		{"escaped once", func() { attack.Tried("A-1", "x", true) }, "A-1 escaped: x", "2 tried, 1 escaped, 2 of 2 mutants red"},
		{"unseen", func() { attack.Seen("A-2", "y", "the gate", false) }, "A-2 did not see the mutant: the gate: y", "2 tried, 0 escaped, 2 of 3 mutants red"},
		{"unknown", func() { attack.Tried("A-3", "x", false) }, "A-3 is not in the catalogue", "2 tried, 0 escaped, 2 of 2 mutants red"},
		{"a test that fails", func() { ends(true, false, func(e attack.T) { attack.Case(e, "A-1", "t") }) }, "A-1 escaped: t", "3 tried, 1 escaped, 2 of 2 mutants red"},
		{"a control that fails", func() { ends(true, false, func(e attack.T) { attack.Mutant(e, "A-1", "t", "it") }) }, "A-1 did not see the mutant: it: t", "2 tried, 0 escaped, 2 of 3 mutants red"},
		{"tests that are skipped", func() {
			ends(false, true, func(e attack.T) { attack.Case(e, "A-1", "t"); attack.Mutant(e, "A-1", "t", "it") })
		}, "", "2 tried, 0 escaped, 2 of 2 mutants red"},
		{"tests that pass", func() {
			ends(false, false, func(e attack.T) { attack.Case(e, "A-1", "t"); attack.Mutant(e, "A-1", "t", "it") })
		}, "", "3 tried, 0 escaped, 3 of 3 mutants red"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, wrong := report(t, func() { good(); c.f() })
			if got := strings.Join(wrong, "\n"); got != c.wrong {
				t.Errorf("wrong: %q, want %q", got, c.wrong)
			}
			if lines := strings.Split(strings.TrimSpace(table), "\n"); lines[len(lines)-1] != c.last {
				t.Errorf("the last line is %q, want %q", lines[len(lines)-1], c.last)
			}
		})
	}
}

// What is not there is wrong, too.
func TestReportMisses(t *testing.T) {
	_, wrong := report(t, func() { attack.Tried("A-1", "x", false) })
	want := []string{"A-1 has no mutant: nothing shows that it can fail", "A-2 has no case: two", "A-2 has no mutant: nothing shows that it can fail"}
	if !slices.Equal(wrong, want) {
		t.Errorf("%q", wrong)
	}
}
