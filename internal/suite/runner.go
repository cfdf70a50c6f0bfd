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

// Runner runs plans and says how they go on.
type Runner struct {
	Out   io.Writer
	Slots int   // how many end-to-end jobs run side by side
	Times Times // what jobs and plans took before
	// Slowest is how many tests the report names for their time. Default: 10.
	Slowest int
	// FailFast ends a run with its first failure.
	FailFast bool
	// Every is how often it prints progress.
	Every time.Duration

	results  Results
	finished []Finished

	mu      sync.Mutex // guards Out and the fields below
	began   time.Time
	total   int
	done    int
	running map[string]*progress
	cancel  context.CancelFunc // ends the plan
}

// progress is how far a job has come.
type progress struct {
	since    time.Time
	packages int // that have ended
}

// Finished is a plan that has run.
type Finished struct {
	Plan                    string
	Parts                   []PartResult
	Took                    time.Duration
	passed, failed, skipped int
}

// PartResult is what a part of a plan came to.
type PartResult struct {
	Name                    string
	Took                    time.Duration // of the wall clock, from its first job to its last
	passed, failed, skipped int
}

// Failed reports whether a test of the plan failed.
func (f *Finished) Failed() bool { return f.failed > 0 }

// Run runs a plan to its end.
func (r *Runner) Run(ctx context.Context, plan Plan) Finished {
	r.mu.Lock()
	r.began, r.total, r.done, r.running = time.Now(), len(plan.Jobs), 0, map[string]*progress{}
	r.mu.Unlock()
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	stop := r.report(plan.Name)
	out := Finished{Plan: plan.Name}
	p0, f0, s0 := r.results.counts()
	for _, stage := range stages(plan.Jobs) {
		begin := time.Now()
		bp, bf, bs := r.results.counts()
		r.stage(ctx, stage)
		ep, ef, es := r.results.counts()
		out.add(stage[0].Part, time.Since(begin), ep-bp, ef-bf, es-bs)
	}
	stop()
	p1, f1, s1 := r.results.counts()
	out.Took, out.passed, out.failed, out.skipped = time.Since(r.began), p1-p0, f1-f0, s1-s0
	if ctx.Err() == nil {
		r.Times.Plans[plan.Name] = out.Took.Seconds()
	}
	r.finished = append(r.finished, out)
	return out
}

// add adds the results of a stage to its part.
func (f *Finished) add(part string, took time.Duration, passed, failed, skipped int) {
	i := slices.IndexFunc(f.Parts, func(p PartResult) bool { return p.Name == part })
	if i < 0 {
		i = len(f.Parts)
		f.Parts = append(f.Parts, PartResult{Name: part})
	}
	p := &f.Parts[i]
	p.Took, p.passed, p.failed, p.skipped = p.Took+took, p.passed+passed, p.failed+failed, p.skipped+skipped
}

// stages splits jobs into those that run side by side: neighbours of one part
// that need not be alone. Of a part, the jobs that must be alone come last.
func stages(jobs []Job) (out [][]Job) {
	var parts []string
	for _, j := range jobs {
		if !slices.Contains(parts, j.Part) {
			parts = append(parts, j.Part)
		}
	}
	for _, part := range parts {
		var together []Job
		var alone [][]Job
		for _, j := range jobs {
			switch {
			case j.Part != part:
			case j.Alone:
				alone = append(alone, []Job{j})
			default:
				together = append(together, j)
			}
		}
		if len(together) > 0 {
			out = append(out, together)
		}
		out = append(out, alone...)
	}
	return out
}

// stage runs jobs side by side, the longest first.
func (r *Runner) stage(ctx context.Context, jobs []Job) {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(r.Times.Jobs[b.key()], r.Times.Jobs[a.key()]) })
	next := make(chan *Job)
	var work sync.WaitGroup
	for range min(max(1, r.Slots), len(jobs)) {
		work.Go(func() {
			for j := range next {
				if ctx.Err() == nil {
					r.job(ctx, j)
				}
			}
		})
	}
	for i := range jobs {
		if ctx.Err() == nil {
			next <- &jobs[i]
		}
	}
	close(next)
	work.Wait()
}

// job runs one job and keeps what it took.
func (r *Runner) job(ctx context.Context, j *Job) {
	p := &progress{since: time.Now()}
	r.mu.Lock()
	r.running[j.Name] = p
	r.mu.Unlock()
	j.run(ctx, &r.results, func(e event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch e.Action {
		case "pass", "fail", "skip":
			if e.Test == "" {
				p.packages++
			}
		}
		if e.Action == "fail" && e.Test != "" {
			fmt.Fprintf(r.Out, "[%s] FAIL %s %s\n", clock(time.Since(r.began)), e.Package, e.Test)
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
	if _, failed, _ := r.results.counts(); r.FailFast && failed > 0 {
		r.cancel()
	}
	r.Times.Jobs[j.key()] = time.Since(p.since).Seconds()
}

// report prints how far a plan has come, now and then, until it is stopped.
func (r *Runner) report(plan string) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(cmp.Or(r.Every, 15*time.Second))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				line := r.line(plan)
				r.mu.Lock()
				fmt.Fprintln(r.Out, line)
				r.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// line says how far a plan has come.
func (r *Runner) line(plan string) string {
	passed, failed, _ := r.results.counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "[%s", clock(time.Since(r.began)))
	if expected := r.Times.Plans[plan]; expected > 0 {
		fmt.Fprintf(&b, " of about %s", clock(seconds(expected)))
	}
	fmt.Fprintf(&b, "] %s: %d of %d jobs, %d tests passed, %d failed", plan, r.done, r.total, passed, failed)
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
		fmt.Fprintf(&b, "%s%s %s", sep, name, clock(time.Since(p.since)))
		if p.packages > 0 {
			fmt.Fprintf(&b, " (%d packages)", p.packages)
		}
	}
	return b.String()
}

// clock writes a time as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
