package suite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Runner runs plans and reports their progress.
type Runner struct {
	Out   io.Writer
	Slots int   // the number of concurrent end-to-end jobs
	Times Times // earlier durations of jobs and plans
	// SlowTests is the number of slow tests in the report. Default: 10.
	SlowTests int
	// FailFast stops a run at its first failure.
	FailFast bool
	// ProgressInterval is the interval between progress lines.
	ProgressInterval time.Duration
	// LedgerDir is the directory for the attack records of the jobs. If it is empty, no record
	// is kept.
	LedgerDir string

	results       Results
	finished      []PlanResult
	unsteady      []Unsteady
	verdicts      []string            // why tests failed although they ran again, or did not run again
	passedOnRerun map[string][]string // tests that ran again and passed, by attack record

	mu      sync.Mutex // guards Out and the fields below
	ledgers []string   // paths of attack records
	started time.Time
	total   int
	done    int
	running map[string]*progress
	cancel  context.CancelFunc // stops the plan
}

// waitingSlots is the maximum number of concurrent jobs that mostly wait. It does not depend on
// the number of CPUs.
const waitingSlots = 2

// packagesWithRoom is the maximum number of packages of a job that may still run when the next
// stage starts. It is less than the number of packages that a job runs concurrently.
const packagesWithRoom = 2

// progress counts the finished packages of a running job.
type progress struct {
	since    time.Time
	packages int // packages that have finished
}

// PlanResult is a completed plan.
type PlanResult struct {
	Plan     string
	Parts    []PartResult
	Duration time.Duration
	Tally
}

// PartResult is the result of a part of a plan.
type PartResult struct {
	Name     string
	Duration time.Duration // wall-clock time from the start of its first job to the end of its last
	begin    time.Time
	Tally
}

// Failed reports whether a test of the plan failed.
func (f *PlanResult) Failed() bool { return f.failed > 0 }

// Run runs a plan to its end.
func (r *Runner) Run(ctx context.Context, plan Plan) PlanResult {
	r.mu.Lock()
	r.started, r.total, r.done, r.running = time.Now(), len(plan.Jobs), 0, map[string]*progress{}
	if r.passedOnRerun == nil {
		r.passedOnRerun = map[string][]string{}
	}
	r.mu.Unlock()
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	stopReport := r.report(plan.Name)
	out := PlanResult{Plan: plan.Name}
	before := r.results.tally("")
	var started []*stage
	for _, jobs := range groupStages(plan.Jobs) {
		s := &stage{part: jobs[0].Part, before: r.results.tally(jobs[0].Part), room: make(chan struct{}), ended: make(chan struct{})}
		for _, earlier := range started {
			if jobs[0].runsAlone() {
				<-earlier.ended
			} else {
				<-earlier.room
			}
		}
		started = append(started, s)
		s.begin = time.Now()
		go func() {
			defer close(s.ended)
			defer s.makeRoom()
			r.runStage(ctx, jobs, s)
			s.end = time.Now()
		}()
	}
	for _, s := range started {
		<-s.ended
	}
	stopReport()
	for _, s := range started {
		out.addStage(s, r.results.tally(s.part))
	}
	out.Duration, out.Tally = time.Since(r.started), r.results.tally("").subtract(before)
	if ctx.Err() == nil {
		r.Times.Plans[plan.Name] = out.Duration.Seconds()
	}
	r.finished = append(r.finished, out)
	return out
}

// stage is a group of jobs that run concurrently.
type stage struct {
	part       string
	before     Tally // of the part, before the stage
	begin, end time.Time
	// room is closed when the next stage may start. ended is closed when all jobs have ended.
	room, ended chan struct{}
	once        sync.Once
}

func (s *stage) makeRoom() { s.once.Do(func() { close(s.room) }) }

// addStage adds a stage to the results of its part.
func (f *PlanResult) addStage(s *stage, now Tally) {
	i := slices.IndexFunc(f.Parts, func(p PartResult) bool { return p.Name == s.part })
	if i < 0 {
		f.Parts = append(f.Parts, PartResult{Name: s.part, begin: s.begin, Tally: now.subtract(s.before)})
		i = len(f.Parts) - 1
	}
	p := &f.Parts[i]
	p.Duration = max(p.Duration, s.end.Sub(p.begin))
}

// groupStages groups the jobs that run concurrently. A group consists of adjacent jobs of one part
// that do not need their own stage. Within a part, the jobs that need their own stage come
// last.
func groupStages(jobs []Job) (out [][]Job) {
	var parts []string
	for _, j := range jobs {
		if !slices.Contains(parts, j.Part) {
			parts = append(parts, j.Part)
		}
	}
	for _, part := range parts {
		var together []Job
		var exclusive [][]Job
		for _, j := range jobs {
			switch {
			case j.Part != part:
			case j.Alone:
				exclusive = append(exclusive, []Job{j})
			default:
				together = append(together, j)
			}
		}
		if len(together) > 0 {
			out = append(out, together)
		}
		out = append(out, exclusive...)
	}
	return out
}

// runStage runs the jobs of a stage concurrently, longest first.
func (r *Runner) runStage(ctx context.Context, jobs []Job, s *stage) {
	jobs = slices.Clone(jobs)
	r.mu.Lock() // a job of an earlier stage may record its time
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(r.Times.Jobs[b.key()], r.Times.Jobs[a.key()]) })
	r.mu.Unlock()
	var busy, waiting []*Job
	for i := range jobs {
		if jobs[i].Waits {
			waiting = append(waiting, &jobs[i])
		} else {
			busy = append(busy, &jobs[i])
		}
	}
	var work sync.WaitGroup
	work.Go(func() { r.runJobs(ctx, waiting, waitingSlots, s) })
	work.Go(func() { r.runJobs(ctx, busy, r.Slots, s) })
	work.Wait()
}

// runJobs starts jobs in order, at most slots at the same time, and waits for all of them.
func (r *Runner) runJobs(ctx context.Context, jobs []*Job, slots int, s *stage) {
	next := make(chan *Job)
	var work sync.WaitGroup
	for range min(max(1, slots), len(jobs)) {
		work.Go(func() {
			for j := range next {
				if ctx.Err() == nil {
					r.runJob(ctx, j, s)
				}
			}
		})
	}
	for _, j := range jobs {
		if ctx.Err() == nil {
			next <- j
		}
	}
	close(next)
	work.Wait()
}

// runJob runs one job and records its duration.
func (r *Runner) runJob(ctx context.Context, j *Job, s *stage) {
	p := &progress{since: time.Now()}
	j.book = r.newLedgerPath()
	r.mu.Lock()
	if j.book != "" {
		r.ledgers = append(r.ledgers, j.book)
	}
	r.running[j.Name] = p
	r.mu.Unlock()
	j.run(ctx, &r.results, func(e event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch e.Action {
		case "pass", "fail", "skip":
			if e.Test == "" {
				p.packages++
				if j.packages > 0 && p.packages >= j.packages-packagesWithRoom {
					s.makeRoom()
				}
				// A package whose results come from the test cache takes no time.
				if strings.Contains(e.Package, "/") && e.Elapsed >= minRecorded {
					r.Times.Jobs[packageKey(cmp.Or(j.timed, j.Part), e.Package)] = e.Elapsed
				}
			}
		}
		if e.Action == "fail" && e.Test != "" {
			fmt.Fprintf(r.Out, "[%s] FAIL %s %s\n", formatDuration(time.Since(r.started)), e.Package, e.Test)
			if r.FailFast && !strings.Contains(e.Test, "/") {
				r.cancel()
			}
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, j.Name)
	r.done++
	if ctx.Err() != nil {
		return
	}
	if r.FailFast && r.results.tally("").failed > 0 {
		r.cancel()
	}
	r.Times.Jobs[j.key()] = time.Since(p.since).Seconds()
}

// report prints progress periodically until the caller calls stop.
func (r *Runner) report(plan string) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(cmp.Or(r.ProgressInterval, 15*time.Second))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				line := r.progressLine(plan)
				r.mu.Lock()
				fmt.Fprintln(r.Out, line)
				r.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// progressLine formats the progress of a plan.
func (r *Runner) progressLine(plan string) string {
	so := r.results.tally("")
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "[%s", formatDuration(time.Since(r.started)))
	if expected := r.Times.Plans[plan]; expected > 0 {
		fmt.Fprintf(&b, " of about %s", formatDuration(seconds(expected)))
	}
	fmt.Fprintf(&b, "] %s: %d of %d jobs, %d tests passed, %d failed", plan, r.done, r.total, so.passed, so.failed)
	var names []string
	for name := range r.running {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return r.running[a].since.Compare(r.running[b].since) })
	for i, name := range names {
		sep := ", "
		if i == 0 {
			sep = "; running "
		}
		p := r.running[name]
		fmt.Fprintf(&b, "%s%s %s", sep, name, formatDuration(time.Since(p.since)))
		if p.packages > 0 {
			fmt.Fprintf(&b, " (%d packages)", p.packages)
		}
	}
	return b.String()
}

// formatDuration formats a duration as minutes and seconds.
func formatDuration(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
