//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

func (c benchCommands) burst() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "burst",
		Short: "Start many one-shot runs at once, with a full and an empty pool",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(func(ctx context.Context, w *workbench) error { return w.measureBurst(ctx, n) }),
	}
	cmd.Flags().IntVarP(&n, "count", "n", 100, "concurrent one-shot runs")
	return cmd
}

// burst is the result of many concurrent one-shot runs.
type burst struct {
	name string
	samples
	hits     int
	wall     time.Duration
	cpu      time.Duration
	failures []error
}

// runBurst calls f n times concurrently and measures each call from the common start.
func runBurst(name string, n int, f func() (pool string, cpu time.Duration, err error)) *burst {
	b := &burst{name: name}
	var mu sync.Mutex // guards b
	var work sync.WaitGroup
	start := time.Now()
	for range n {
		work.Go(func() {
			pool, cpu, err := f()
			wall := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.failures = append(b.failures, err)
				return
			}
			b.samples = append(b.samples, sample{wall: wall})
			b.cpu += cpu
			if pool == string(brig.PoolHit) {
				b.hits++
			}
		})
	}
	work.Wait()
	b.wall = time.Since(start)
	return b
}

func (b *burst) rate() float64 { return float64(len(b.samples)) / b.wall.Seconds() }

func (b *burst) row(r *report) *row {
	w := r.row(b.name).addTimes(b.samples).set("succeeded", float64(len(b.samples))).
		set("wall_ms", millis(b.wall)).set("per_s", b.rate())
	w.set("count", float64(len(b.samples)+len(b.failures)))
	if b.cpu > 0 && len(b.samples) > 0 {
		w.set("cpu_ms", millis(b.cpu)/float64(len(b.samples)))
	}
	if len(b.failures) > 0 {
		w.note = "the first that failed: " + b.failures[0].Error()
	}
	return w
}

// compareWith adds the ratio of the rate to a peer's rate to the row.
func (b *burst) compareWith(w *row, peer *burst) {
	w.peer = peer.name
	w.set("ratio", b.rate()/peer.rate())
}

func (w *workbench) measureBurst(ctx context.Context, n int) error {
	r := &report{Bench: "burst", About: fmt.Sprintf("%d one-shots of %q at once; ratios of rates", n, benchProgram)}
	// Both servers have a pool that grows to n, but the first server is measured while its pool is
	// still empty.
	empty := engine.PoolOptions{Memory: int64(n+1) * 64 * brig.MiB, MaxPerClass: n}
	miss, _, err := w.burstBrig(ctx, n, "brig, empty pool", empty)
	if err != nil {
		return err
	}
	hit, fill, err := w.burstBrig(ctx, n, "brig, full pool", newPoolOptions(n))
	if err != nil {
		return err
	}
	peers, err := w.burstPeers(ctx, n, r)
	if err != nil {
		return err
	}
	bare, docker := peers[0], peers[2]
	for _, b := range []*burst{hit, miss} {
		b.compareWith(b.row(r).set("hits", float64(b.hits)), bare)
		if b == hit {
			r.row("filling the pool, before").set("count", float64(n)).set("wall_ms", millis(fill)).set("per_s", float64(n)/fill.Seconds())
		}
	}
	for _, b := range []*burst{hit, miss} {
		r.requireAtLeast(b.name+": successes", float64(len(b.samples)), float64(n))
		if docker == nil {
			r.addUnmeasured(b.name+": rate to docker's", 5, true, "docker is not present")
			continue
		}
		r.requireAtLeast(b.name+": rate to docker's", b.rate()/docker.rate(), 5)
	}
	return w.printLoad(r)
}

// burstBrig measures a new server. It also returns the time that the server took to fill its pool.
func (w *workbench) burstBrig(ctx context.Context, n int, name string, pool engine.PoolOptions) (_ *burst, fill time.Duration, err error) {
	say, done := w.newProgress()
	defer done()
	say(brig.Progress{Step: name})
	g, err := w.newRig(ctx, pool)
	if err != nil {
		return nil, 0, err
	}
	defer g.close()
	if err := g.waitUntilQuiet(); err != nil {
		return nil, 0, err
	}
	fill = time.Since(g.started)
	var b *burst
	s, err := g.measure(func() (time.Duration, error) {
		b = runBurst(name, n, func() (string, time.Duration, error) {
			pool, err := g.runOneShot(nil)
			return pool, 0, err
		})
		return b.wall, nil
	})
	b.cpu = s.cpu
	return b, fill, errors.Join(err, ctx.Err())
}

// burstPeers runs the same burst with bare, runsc and docker. The result of a
// missing peer is nil.
func (w *workbench) burstPeers(ctx context.Context, n int, r *report) ([3]*burst, error) {
	var out [3]*burst
	say, done := w.newProgress()
	defer done()
	g, err := w.newRig(ctx, engine.PoolOptions{})
	if err != nil {
		return out, err
	}
	defer g.close()
	bare, runsc, docker, err := g.openPeers()
	if err != nil {
		return out, err
	}
	for i, p := range []*peer{bare, runsc, docker} {
		if p.absenceReason != "" {
			r.addAbsent(p.name, p.absenceReason)
			continue
		}
		say(brig.Progress{Step: p.name})
		out[i] = runBurst(p.name, n, func() (string, time.Duration, error) {
			s, err := p.runOneShot(ctx)
			return "", s.cpu, err
		})
		row := out[i].row(r)
		if i > 0 {
			out[i].compareWith(row, out[0])
		}
	}
	return out, ctx.Err()
}
