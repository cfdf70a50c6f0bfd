package attack_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/attack"
)

// ending is a fake test with a given result.
type ending struct {
	failed, skipped bool
	cleanups        []func()
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }
func (e *ending) Failed() bool     { return e.failed }
func (e *ending) Skipped() bool    { return e.skipped }

var catalogue = []attack.Class{{ID: "A-1", Title: "one"}, {ID: "A-2", Title: "two"}}

// report returns the report about the entries that f records.
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
	attack.RecordCase("A-1", "x", false)
	attack.RecordCase("A-1", "x", false) // a repeated entry counts once
	attack.RecordCase("A-2", "y", false)
	attack.RecordMutant("A-1", "x", "the wall", true)
	attack.RecordMutant("A-2", "y", "the wall", true)
}

func ends(failed, skipped bool, f func(attack.T)) {
	e := &ending{failed: failed, skipped: skipped}
	f(e)
	for _, c := range e.cleanups {
		c()
	}
}

func TestReportListsEscapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     func()
		wrong string // "" if no problem is expected
		last  string
	}{
		{"good", func() {}, "", "2 tried, 0 escaped, 2 of 2 mutants red"},
		{"escaped", func() { attack.RecordCase("A-1", "z", true) }, "A-1 escaped: z", "3 tried, 1 escaped, 2 of 2 mutants red"},
		{"escaped once", func() { attack.RecordCase("A-1", "x", true) }, "A-1 escaped: x", "2 tried, 1 escaped, 2 of 2 mutants red"},
		{"unseen", func() { attack.RecordMutant("A-2", "y", "the gate", false) }, "A-2 did not see the mutant: the gate: y", "2 tried, 0 escaped, 2 of 3 mutants red"},
		{"unknown", func() { attack.RecordCase("A-3", "x", false) }, "A-3 is not in the catalogue", "2 tried, 0 escaped, 2 of 2 mutants red"},
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

// TestReportRejectsMissingEntries checks that missing cases and mutants are reported as
// problems.
func TestReportRejectsMissingEntries(t *testing.T) {
	_, wrong := report(t, func() { attack.RecordCase("A-1", "x", false) })
	want := []string{"A-1 has no mutant: nothing shows that it can fail", "A-2 has no case: two", "A-2 has no mutant: nothing shows that it can fail"}
	if !slices.Equal(wrong, want) {
		t.Errorf("%q", wrong)
	}
}
