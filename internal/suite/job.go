package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// Job is one process that runs tests.
type Job struct {
	Name  string   // for display: a test, or a set of packages
	Part  string   // the part that counts its results
	Argv  []string // prints the events of `go test -json`
	Dir   string
	Env   []string // added to the environment
	Alone bool     // runs in its own stage
	Waits bool     // uses little CPU time and takes no slot
	Raced bool     // its programs have the race detector
	// Limit is the time after which a job is stopped.
	Limit time.Duration
	// Again is the make command that repeats one test of this job.
	Again string
	// packages is the number of packages that the job tests. If it is not zero, the jobs of the
	// next stage may start before the last packages have ended. If it is zero and Alone is set,
	// no other job runs concurrently.
	packages int
	// singleTest returns the arguments of a job that runs one test, or a package if test is empty.
	// If singleTest is nil or returns nil, failures are not rerun.
	singleTest func(argv []string, pkg, test string) []string
	// timed is the part under which the durations of the packages are recorded. Default: Part.
	timed string
	// book is the path of the job's attack record.
	book string
}

// cleanupTimeout is the time for an interrupted job to clean up after its test.
const cleanupTimeout = 30 * time.Second

// runsAlone reports whether no other job may run concurrently.
func (j *Job) runsAlone() bool { return j.Alone && j.packages == 0 }

// repeatCommand returns the command that runs one test again, or the whole job.
func (j *Job) repeatCommand(test string) string {
	if test == "" {
		return j.Again
	}
	return j.Again + " RUN='" + strings.ReplaceAll(test, "'", `'\''`) + "'"
}

// run runs the job to its end and counts the events in its output.
func (j *Job) run(ctx context.Context, r *Results, each func(event)) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.Limit, fmt.Errorf("the job took more than %s", j.Limit))
	defer cancel()
	cmd := exec.Command(j.Argv[0], j.Argv[1:]...)
	cmd.Dir, cmd.Env = j.Dir, append(os.Environ(), j.Env...)
	if j.book != "" {
		cmd.Env = append(cmd.Env, attack.Env+"="+j.book)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	from, to, err := os.Pipe()
	if err != nil {
		r.countUnexplained(j, err.Error())
		return
	}
	defer from.Close()
	cmd.Stdout, cmd.Stderr = to, to
	err = cmd.Start()
	to.Close()
	if err != nil {
		r.countUnexplained(j, err.Error())
		return
	}
	// Leftover processes of a test hold the pipe open, so wait for the exit of
	// the job's process.
	exit := make(chan struct{})
	var status error
	go func() { status = cmd.Wait(); close(exit) }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-exit:
			err = status
		case <-ctx.Done():
			signal := syscall.SIGTERM
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				signal = syscall.SIGQUIT // Go programs print their goroutines
			}
			_ = syscall.Kill(-cmd.Process.Pid, signal)
			select {
			case <-exit:
			case <-time.After(cleanupTimeout):
			}
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			err = context.Cause(ctx)
		}
		_ = from.SetReadDeadline(time.Now().Add(2 * time.Second))
	}()
	explained, noise := r.read(j, from, each)
	<-ended
	var exitErr *exec.ExitError
	killed := errors.As(err, &exitErr) && exitErr.ProcessState.Sys().(syscall.WaitStatus).Signaled()
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled): // the run was interrupted
	case !explained || killed || errors.Is(ctx.Err(), context.DeadlineExceeded):
		// Tests that did not end or did not begin are reported nowhere else.
		r.countUnexplained(j, fmt.Sprintf("%v\n%s", err, noise))
	case noise != "":
		r.explain(j, noise)
	}
}

// explain adds the output of a failed job that belongs to no test to the last failure of the
// job.
func (r *Results) explain(j *Job, noise string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.failures) - 1; i >= 0; i-- {
		if r.failures[i].job == j {
			r.failures[i].Output += noise
			return
		}
	}
}

// Tree is a checkout and the programs built in it.
type Tree struct {
	Root      string
	Module    string // the module's path
	TestJSON  string // the program that turns test output into events
	Bin, Race string // the directories of the programs; Race has the programs with the race detector
}

// OpenTree opens the checkout at root.
func OpenTree(root string) (*Tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	t := &Tree{Root: root, Bin: filepath.Join(root, "bin"), Race: filepath.Join(root, "bin", "race")}
	for to, argv := range map[*string][]string{&t.Module: {"list", "-m"}, &t.TestJSON: {"tool", "-n", "test2json"}} {
		cmd := exec.Command("go", argv...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go %s: %w", strings.Join(argv, " "), err)
		}
		*to = strings.TrimSpace(string(out))
	}
	return t, nil
}

// packages returns the packages that match the patterns, except e2e, whose
// tests are separate jobs.
func (t *Tree) packages(patterns ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list"}, patterns...)...)
	cmd.Dir, cmd.Stderr = t.Root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []string
	for _, p := range strings.Fields(string(out)) {
		if p != t.Module+"/e2e" {
			list = append(list, p)
		}
	}
	return list, nil
}

// Options selects the tests and how they run.
type Options struct {
	Full  bool   // at full size
	Tests string // a pattern for -run; empty for all
	Count int    // runs of each test; 0 means once, from the cache if possible
	// Races is the directory for the reports of the race detector. Detector holds its other
	// options.
	Races, Detector string
	// Rotation selects the share of long case lists that runs at small size.
	Rotation string
	// Took holds earlier durations of jobs and packages.
	Took map[string]float64
}

func (o Options) env() (env []string) {
	if o.Full {
		env = append(env, "BRIG_FULL=1")
	}
	return env
}

// againTest is the command that repeats a failure of `make test`. repeatAllCommand returns the
// command that repeats a failure of a part.
const againTest = "make test"

func repeatAllCommand(part string) string { return "make test-all PART=" + part }

// packagesLimit is the time limit of each package that runs concurrently with others.
// onePackageLimit is the time limit of a package that runs alone.
const (
	packagesLimit   = "30m"
	onePackageLimit = "10m"
)

// goTestJob returns a job that runs the tests of packages.
func (t *Tree) goTestJob(name, part string, raced bool, o Options, packages []string) Job {
	// Run two more packages than there are CPUs, because some long tests mostly wait: a
	// conformance test of provider/local uses a third of a CPU. `make lint` has already vetted
	// all packages.
	argv := []string{"go", "test", "-json", "-vet=off", "-p", fmt.Sprint(2 + runtime.NumCPU()), "-trimpath", "-tags", "grpcnotrace", "-timeout", packagesLimit}
	cgo := "CGO_ENABLED=0"
	env := append(o.env(), "BRIG_BIN_DIR="+t.Bin)
	if raced {
		argv, cgo = append(argv, "-race"), "CGO_ENABLED=1"
		env = append(env, "GORACE="+o.Detector)
	}
	env = append(env, cgo)
	if o.Tests != "" {
		argv = append(argv, "-run", o.Tests)
	}
	if o.Count > 0 {
		argv = append(argv, fmt.Sprint("-count=", o.Count))
	}
	// The part "packages" runs packages both with the detector and without it, which take
	// different times. The part of `make test` with the detector runs packages only with it.
	timed := part
	if raced && part != detectorPart {
		timed += ", raced"
	}
	// go test starts the packages in order, so the longest ones come first.
	packages = slices.Clone(packages)
	slices.SortStableFunc(packages, func(a, b string) int {
		return cmp.Compare(o.Took[packageKey(timed, b)], o.Took[packageKey(timed, a)])
	})
	again := againTest
	if o.Full {
		again = repeatAllCommand(part)
	}
	singleTest := func(argv []string, pkg, test string) []string {
		if pkg == "" {
			return nil
		}
		argv = append(slices.Clone(argv[:len(argv)-len(packages)]), "-count=1")
		if i := slices.Index(argv, packagesLimit); i >= 0 {
			argv[i] = onePackageLimit
		}
		if test != "" {
			argv = append(argv, "-run", testPattern(test))
		}
		return append(argv, pkg)
	}
	return Job{Name: name, Part: part, Argv: append(argv, packages...), Dir: t.Root, Env: env, Limit: 40 * time.Minute, Again: again, Alone: true, packages: len(packages), singleTest: singleTest, timed: timed}
}

// jobLimit is the time limit of an end-to-end test at small size. It is several times the
// duration of the longest test. jobLimitFull is the limit at full size.
const (
	jobLimit     = 6 * time.Minute
	jobLimitFull = 20 * time.Minute
)

// endToEndJobs returns one job for each group of end-to-end tests.
func (t *Tree) endToEndJobs(part string, raced bool, o Options, tests []Test) (jobs []Job) {
	bin := t.Bin
	if raced {
		bin = t.Race
	}
	limit := jobLimit
	if o.Full || raced || o.Count > 1 {
		limit = jobLimitFull
	}
	groups := map[string]int{} // the index of a group's job
	names := [][]string{}
	for _, test := range tests {
		group := test.With
		if group == "" {
			group = test.Name
		}
		i, ok := groups[group]
		if !ok {
			i = len(jobs)
			groups[group] = i
			again := againTest
			if o.Full {
				again = repeatAllCommand(test.Part)
			} else if raced {
				again = repeatAllCommand("race")
			}
			jobs = append(jobs, Job{Name: group, Part: part, Dir: filepath.Join(t.Root, "e2e"), Limit: limit + time.Minute, Again: again, Raced: raced, Waits: true, singleTest: singleTestArgs})
			names = append(names, nil)
		}
		names[i] = append(names[i], test.Name)
		jobs[i].Alone = jobs[i].Alone || test.Alone
		jobs[i].Waits = jobs[i].Waits && test.Waits
	}
	for i := range jobs {
		pattern := "^(" + strings.Join(names[i], "|") + ")$"
		if o.Tests != "" {
			pattern = o.Tests
		}
		jobs[i].Env = append(o.env(), "BRIG_BIN_DIR="+bin, "BRIG_ROTATION="+o.Rotation)
		if raced {
			jobs[i].Env = append(jobs[i].Env, "GORACE="+o.Detector+" log_path="+filepath.Join(o.Races, names[i][0]))
		}
		jobs[i].Argv = []string{
			t.TestJSON, "-t", "-p", "e2e", filepath.Join(bin, "test", "e2e.test"), "-test.v=test2json",
			"-test.run", pattern, "-test.timeout", limit.String(), fmt.Sprint("-test.count=", max(1, o.Count)),
		}
	}
	return jobs
}

// singleTestArgs returns the arguments that run one test of a test binary.
func singleTestArgs(argv []string, _, test string) []string {
	argv = slices.Clone(argv)
	if i := slices.Index(argv, "-test.run"); i >= 0 && test != "" {
		argv[i+1] = testPattern(test)
	}
	return argv
}

// key returns the key of the job in the recorded times, which cover all plans.
func (j *Job) key() string { return j.Part + ": " + j.Name }

// packageKey returns the key of a package in the recorded times.
func packageKey(timed, pkg string) string { return timed + ": " + pkg }
