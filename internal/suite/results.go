package suite

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line that `go test -json` prints.
type event struct {
	Action, Package, Test, Output, FailedBuild string
	ImportPath                                 string // of a build
	Elapsed                                    float64
}

// Failure is a test that failed, or a package that failed outside its tests.
type Failure struct {
	Job    string
	Test   string // empty for a package
	Output string
	Repeat string // the command that runs it again
}

// Skip is a test that was skipped.
type Skip struct{ Test, Reason string }

// Timed is a test and how long it took.
type Timed struct {
	Name string
	Took time.Duration
}

// Results collects what tests came to. It is safe for concurrent use.
type Results struct {
	mu                      sync.Mutex
	passed, failed, skipped int
	failures                []Failure
	skips                   []Skip
	tests                   []Timed // top-level tests
}

// maxLine bounds a line of `go test -json`.
const maxLine = 64 << 20

// read reads the output of one job. It reports whether the output explains a
// non-zero exit code: a test, a package or a build that failed.
func (r *Results) read(job *Job, from io.Reader, each func(event)) (explained bool, noise string) {
	output := map[string]*strings.Builder{}
	failedTests := map[string]bool{} // packages with a test that failed
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
		switch e.Action {
		case "output", "build-output":
			output[key].WriteString(e.Output)
		case "pass", "skip", "fail", "build-fail":
			explained = r.end(job, e, output[key].String(), failedTests) || explained
			delete(output, key)
		}
	}
	if err := in.Err(); err != nil {
		loose.WriteString(err.Error())
	}
	// What a process printed before it died without an end of its tests.
	for key, b := range output {
		if _, test, _ := strings.Cut(key, " "); test != "" && b.Len() > 0 {
			loose.WriteString(b.String())
		}
	}
	return explained, loose.String()
}

// end counts the end of a test, a package or a build, and reports whether it
// failed.
func (r *Results) end(job *Job, e event, output string, failedTests map[string]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Action == "pass" && e.Test != "":
		r.passed++
	case e.Action == "skip" && e.Test != "":
		r.skipped++
		r.skips = append(r.skips, Skip{e.Package + " " + e.Test, reason(output)})
	case e.Action == "fail" && e.Test != "":
		failedTests[e.Package] = true
		r.failed++
		r.failures = append(r.failures, Failure{Job: job.Name, Test: e.Test, Output: output, Repeat: job.repeat(e.Test)})
	case e.Action == "build-fail":
		r.failed++
		r.failures = append(r.failures, Failure{Job: job.Name + " (build of " + e.Package + ")", Output: output, Repeat: job.repeat("")})
	case e.Action == "fail" && e.FailedBuild != "":
		// The build has been counted.
	case e.Action == "fail" && !failedTests[e.Package]:
		r.failed++
		r.failures = append(r.failures, Failure{Job: job.Name + " (" + e.Package + ")", Output: output, Repeat: job.repeat("")})
	}
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Action != "build-fail" {
		r.tests = append(r.tests, Timed{e.Package + " " + e.Test, seconds(e.Elapsed)})
	}
	return e.Action == "fail" || e.Action == "build-fail"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// broken counts a job that failed and does not say which of its tests did.
func (r *Results) broken(job *Job, output string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.failures = append(r.failures, Failure{Job: job.Name, Output: output, Repeat: job.repeat("")})
}

// counts returns how many tests passed, failed and were skipped.
func (r *Results) counts() (passed, failed, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed, r.failed, r.skipped
}

// reason finds the reason in the output of a test that was skipped.
func reason(output string) string {
	for l := range strings.Lines(output) {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			return l
		}
	}
	return "no reason given"
}

// Fail counts a failure that is no test's.
func (r *Runner) Fail(what, output string) {
	r.results.broken(&Job{Name: what, Again: "make test-all"}, output)
}

// Failures returns what has failed.
func (r *Runner) Failures() []Failure {
	r.results.mu.Lock()
	defer r.results.mu.Unlock()
	return slices.Clone(r.results.failures)
}

// Idle reports whether no test has run.
func (r *Runner) Idle() bool {
	passed, failed, skipped := r.results.counts()
	return passed+failed+skipped == 0
}
