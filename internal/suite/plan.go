package suite

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Plan is a list of jobs. Jobs run concurrently where allowed, and otherwise in sequence.
type Plan struct {
	Name string // "test", or a part
	Jobs []Job
}

// These are parts of `make test`. detectorPart counts the tests of packages with the race
// detector, and endToEndPart counts the end-to-end tests.
const (
	detectorPart = "race detector"
	endToEndPart = "end to end"
)

// Small returns the plan of `make test`.
func (t *Tree) Small(tests []Test, o Options) (Plan, error) {
	all, err := t.packages("./...")
	if err != nil {
		return Plan{}, err
	}
	shared, err := t.packages(raced...)
	if err != nil {
		return Plan{}, err
	}
	measured, err := t.packages(plain...)
	if err != nil {
		return Plan{}, err
	}
	// With the detector, these packages skip or reduce only a few tests.
	both := slices.DeleteFunc(measured, func(p string) bool { return !slices.Contains(shared, p) })
	all = slices.DeleteFunc(all, func(p string) bool { return slices.Contains(shared, p) })
	jobs := append([]Job{t.goTestJob("packages", "packages", false, o, all)}, t.extraJobs(o)...)
	if len(both) > 0 {
		names, err := t.plainTests(both)
		if err != nil {
			return Plan{}, err
		}
		only := o
		only.Tests = "^(" + strings.Join(names, "|") + ")$"
		jobs = append(jobs, t.goTestJob("measurements", "packages", false, only, both))
	}
	jobs = append(jobs, t.goTestJob("packages, race detector", detectorPart, true, o, shared))
	return Plan{"test", append(jobs, t.endToEndJobs(endToEndPart, false, o, filterSmall(tests))...)}, nil
}

// filterSmall returns the end-to-end tests of `make test`: the tests without the mark
// "full". Tests of the part "race" run only there, because they need programs with the race
// detector.
func filterSmall(tests []Test) (out []Test) {
	for _, test := range tests {
		if !test.Full {
			out = append(out, test)
		}
	}
	return out
}

// OfPart returns the plan of a part of `make test-all`. If one is not empty,
// the plan contains only that test.
func (t *Tree) OfPart(p Part, tests []Test, one string, o Options) (Plan, error) {
	if one != "" {
		top, _, _ := strings.Cut(one, "/")
		tests = slices.DeleteFunc(slices.Clone(tests), func(test Test) bool { return test.Name != top })
		o.Tests = testPattern(one)
	}
	switch {
	case p.Packages:
		o.Full, o.Count = true, 1
		all, err := t.packages("./...")
		if err != nil {
			return Plan{}, err
		}
		measured, err := t.packages(plain...)
		if err != nil {
			return Plan{}, err
		}
		alone := t.goTestJob("packages without the detector", p.Name, false, o, measured)
		alone.packages = 0 // its tests measure time and memory
		jobs := []Job{t.goTestJob(p.Name, p.Name, true, o, all), alone}
		return Plan{p.Name, append(jobs, t.extraJobs(o)...)}, nil
	case p.Race:
		o.Full = false // the detector slows the tests down by a factor of several
		return Plan{p.Name, t.endToEndJobs(p.Name, true, o, append(filterSmall(tests), filterPart(tests, p)...))}, nil
	}
	o.Full = true
	return Plan{p.Name, t.endToEndJobs(p.Name, false, o, filterPart(tests, p))}, nil
}

// EndToEnd returns a plan of end-to-end tests only, at the size in o. At small
// size it excludes the tests that make test excludes.
func (t *Tree) EndToEnd(tests []Test, o Options) Plan {
	if !o.Full {
		tests = filterSmall(tests)
	}
	return Plan{endToEndPart, t.endToEndJobs(endToEndPart, false, o, tests)}
}

// filterPart returns the end-to-end tests of a part.
func filterPart(tests []Test, p Part) (out []Test) {
	for _, test := range tests {
		if test.Part == p.Name {
			out = append(out, test)
		}
	}
	return out
}

// Quarantine returns the plan that repeats the quarantined tests.
func (t *Tree) Quarantine(tests []Test, o Options) Plan {
	o.Full, o.Count = true, quarantineRuns
	return Plan{"quarantine", t.endToEndJobs("quarantine", false, o, tests)}
}

// tagged maps the packages whose tests need a build tag to that tag.
var tagged = map[string]string{"./internal/failpoint": "failpoints"}

// extraJobs returns the jobs of packages that `go test ./...` does not run: those
// that need a build tag, and the modules of examples, which may use only local
// dependencies.
func (t *Tree) extraJobs(o Options) (jobs []Job) {
	for dir, tag := range tagged {
		j := t.goTestJob(dir+" with "+tag, "packages", false, o, []string{dir})
		j.Argv[slices.Index(j.Argv, "grpcnotrace")] += "," + tag
		j.Alone, j.packages = false, 0
		jobs = append(jobs, j)
	}
	modules, _ := filepath.Glob(filepath.Join(t.Root, "examples", "*", "go.mod"))
	for _, m := range modules {
		j := t.goTestJob("examples/"+filepath.Base(filepath.Dir(m)), "packages", false, o, []string{"./..."})
		j.Dir, j.Alone, j.packages = filepath.Dir(m), false, 0
		j.Env = append(j.Env, "GOPROXY=off", "GOFLAGS=-mod=readonly")
		jobs = append(jobs, j)
	}
	return jobs
}

// Only returns the plan of one test with all its set-up: an end-to-end test, or
// a package test, which also runs with the race detector. The name may include
// subtests, as in TestA/case.
func (t *Tree) Only(name string, tests []Test, o Options) (Plan, error) {
	top, _, _ := strings.Cut(name, "/")
	o.Tests, o.Count = testPattern(name), max(1, o.Count)
	for _, test := range tests {
		if test.Name == top {
			if p, err := PartNamed(test.Part); err == nil && p.Race {
				return Plan{}, fmt.Errorf("%s needs programs with the race detector: make test-all PART=%s RUN=%s", top, p.Name, name)
			}
			test.With = ""
			part := endToEndPart
			if o.Full {
				part = test.Part
			}
			return Plan{name, t.endToEndJobs(part, false, o, []Test{test})}, nil
		}
	}
	dirs, err := t.foldersOf(top)
	if err != nil {
		return Plan{}, err
	}
	if len(dirs) == 0 {
		return Plan{}, fmt.Errorf("no test is named %s; RUN takes the whole name of a test, or TestName/subtest", top)
	}
	plan := Plan{name, []Job{t.goTestJob("packages", "packages", false, o, dirs)}}
	shared, err := t.packages(raced...)
	if err != nil {
		return Plan{}, err
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool {
		return !slices.Contains(shared, path.Join(t.Module, dir))
	})
	if len(dirs) > 0 {
		plan.Jobs = append(plan.Jobs, t.goTestJob("packages, race detector", detectorPart, true, o, dirs))
	}
	return plan, nil
}

// testPattern converts a test's name to a -run pattern that matches no other test.
func testPattern(name string) string {
	words := strings.Split(name, "/")
	for i, w := range words {
		words[i] = "^" + regexp.QuoteMeta(w) + "$"
	}
	return strings.Join(words, "/")
}

// foldersOf returns the directories of packages that contain a test with this
// name.
func (t *Tree) foldersOf(test string) (dirs []string, err error) {
	head := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`)
	err = filepath.WalkDir(t.Root, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != t.Root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "e2e"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		if src, err := os.ReadFile(name); err != nil || !head.Match(src) {
			return err
		}
		dir, err := filepath.Rel(t.Root, filepath.Dir(name))
		if dir = "./" + filepath.ToSlash(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return err
	})
	return dirs, err
}

// QuarantinedTest is a flaky test under repair. `make test` excludes it; `make test-all` runs it
// 20 times and reports the results.
type QuarantinedTest struct {
	Test, Reason string
	Since        time.Time
}

// quarantineRuns is the number of times that `make test-all` runs a quarantined
// test.
const quarantineRuns = 20

// ReadQuarantine parses the list: one line per test, with its name, the date on
// which it was quarantined, and the reason.
func ReadQuarantine(text string) (list []QuarantinedTest, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(line, " ", 3)
		if len(words) < 3 {
			return nil, fmt.Errorf("quarantine: %q must be a test, a date and a reason", line)
		}
		since, err := time.Parse(time.DateOnly, words[1])
		if err != nil {
			return nil, fmt.Errorf("quarantine: %s: the date must be like 2026-11-23: %w", words[0], err)
		}
		list = append(list, QuarantinedTest{words[0], words[2], since})
	}
	return list, nil
}

// quarantineFile is the path of the list in a checkout.
const quarantineFile = ".ci/quarantine"

// Tests reads the end-to-end tests of a checkout and its quarantine. It returns
// the quarantined tests separately.
func Tests(root string) (tests, flaky []Test, list []QuarantinedTest, err error) {
	all, err := Discover(root)
	if err != nil {
		return nil, nil, nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, quarantineFile))
	if err != nil {
		return nil, nil, nil, err
	}
	if list, err = ReadQuarantine(string(text)); err != nil {
		return nil, nil, nil, err
	}
	tests, flaky, err = Split(all, list)
	return tests, flaky, list, err
}

// Split separates the quarantined tests from the others.
func Split(tests []Test, list []QuarantinedTest) (kept, out []Test, err error) {
	var missing []error
	for _, q := range list {
		if !slices.ContainsFunc(tests, func(t Test) bool { return t.Name == q.Test }) {
			missing = append(missing, fmt.Errorf("quarantine: no end-to-end test is named %s", q.Test))
		}
	}
	for _, t := range tests {
		if slices.ContainsFunc(list, func(q QuarantinedTest) bool { return q.Test == t.Name }) {
			out = append(out, t)
		} else {
			kept = append(kept, t)
		}
	}
	return kept, out, errors.Join(missing...)
}
