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
	"regexp"
	"slices"
	"strings"

	"github.com/brig-run/brig/internal/attack"
)

// Limits of the second look.
const (
	// maxAgain is the number of failed tests above which none runs again: that many
	// do not fail by chance.
	maxAgain = 5
	// maxTries is how often a failed test runs again.
	maxTries = 2
)

// Unsteady is a test that failed, and passed when it ran again alone.
type Unsteady struct {
	Test     string // with its package, or the job if no test is named
	Failed   int    // how often it failed
	Failures []Failure
}

// suspect is what runs again as one: a top-level test with its subtests, or a whole
// package or job if no test is named.
type suspect struct {
	job       *Job
	pkg, test string
	failures  []Failure
}

// name returns the name of a suspect in reports.
func (s *suspect) name() string { return strings.TrimSpace(s.pkg + " " + s.test) }

// SecondLook runs each failed test again, alone, up to twice. A test that passes
// becomes unsteady and counts as passed. Failures that cannot be chance, and failures
// of more than five tests, stay as they are.
func (r *Runner) SecondLook(ctx context.Context) {
	suspects := suspects(r.Failures())
	if len(suspects) == 0 || ctx.Err() != nil || r.FailFast {
		return
	}
	if len(suspects) > maxAgain {
		r.verdicts = append(r.verdicts, fmt.Sprintf("No second look: %d tests failed, and more than %d do not fail by chance.", len(suspects), maxAgain))
		return
	}
	for _, s := range suspects {
		if why := s.job.never(s.failures); why != "" {
			r.verdicts = append(r.verdicts, fmt.Sprintf("No second look at %s: %s.", s.name(), why))
			continue
		}
		r.again(ctx, s)
	}
}

// suspects groups failures by the test that runs again, in the order of the failures.
func suspects(failures []Failure) (list []*suspect) {
	for _, f := range failures {
		top, _, _ := strings.Cut(f.Test, "/")
		s := &suspect{job: f.job, pkg: f.Package, test: top}
		i := slices.IndexFunc(list, func(o *suspect) bool { return o.job == s.job && o.pkg == s.pkg && o.test == s.test })
		if i < 0 {
			i = len(list)
			list = append(list, s)
		}
		list[i].failures = append(list[i].failures, f)
	}
	return list
}

// panics matches what a program prints when it panics, and what Brig logs when it
// recovers from a panic. A test that hangs ends with a panic too, of the testing package.
var (
	panics   = regexp.MustCompile(`(?m)panic: |panicked|panic serving|^fatal error: |runtime error: `)
	timedOut = regexp.MustCompile(`panic: test timed out after .*`)
	raceSeen = regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test`)
)

// never returns why failures of a job get no second look, or "".
func (j *Job) never(failures []Failure) string {
	if j.one == nil {
		return "nothing runs it again"
	}
	if j.Raced {
		return "a data race in the agent ends its sandbox and leaves no report"
	}
	escapes, err := j.escapes()
	if err != nil {
		return err.Error()
	}
	if len(escapes) > 0 {
		return "an attack escaped: " + strings.Join(escapes, ", ")
	}
	for _, f := range failures {
		switch {
		case f.build:
			return "it does not build"
		case raceSeen.MatchString(f.Output):
			return "a data race"
		case panics.MatchString(timedOut.ReplaceAllString(f.Output, "")):
			return "a panic"
		}
	}
	return ""
}

// escapes lists the attacks that escaped in a job.
func (j *Job) escapes() ([]string, error) {
	if j.book == "" {
		return nil, nil
	}
	book, err := readBook(j.book)
	if err != nil {
		return nil, err
	}
	return book.Escapes(), nil
}

// again runs a suspect alone until it passes, at most maxTries times.
func (r *Runner) again(ctx context.Context, s *suspect) {
	for try := 1; try <= maxTries && ctx.Err() == nil; try++ {
		fmt.Fprintf(r.Out, "== %s failed and runs again, alone: try %d of %d\n", s.name(), try, maxTries)
		j := *s.job
		j.Name, j.Argv = fmt.Sprintf("%s (try %d)", s.job.Name, try), s.job.one(s.job.Argv, s.pkg, s.test)
		j.book = r.newBook()
		var of Results
		j.run(ctx, &of, func(event) {})
		if ctx.Err() != nil {
			return
		}
		if passed, failed, _ := of.counts(); failed == 0 && passed > 0 {
			r.results.forgive(s)
			r.unsteady = append(r.unsteady, Unsteady{s.name(), try, s.failures})
			r.amends = append(r.amends, j.book)
			return
		}
		for _, f := range of.failures {
			f.Job = j.Name
			s.failures = append(s.failures, f)
			r.results.add(f)
		}
		if why := j.never(of.failures); why != "" {
			r.verdicts = append(r.verdicts, fmt.Sprintf("%s failed again, and gets no third look: %s.", s.name(), why))
			return
		}
	}
	r.verdicts = append(r.verdicts, fmt.Sprintf("%s failed again each time it ran alone.", s.name()))
}

// add adds a failure of a second look, which is printed and not counted again.
func (r *Results) add(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.again = true
	r.failures = append(r.failures, f)
}

// forgive counts the failures of a suspect as passed.
func (r *Results) forgive(s *suspect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = slices.DeleteFunc(r.failures, func(f Failure) bool {
		top, _, _ := strings.Cut(f.Test, "/")
		if f.job != s.job || f.Package != s.pkg || top != s.test {
			return false
		}
		if !f.again {
			r.failed, r.passed = r.failed-1, r.passed+1
		}
		return true
	})
}

// newBook returns the path of a record of attacks for a job, or "" without Books.
func (r *Runner) newBook() string {
	if r.Books == "" {
		return ""
	}
	return filepath.Join(r.Books, rand.Text())
}

// Book returns the record of attacks of all jobs. Where a test ran again and passed, its
// controls count by their last result.
func (r *Runner) Book() (*attack.Book, error) {
	all, err := attack.Read(strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	for _, name := range r.books {
		b, err := readBook(name)
		if err != nil {
			return nil, err
		}
		all.Add(b)
	}
	for _, name := range r.amends {
		b, err := readBook(name)
		if err != nil {
			return nil, err
		}
		all.Amend(b)
	}
	return all, nil
}

func readBook(name string) (*attack.Book, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // the job has no attacks
		return attack.Read(strings.NewReader(""))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return attack.Read(f)
}

// printUnsteady prints the first failure of each unsteady test, whole.
func (r *Runner) printUnsteady(w io.Writer) {
	for _, u := range r.unsteady {
		fmt.Fprintf(w, "\n--- UNSTEADY: %s: its first failure:\n", u.Test)
		for _, f := range u.Failures {
			if !f.again && !onlyFailedBySubtest(f, u.Failures) {
				fmt.Fprintf(w, "%s    repeat: %s\n", f.Output, f.Repeat)
			}
		}
	}
}

// Unsteady returns the unsteady tests so far.
func (r *Runner) Unsteady() []Unsteady { return slices.Clone(r.unsteady) }
