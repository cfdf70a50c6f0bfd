package suite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/attack"
)

// TestRerunAcceptsOnlyFlakyFailures runs real tests that fail in known ways. A flaky failure counts
// as passed and is listed as unsteady. Every other failure fails the run.
func TestRerunAcceptsOnlyFlakyFailures(t *testing.T) {
	for _, c := range []struct {
		test  string
		raced bool
		ok    bool
		tries int // number of runs of the planted test
		says  []string
	}{
		{"TestSteady", false, true, 0, []string{"1 passed, 0 failed, 0 skipped"}},
		{"TestOnce", false, true, 2, []string{
			"--- UNSTEADY: planted.test TestOnce", "the first failure, whole", "Unsteady: 1.", "1  planted.test TestOnce: failed before it passed\n\nTook", "2 passed, 0 failed, 0 skipped",
		}},
		{"TestTwice", false, true, 3, []string{"failure 1", "2  planted.test TestTwice: failed before it passed", "1 passed, 0 failed, 0 skipped"}},
		{"TestAlways", false, false, 3, []string{"failure 1", "failure 2", "failure 3", "did not pass when it ran alone", "0 passed, 1 failed, 0 skipped"}},
		{"TestEscapes", false, false, 1, []string{"an attack escaped: ESC-01: planted"}},
		{"TestControl", false, true, 2, []string{"Unsteady: 1."}},
		{"TestRaces", true, false, 1, []string{"No second look at planted.test TestRaces: a data race"}},
		{"TestPanics", false, false, 1, []string{"No second look at planted.test TestPanics: a panic"}},
		{"TestFailThenHang|TestThenHang", false, false, 3, []string{"planted.test did not pass when it ran alone"}},
		{"TestFailThenPanic|TestThenPanic", false, false, 1, []string{"No second look at planted.test: a panic"}},
		{"TestSkipsLater", false, false, 3, []string{"did not pass when it ran alone"}},
		{"TestHangsInAttack", false, false, 1, []string{"an attack escaped: ESC-01: planted"}},
		{"TestHangs", false, true, 2, []string{"1  planted.test: failed before it passed", "panic: test timed out after"}},
	} {
		t.Run(c.test, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tree := &Tree{Root: "testdata/planted", Module: "planted.test"}
			j := tree.goTestJob("packages", "packages", c.raced, Options{Tests: "^(" + c.test + ")$", Count: 1}, slices.Repeat([]string{"."}, 40))
			j.Argv[slices.Index(j.Argv, "-timeout")+1] = "3s"
			j.Env = append(j.Env, "PLANTED="+dir, "GOFLAGS=-mod=mod")
			var out bytes.Buffer
			r := &Runner{Out: &out, Slots: 1, Times: newTimes(), LedgerDir: t.TempDir()}
			r.Run(t.Context(), Plan{"plan", []Job{j}})
			r.RerunFailures(t.Context())
			if ok := r.Report(&out); ok != c.ok || strings.Contains(out.String(), "--- FAIL: packages") == ok || len(r.Failures()) > 0 == ok {
				t.Errorf("ok %v, want %v:\n%s", ok, c.ok, &out)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the report has no %q:\n%s", want, &out)
				}
			}
			last := c.test[strings.LastIndex(c.test, "|")+1:]
			if b, _ := os.ReadFile(filepath.Join(dir, last)); len(b) != c.tries {
				t.Errorf("it ran %d times, want %d", len(b), c.tries)
			}
			book, err := r.Ledger()
			if err != nil {
				t.Fatal(err)
			}
			escaped := c.test == "TestEscapes" || c.test == "TestHangsInAttack"
			if wrong := book.Report(&out, []attack.Class{{ID: "ESC-01"}}, false); len(wrong) > 0 != escaped {
				t.Errorf("the book of attacks: %q", wrong)
			}
		})
	}
}

// TestManyFailuresPreventRerun verifies that tests do not run again if many tests fail.
func TestManyFailuresPreventRerun(t *testing.T) {
	for n, want := range map[int]bool{maxAgain: true, maxAgain + 1: false} {
		dir := t.TempDir()
		var jobs []Job
		for i := range n {
			name := fmt.Sprintf("Test%d", i)
			j := shell(name, fmt.Sprintf(`if mkdir %s/%s; then end=fail; else end=pass; fi; printf '{"Action":"%%s","Package":"p","Test":"%s"}\n' $end; [ $end = pass ]`, dir, name, name))
			j.singleTest = func(argv []string, _, _ string) []string { return argv }
			jobs = append(jobs, j)
		}
		var out bytes.Buffer
		r := &Runner{Out: &out, Slots: 2, Times: newTimes()}
		r.Run(t.Context(), Plan{"plan", jobs})
		r.RerunFailures(t.Context())
		if ok := r.Report(&out); ok != want || want != strings.Contains(out.String(), fmt.Sprintf("Unsteady: %d.", n)) {
			t.Errorf("%d failures: ok %v, want %v:\n%s", n, ok, want, &out)
		}
	}
}

// TestRerunRunsOnlyFailedTest verifies that only the failed test of a group runs again.
func TestRerunRunsOnlyFailedTest(t *testing.T) {
	tree := &Tree{Root: "/root", TestJSON: "test2json", Bin: "/bin"}
	jobs := tree.endToEndJobs("core", false, Options{}, []Test{{Name: "TestA", With: "x"}, {Name: "TestB", With: "x"}})
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	got := jobs[0].singleTest(jobs[0].Argv, "e2e", "TestB")
	i := slices.Index(got, "-test.run")
	if got[i+1] != "^TestB$" || jobs[0].Argv[i+1] != "^(TestA|TestB)$" {
		t.Errorf("it runs %q, after %q", got[i+1], jobs[0].Argv[i+1])
	}
}
