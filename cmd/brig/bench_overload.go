//go:build bench

package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
)

func (c benchCommands) overload() *cobra.Command {
	var loadTime time.Duration
	var rounds int
	cmd := &cobra.Command{
		Use:   "overload",
		Short: "Start 1, 3 and 10 times the one-shot runs that the server can handle",
		Args:  cobra.NoArgs,
		RunE: c.wrapBenchmark(func(ctx context.Context, w *workbench) error {
			if rounds < 1 {
				return brig.InvalidField("rounds", "%d is less than 1", rounds)
			}
			return w.measureOverload(ctx, loadTime, rounds)
		}),
	}
	cmd.Flags().DurationVar(&loadTime, "for", 15*time.Second, "how long each load is measured in each round")
	cmd.Flags().IntVar(&rounds, "rounds", 1, "how often all loads are repeated")
	return cmd
}

// lead is the initial part of each load that is not counted, because the first
// calls are still in progress.
const lead = time.Second

// loadResult is the result of applying a load to the server.
type loadResult struct {
	from, to        time.Time  // the counted part of the load
	mu              sync.Mutex // guards the fields below
	served          samples
	successesInTime int             // the number of calls that succeeded within the counted part
	counted         time.Duration   // the duration of the counted part
	cpu             time.Duration   // the CPU time of all calls, including rejected ones
	refused         []time.Duration // the durations of rejected calls
	retry           []time.Duration // the Retry-After values of rejected calls
	failed          []error
}

// newLoadResult returns an empty result for a load that starts now.
func newLoadResult(loadTime time.Duration) *loadResult {
	from := time.Now().Add(lead)
	return &loadResult{from: from, to: from.Add(loadTime), counted: loadTime}
}

// add merges the result of another round into p.
func (p *loadResult) add(o *loadResult) {
	p.served, p.successesInTime, p.counted = append(p.served, o.served...), p.successesInTime+o.successesInTime, p.counted+o.counted
	p.refused, p.retry = append(p.refused, o.refused...), append(p.retry, o.retry...)
	p.cpu += o.cpu
}

// rate returns the served calls per second.
func (p *loadResult) rate() float64 { return float64(p.successesInTime) / p.counted.Seconds() }

// cost returns the CPU time per served call. Other work on the machine affects the cost less than
// the rate.
func (p *loadResult) cost() time.Duration { return p.cpu / time.Duration(max(1, len(p.served))) }

// row adds the result as a row to a report.
func (p *loadResult) row(r *report, name string) *row {
	row := r.row(name).addTimes(p.served).set("per_s", p.rate()).set("cpu_ms", millis(p.cost()))
	row.set("count", float64(len(p.served)+len(p.refused))).set("succeeded", float64(len(p.served)))
	if len(p.refused) > 0 {
		row.note = fmt.Sprintf("%d refused, the median after %v, and told to come back after %v to %v", len(p.refused),
			quantile(p.refused, 0.5).Round(time.Millisecond), quantile(p.retry, 0).Round(time.Second), quantile(p.retry, 1).Round(time.Second))
	}
	return row
}

// baseline holds the results of two loads within the capacity: one call at a time, and full use.
type baseline struct{ alone, full loadResult }

func (b *baseline) add(o *baseline) {
	b.alone.add(&o.alone)
	b.full.add(&o.full)
}

// excess is a load at a multiple of the capacity, with the baselines that were measured before and
// after it.
type excess struct {
	factor      float64
	offeredRate float64 // calls per second, summed over rounds
	rounds      int
	loadResult
	baseline
}

// measureOverload compares a server within its capacity with an overloaded server. The
// server has no pool, because the first second of load would exhaust it. Other
// work on the machine changes the capacity from minute to minute, so each load
// is compared with the capacity just before and just after it.
func (w *workbench) measureOverload(ctx context.Context, loadTime time.Duration, rounds int) error {
	say, done := w.newProgress()
	defer done()
	g, err := w.newRig(ctx, engine.PoolOptions{}, func(o *engine.Options) { o.Capacity.MaxWait = capacity.ServerMaxWait })
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.waitUntilQuiet(); err != nil {
		return err
	}
	before, err := g.measureWithin(ctx, loadTime)
	if err != nil {
		return err
	}
	all, loads := &baseline{}, []*excess{{factor: 1}, {factor: 3}, {factor: 10}}
	all.add(before)
	for n := range rounds {
		for _, x := range loads {
			say(brig.Progress{Step: fmt.Sprintf("round %d: %s", n+1, x.name())})
			after, err := g.measureExcess(ctx, x, before, loadTime)
			if err != nil {
				return err
			}
			all.add(after)
			before = after
		}
	}
	r := &report{Bench: "overload", About: fmt.Sprintf("one-shots of %q without a pool, %d rounds of %v each; a call waits %v at most", benchProgram, rounds, loadTime, capacity.ServerMaxWait)}
	all.alone.row(r, "one at a time")
	all.full.row(r, "as many as are made at once")
	for _, x := range loads {
		x.addToReport(r)
	}
	say(brig.Progress{Step: "100 at once, of clients that ask again"})
	b, err := g.runPatientBurst(100)
	if err != nil {
		return err
	}
	b.row(r)
	r.requireAtLeast(b.name+": successes", float64(len(b.samples)), 100)
	return w.printLoad(r)
}

// measureWithin measures a baseline of the server within its capacity.
func (g *rig) measureWithin(ctx context.Context, loadTime time.Duration) (*baseline, error) {
	b := &baseline{}
	alone, err := g.runClosedLoad(ctx, 1, loadTime/2)
	if err != nil {
		return nil, err
	}
	full, err := g.runClosedLoad(ctx, 2*runtime.NumCPU(), loadTime)
	if err != nil {
		return nil, err
	}
	b.alone.add(alone)
	b.full.add(full)
	return b, nil
}

// measureExcess adds one round of a load to x. It returns the baseline that it measured after the
// round.
func (g *rig) measureExcess(ctx context.Context, x *excess, before *baseline, loadTime time.Duration) (*baseline, error) {
	offered := before.full.rate() * x.factor
	if offered == 0 {
		return nil, brig.Errorf(brig.Timeout, "no call ended within %v", loadTime).WithHint("give a longer --for")
	}
	p, err := g.runOpenLoad(ctx, time.Duration(float64(time.Second)/offered), loadTime)
	if err != nil {
		return nil, err
	}
	after, err := g.measureWithin(ctx, loadTime)
	if err != nil {
		return nil, err
	}
	x.loadResult.add(p)
	x.baseline.add(before)
	x.baseline.add(after)
	x.offeredRate += offered
	x.rounds++
	return after, nil
}

func (x *excess) name() string { return fmt.Sprintf("%g times the capacity", x.factor) }

// addToReport adds a load's result to the report and compares it with the targets.
func (x *excess) addToReport(r *report) {
	x.loadResult.row(r, x.name()).set("cpu_ratio", float64(x.loadResult.cost())/float64(x.full.cost()))
	// The server cannot serve more calls than the load offers.
	served := min(x.full.rate(), x.offeredRate/float64(x.rounds))
	unloaded := quantile(x.alone.served.values(wallOf), 0.5)
	r.requireAtLeast(x.name()+": of the capacity", x.rate()/served, 0.95)
	r.requireAtMost(x.name()+": p99 of the admitted, ms", millis(quantile(x.loadResult.served.values(wallOf), 0.99)), millis(capacity.ServerMaxWait+3*unloaded))
}

// makeCall makes one call and records the result.
func (p *loadResult) makeCall(ctx context.Context, c *client.Client) {
	begin := time.Now()
	out, err := c.Run(ctx, brig.Program{Language: brig.Python, Code: benchProgram}, brig.IO{})
	took := time.Since(begin)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := brig.AsError(err); {
	case err == nil && string(out.Stdout.Head) == benchOutput:
		p.served = append(p.served, sample{wall: took})
		if now := time.Now(); now.After(p.from) && now.Before(p.to) {
			p.successesInTime++
		}
	case err != nil && e.Kind == brig.RateLimited:
		p.refused, p.retry = append(p.refused, took), append(p.retry, e.RetryAfter)
	default:
		p.failed = append(p.failed, fmt.Errorf("a one-shot failed: %w", err))
	}
}

// finish completes the result, or returns the first error that is not a rejection at capacity. The
// CPU time includes the removal of the sandboxes.
func (p *loadResult) finish(ctx context.Context, g *rig, spent time.Duration) (*loadResult, error) {
	if err := g.waitUntilQuiet(); err != nil {
		return nil, err
	}
	p.cpu = g.cpuTime() - spent
	if len(p.failed) > 0 {
		return nil, p.failed[0]
	}
	return p, ctx.Err()
}

// runClosedLoad applies a closed-loop load: n callers, each with one call at a time.
func (g *rig) runClosedLoad(ctx context.Context, n int, loadTime time.Duration) (*loadResult, error) {
	c, err := g.newClient(-1)
	if err != nil {
		return nil, err
	}
	spent := g.cpuTime()
	p := newLoadResult(loadTime)
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			for time.Now().Before(p.to) && ctx.Err() == nil {
				p.makeCall(ctx, c)
			}
		})
	}
	calls.Wait()
	return p.finish(ctx, g, spent)
}

// runOpenLoad makes calls at a fixed rate, regardless of whether earlier calls
// have ended.
func (g *rig) runOpenLoad(ctx context.Context, every, loadTime time.Duration) (*loadResult, error) {
	c, err := g.newClient(-1)
	if err != nil {
		return nil, err
	}
	spent := g.cpuTime()
	p := newLoadResult(loadTime)
	var calls sync.WaitGroup
	begin := time.Now()
	for n := 1; time.Now().Before(p.to) && ctx.Err() == nil; n++ {
		calls.Go(func() { p.makeCall(ctx, c) })
		time.Sleep(time.Until(begin.Add(time.Duration(n) * every)))
	}
	calls.Wait()
	return p.finish(ctx, g, spent)
}

// runPatientBurst makes n concurrent calls with a client that retries calls rejected at capacity.
func (g *rig) runPatientBurst(n int) (*burst, error) {
	c, err := g.newClient(2 * time.Minute)
	if err != nil {
		return nil, err
	}
	b := runBurst(fmt.Sprintf("%d at once, of clients that ask again", n), n, func() (string, time.Duration, error) {
		out, err := c.Run(g.ctx, brig.Program{Language: brig.Python, Code: benchProgram}, brig.IO{})
		if err != nil {
			return "", 0, err
		}
		return string(out.Pool), 0, nil
	})
	return b, g.ctx.Err()
}

// newClient returns a client of the rig's server with the given retry timeout.
func (g *rig) newClient(patience time.Duration) (*client.Client, error) {
	return client.New(client.Options{URL: g.url, Key: g.key, RetryTimeout: patience, HTTP: &http.Client{Transport: g.client.Transport}})
}
