package suite

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of the output of `go test -json`.
type event struct {
	Action, Package, Test, Output, FailedBuild string
	ImportPath                                 string // set only for builds
	Elapsed                                    float64
}

// Failure is a test that failed, or a package or job that did not end properly.
type Failure struct {
	Job     string
	Part    string
	Package string // empty if the job ended without naming one
	Test    string // empty for a package or job
	Output  string
	Repeat  string // the command that repeats it

	job   *Job
	never string   // why it must not be rerun, if already known
	rerun *suspect // set for a failure of a rerun
}

// Skip is a test that was skipped.
type Skip struct{ Test, Reason string }

// TestDuration is a test with its duration.
type TestDuration struct {
	Name     string
	Duration time.Duration
}

// Tally counts tests by their result.
type Tally struct{ passed, failed, skipped int }

func (t Tally) add(u Tally) Tally {
	return Tally{t.passed + u.passed, t.failed + u.failed, t.skipped + u.skipped}
}

// subtract returns the tests of t that are not in u.
func (t Tally) subtract(u Tally) Tally {
	return Tally{t.passed - u.passed, t.failed - u.failed, t.skipped - u.skipped}
}

// Results collects the results of tests. It is safe for concurrent use.
type Results struct {
	mu          sync.Mutex
	all         Tally
	parts       map[string]Tally
	failures    []Failure
	skips       []Skip
	tests       []TestDuration  // top-level tests
	passedTests map[string]bool // by package and name
}

// count adds tests of a part. The caller holds r.mu.
func (r *Results) count(part string, n Tally) {
	if r.parts == nil {
		r.parts = map[string]Tally{}
	}
	r.all, r.parts[part] = r.all.add(n), r.parts[part].add(n)
}

// maxLine bounds a line of `go test -json`.
const maxLine = 64 << 20

// These patterns match faults that are never due to chance. A program that panics prints the
// line itself, but a test may also print the log of a server. A test that exceeds its time
// limit ends with a panic of the testing package.
var (
	raceSeen = regexp.MustCompile(`WARNING: DATA RACE|race detected (during|outside of test) execution`)
	crashed  = regexp.MustCompile(`^(panic: |fatal error: )`)
	timedOut = regexp.MustCompile(`^panic: test timed out after `)
	panicked = regexp.MustCompile(`handler panicked|panic serving|(the server|a shim) panicked`)
)

// findDeterministicFault returns why a line of output shows a fault that is never due to chance, or
// "".
func findDeterministicFault(line string) string {
	switch {
	case raceSeen.MatchString(line):
		return "a data race"
	case crashed.MatchString(line) && !timedOut.MatchString(line):
		return "a panic"
	}
	return ""
}

// packageRun is the state of a package whose tests run.
type packageRun struct {
	running map[string]bool // top-level tests
	failed  bool            // a test has failed
	never   string          // a race or a panic in the output of any of its tests
}

// read reads the output of one job. It reports whether the output explains a
// non-zero exit code, that is, whether a test, a package or a build failed.
func (r *Results) read(job *Job, from io.Reader, each func(event)) (explained bool, noise string) {
	output := map[string]*strings.Builder{}
	packages := map[string]*packageRun{}
	var loose strings.Builder
	in := bufio.NewScanner(from)
	in.Buffer(nil, maxLine)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			loose.Write(append(in.Bytes(), '\n'))
			continue
		}
		each(e)
		if e.Package == "" {
			e.Package = e.ImportPath
		}
		key := e.Package + " " + e.Test
		if b := output[key]; b == nil {
			output[key] = &strings.Builder{}
		}
		p := packages[e.Package]
		if p == nil {
			p = &packageRun{running: map[string]bool{}}
			packages[e.Package] = p
		}
		switch e.Action {
		case "run":
			if !strings.Contains(e.Test, "/") {
				p.running[e.Test] = true
			}
		case "output", "build-output":
			output[key].WriteString(e.Output)
			p.never = cmp.Or(p.never, findDeterministicFault(e.Output))
		case "pass", "skip", "fail", "build-fail":
			delete(p.running, e.Test)
			explained = r.end(job, e, p, output) || explained
			delete(output, key)
		}
	}
	if err := in.Err(); err != nil {
		loose.WriteString(err.Error())
	}
	// The remaining output belongs to tests that had not ended when their process ended.
	for key, b := range output {
		if _, test, _ := strings.Cut(key, " "); test != "" && b.Len() > 0 {
			loose.WriteString(b.String())
		}
	}
	return explained, loose.String()
}

// end counts the end of a test, a package or a build, and reports whether it
// failed.
func (r *Results) end(job *Job, e event, p *packageRun, output map[string]*strings.Builder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := output[e.Package+" "+e.Test].String()
	fail := func(f Failure) {
		r.count(job.Part, Tally{failed: 1})
		f.Part, f.Package, f.Output, f.job, f.Repeat = job.Part, e.Package, text, job, job.repeatCommand(e.Test)
		r.failures = append(r.failures, f)
	}
	switch {
	case e.Action == "pass" && e.Test != "":
		r.count(job.Part, Tally{passed: 1})
		if r.passedTests == nil {
			r.passedTests = map[string]bool{}
		}
		r.passedTests[e.Package+" "+e.Test] = true
	case e.Action == "skip" && e.Test != "":
		r.count(job.Part, Tally{skipped: 1})
		r.skips = append(r.skips, Skip{e.Package + " " + e.Test, skipReason(text)})
	case e.Action == "fail" && e.Test != "":
		p.failed = true
		fail(Failure{Job: job.Name, Test: e.Test})
	case e.Action == "build-fail":
		fail(Failure{Job: job.Name + " (build of " + e.Package + ")", never: "it does not build"})
	case e.Action == "fail" && e.FailedBuild != "":
		// The failed build was already counted.
	case e.Action == "fail":
		// Tests that did not end are reported nowhere else.
		for _, name := range slices.Sorted(maps.Keys(p.running)) {
			if b := output[e.Package+" "+name]; b != nil {
				text += b.String()
				delete(output, e.Package+" "+name)
			}
		}
		if !p.failed || len(p.running) > 0 {
			fail(Failure{Job: job.Name + " (" + e.Package + ")"})
		}
		for i := range r.failures {
			if f := &r.failures[i]; f.job == job && f.Package == e.Package && f.never == "" {
				f.never = p.never
			}
		}
	}
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Action != "build-fail" {
		r.tests = append(r.tests, TestDuration{e.Package + " " + e.Test, seconds(e.Elapsed)})
	}
	return e.Action == "fail" || e.Action == "build-fail"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// countUnexplained counts a job that failed without naming a failed test.
func (r *Results) countUnexplained(job *Job, output string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(job.Part, Tally{failed: 1})
	f := Failure{Job: job.Name, Part: job.Part, Output: output, Repeat: job.repeatCommand(""), job: job}
	for line := range strings.Lines(output) {
		f.never = cmp.Or(f.never, findDeterministicFault(line))
	}
	r.failures = append(r.failures, f)
}

// tally returns the number of tests of a part so far, or of all parts if it is
// empty.
func (r *Results) tally(part string) Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	if part == "" {
		return r.all
	}
	return r.parts[part]
}

// skipReason extracts the reason from the output of a skipped test.
func skipReason(output string) string {
	for l := range strings.Lines(output) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			return l
		}
	}
	return "no reason given"
}

// Fail records a failure of a part that belongs to no test.
func (r *Runner) Fail(part, what, output string) {
	r.results.countUnexplained(&Job{Name: what, Part: part, Again: "make test-all"}, output)
}

// Failures returns the failures so far.
func (r *Runner) Failures() []Failure {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return slices.Clone(r.results.failures)
}

// HasNoTests reports whether no test has run.
func (r *Runner) HasNoTests() bool {
	return r.results.tally("") == Tally{}
}
