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

// event is a line of the output of `go test -json`.
type event struct {
	Action, Package, Test, Output, FailedBuild string
	ImportPath                                 string // set only for builds
	Elapsed                                    float64
}

// Failure is a test that failed, or a package that failed outside its tests.
type Failure struct {
	Job     string
	Part    string
	Package string // empty if the job ended without naming one
	Test    string // empty for a package
	Output  string
	Repeat  string // the command that repeats it

	job   *Job
	build bool // a build failed
	again bool // it is of a second look
}

// Skip is a test that was skipped.
type Skip struct{ Test, Reason string }

// Timed is a test with its duration.
type Timed struct {
	Name     string
	Duration time.Duration
}

// Results collects the results of tests. It is safe for concurrent use.
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
// non-zero exit code, that is, whether a test, a package or a build failed.
func (r *Results) read(job *Job, from io.Reader, each func(event)) (explained bool, noise string) {
	output := map[string]*strings.Builder{}
	failedTests := map[string]bool{} // packages with a failed test
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
	// The remaining output is that of a process that ended before its tests had
	// ended.
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
		r.failures = append(r.failures, Failure{Job: job.Name, Part: job.Part, Package: e.Package, Test: e.Test, Output: output, Repeat: job.repeat(e.Test), job: job})
	case e.Action == "build-fail":
		r.failed++
		r.failures = append(r.failures, Failure{Job: job.Name + " (build of " + e.Package + ")", Part: job.Part, Package: e.Package, Output: output, Repeat: job.repeat(""), job: job, build: true})
	case e.Action == "fail" && e.FailedBuild != "":
		// The failed build was already counted.
	case e.Action == "fail" && !failedTests[e.Package]:
		r.failed++
		r.failures = append(r.failures, Failure{Job: job.Name + " (" + e.Package + ")", Part: job.Part, Package: e.Package, Output: output, Repeat: job.repeat(""), job: job})
	}
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Action != "build-fail" {
		r.tests = append(r.tests, Timed{e.Package + " " + e.Test, seconds(e.Elapsed)})
	}
	return e.Action == "fail" || e.Action == "build-fail"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// countUnexplained counts a job that failed without naming a failed test.
func (r *Results) countUnexplained(job *Job, output string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.failures = append(r.failures, Failure{Job: job.Name, Part: job.Part, Output: output, Repeat: job.repeat(""), job: job})
}

// counts returns the numbers of passed, failed and skipped tests.
func (r *Results) counts() (passed, failed, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed, r.failed, r.skipped
}

// reason extracts the reason from the output of a skipped test.
func reason(output string) string {
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

// Idle reports whether no test has run.
func (r *Runner) Idle() bool {
	passed, failed, skipped := r.results.counts()
	return passed+failed+skipped == 0
}
