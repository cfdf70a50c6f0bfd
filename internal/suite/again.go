package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brig-run/brig/internal/attack"
)

const (
	// maxAgain is the maximum number of failed tests that run again. If more tests fail, chance
	// is an unlikely cause.
	maxAgain = 5
	// maxTries is the maximum number of times that a failed test runs again.
	maxTries = 2
)

// Unsteady is a test that failed, but passed when it ran again alone.
type Unsteady struct {
	Test     string // with its package; only the package or the job if the failure names no test
	Failed   int    // number of failures
	Failures []Failure
}

// suspect is one rerun: a top-level test with its subtests, or a package or job.
type suspect struct {
	job       *Job
	pkg, test string
	first     []Failure // the failures before the rerun
}

// name returns the name of a suspect in reports.
func (s *suspect) name() string {
	if s.pkg == "" && s.test == "" {
		return s.job.Name
	}
	return strings.TrimSpace(s.pkg + " " + s.test)
}

// RerunFailures runs each failed test again, alone, up to twice. A test that passes becomes
// unsteady and counts as passed. RerunFailures does not rerun failures that cannot be due to
// chance, and runs no test again if more than five tests failed.
func (r *Runner) RerunFailures(ctx context.Context) {
	suspects := groupFailures(r.Failures())
	if len(suspects) == 0 || ctx.Err() != nil || r.FailFast {
		return
	}
	if len(suspects) > maxAgain {
		r.verdicts = append(r.verdicts, fmt.Sprintf("No second look: %d tests failed, and more than %d do not fail by chance.", len(suspects), maxAgain))
		return
	}
	for _, s := range suspects {
		if reason := s.reasonAgainstRerun(s.job.book, s.first); reason != "" {
			r.verdicts = append(r.verdicts, fmt.Sprintf("No second look at %s: %s.", s.name(), reason))
			continue
		}
		r.rerun(ctx, s)
	}
}

// groupFailures groups failures by the test to rerun, in the order of the failures. A package
// that did not end properly is rerun as a whole.
func groupFailures(failures []Failure) (list []*suspect) {
	for _, f := range failures {
		top, _, _ := strings.Cut(f.Test, "/")
		if slices.ContainsFunc(failures, func(g Failure) bool { return g.job == f.job && g.Package == f.Package && g.Test == "" }) {
			top = ""
		}
		i := slices.IndexFunc(list, func(s *suspect) bool { return s.job == f.job && s.pkg == f.Package && s.test == top })
		if i < 0 {
			i = len(list)
			list = append(list, &suspect{job: f.job, pkg: f.Package, test: top})
		}
		list[i].first = append(list[i].first, f)
	}
	return list
}

// reasonAgainstRerun returns the reason why a suspect is not rerun, or "". book is the attack
// record of the run that failed.
func (s *suspect) reasonAgainstRerun(book string, failures []Failure) string {
	if s.job.singleTest == nil || s.job.singleTest(s.job.Argv, s.pkg, "") == nil {
		return "it names no test"
	}
	if s.job.Raced {
		return "a data race in the agent ends its sandbox and leaves no report"
	}
	attacks, err := readLedger(book)
	if err != nil {
		return err.Error()
	}
	if escapes := attacks.Escapes(); len(escapes) > 0 {
		return "an attack escaped: " + strings.Join(escapes, ", ")
	}
	for _, f := range failures {
		if f.never != "" {
			return f.never
		}
		if panicked.MatchString(f.Output) {
			return "a panic"
		}
	}
	return ""
}

// rerun runs a suspect alone until it passes, at most maxTries times.
func (r *Runner) rerun(ctx context.Context, s *suspect) {
	for try := 1; try <= maxTries; try++ {
		fmt.Fprintf(r.Out, "== %s failed and runs again, alone: try %d of %d\n", s.name(), try, maxTries)
		j := *s.job
		j.Name, j.Argv = fmt.Sprintf("%s (try %d)", s.job.Name, try), s.job.singleTest(s.job.Argv, s.pkg, s.test)
		j.book = r.newLedgerPath()
		of := Results{}
		j.run(ctx, &of, func(event) {})
		if ctx.Err() != nil {
			return
		}
		if r.hasPassed(&of, s) {
			r.markPassed(s)
			r.unsteady = append(r.unsteady, Unsteady{s.name(), try, s.first})
			r.passedOnRerun[s.job.book] = append(r.passedOnRerun[s.job.book], j.book)
			return
		}
		for _, f := range of.failures {
			f.Job, f.rerun = j.Name, s
			r.results.add(f)
		}
		if reason := s.reasonAgainstRerun(j.book, of.failures); reason != "" {
			r.verdicts = append(r.verdicts, fmt.Sprintf("%s failed again, and gets no further look: %s.", s.name(), reason))
			return
		}
	}
	r.verdicts = append(r.verdicts, fmt.Sprintf("%s did not pass when it ran alone.", s.name()))
}

// hasPassed reports whether a rerun passed: each previously failed test passes, and every skipped
// test was also skipped before.
func (r *Runner) hasPassed(of *Results, s *suspect) bool {
	for _, f := range s.first {
		if f.Test != "" && !of.passedTests[f.Package+" "+f.Test] {
			return false
		}
	}
	skipped := func(k Skip) bool {
		return !slices.ContainsFunc(r.results.skips, func(o Skip) bool { return o.Test == k.Test })
	}
	return of.all.failed == 0 && of.all.passed > 0 && !slices.ContainsFunc(of.skips, skipped)
}

// add adds a failure of a rerun to the printed failures without counting it again.
func (r *Results) add(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, f)
}

// markPassed counts the failures of a suspect as passed.
func (r *Runner) markPassed(s *suspect) {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	n := len(s.first)
	passed := Tally{passed: n, failed: -n}
	r.results.count(s.job.Part, passed)
	for i := range r.finished {
		for k := range r.finished[i].Parts {
			if p := &r.finished[i].Parts[k]; p.Name == s.job.Part && p.failed >= n {
				p.Tally = p.add(passed)
				break
			}
		}
	}
	r.results.failures = slices.DeleteFunc(r.results.failures, func(f Failure) bool {
		top, _, _ := strings.Cut(f.Test, "/")
		return f.rerun == s || f.job == s.job && f.Package == s.pkg && (s.test == "" || top == s.test)
	})
}

// newLedgerPath returns the path of an attack record for a job, or "" without LedgerDir.
func (r *Runner) newLedgerPath() string {
	if r.LedgerDir == "" {
		return ""
	}
	return filepath.Join(r.LedgerDir, rand.Text())
}

// Ledger returns the attack records of all jobs. If a test passed when it ran again, the last
// results of its controls count.
func (r *Runner) Ledger() (*attack.Ledger, error) {
	all := attack.NewLedger()
	for _, name := range r.ledgers {
		b, err := readLedger(name)
		if err != nil {
			return nil, err
		}
		for _, later := range r.passedOnRerun[name] {
			l, err := readLedger(later)
			if err != nil {
				return nil, err
			}
			b.Amend(l)
		}
		all.Add(b)
	}
	return all, nil
}

// readLedger reads the attack record of a job. A job without attacks has no file.
func readLedger(name string) (*attack.Ledger, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return attack.NewLedger(), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return attack.Read(f)
}

// printUnsteady prints the complete first failure of each unsteady test.
func (r *Runner) printUnsteady(w io.Writer) {
	for _, u := range r.unsteady {
		fmt.Fprintf(w, "\n--- UNSTEADY: %s: its first failure:\n", u.Test)
		for _, f := range u.Failures {
			if !isFailedBySubtest(f, u.Failures) {
				fmt.Fprintf(w, "%s    repeat: %s\n", f.Output, f.Repeat)
			}
		}
	}
}

// Unsteady returns the unsteady tests so far.
func (r *Runner) Unsteady() []Unsteady { return slices.Clone(r.unsteady) }
