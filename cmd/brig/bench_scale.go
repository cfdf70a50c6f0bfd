//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

func (c benchCommands) scale() *cobra.Command {
	b := &scaleBench{}
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Time claims from the pool while few and many sandboxes live",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(b.run),
	}
	cmd.Flags().IntSliceVar(&b.levels, "live", []int{1, 10, 100, 500}, "how many sandboxes live")
	cmd.Flags().IntVarP(&b.claims, "claims", "n", 50, "claims at each")
	return cmd
}

// scaleBench measures claims from the pool with an increasing number of live
// sandboxes.
type scaleBench struct {
	levels []int
	claims int
	rig    *rig
	bare   *peer
}

// level is the result for one number of live sandboxes.
type level struct {
	liveSandboxes int
	claims, bare  samples
}

func (b *scaleBench) run(ctx context.Context, w *workbench) (err error) {
	if b.rig, err = w.newRig(ctx, newPoolOptions(2)); err != nil {
		return err
	}
	defer b.rig.close()
	if b.bare, _, _, err = b.rig.openPeers(); err != nil {
		return err
	}
	slices.Sort(b.levels)
	b.levels = slices.Compact(b.levels)
	if len(b.levels) == 0 || b.levels[0] < 1 {
		return brig.InvalidField("live", "needs numbers from 1").WithHint("for example --live 1,10,100")
	}
	var found []level
	for _, n := range b.levels {
		measured, err := b.measureAt(ctx, n)
		if err != nil {
			return err
		}
		found = append(found, measured)
	}
	// Measure the first level again, close in time to the last one.
	if err := b.rig.removeAll(b.rig.ctx); err != nil {
		return err
	}
	again, err := b.measureAt(ctx, b.levels[0])
	if err != nil {
		return err
	}
	return w.printLoad(b.report(append(found, again)))
}

// measureAt measures claims while n sandboxes exist, alternating with runs of a
// bare process.
func (b *scaleBench) measureAt(ctx context.Context, n int) (level, error) {
	say, done := b.rig.newProgress()
	defer done()
	measured := level{liveSandboxes: n}
	more := make([]struct{}, n-int(b.rig.live.Load()))
	err := forEach(more, func(struct{}) error {
		say(brig.Progress{Step: fmt.Sprintf("%d live", n)})
		_, err := b.rig.create(0, nil)
		return errors.Join(err, ctx.Err())
	})
	for i := 0; i < b.claims+1 && err == nil; i++ {
		var bare, claim sample
		if bare, err = b.bare.runOneShot(ctx); err != nil {
			break
		}
		if claim, err = b.claim(); i > 0 {
			measured.bare, measured.claims = append(measured.bare, bare), append(measured.claims, claim)
		}
	}
	return measured, errors.Join(err, ctx.Err())
}

// claim measures the creation of a sandbox from the pool. The duration excludes the removal of the
// sandbox, but the CPU time includes it.
func (b *scaleBench) claim() (sample, error) {
	return b.rig.measure(func() (time.Duration, error) {
		var s *v1.Sandbox
		wall, err := clock(func() (err error) {
			s, err = b.rig.create(0, nil)
			return err
		})
		if err != nil {
			return 0, err
		}
		if s.Pool != string(brig.PoolHit) {
			return 0, errors.New("the pool had none")
		}
		return wall, b.rig.remove(s)
	})
}

func (b *scaleBench) report(found []level) *report {
	r := &report{Bench: "scale", About: fmt.Sprintf("claims from the pool, %d at each number of sandboxes that live", b.claims)}
	for i, at := range found {
		name := fmt.Sprintf("claim, %d live", at.liveSandboxes)
		if i == len(found)-1 {
			name += ", again"
		}
		r.row(name).addTimes(at.claims).compareWith(b.bare.name, at.claims, at.bare)
	}
	for i, at := range found {
		name := fmt.Sprintf("%s, %d live", b.bare.name, at.liveSandboxes)
		if i == len(found)-1 {
			name += ", again"
		}
		r.row(name).addTimes(at.bare)
	}
	last := len(found) - 1
	one := append(found[0].claims.values(wallOf), found[last].claims.values(wallOf)...)
	text := fmt.Sprintf("claim's p50 at %d live to that at %d", found[last-1].liveSandboxes, found[0].liveSandboxes)
	r.requireAtMost(text, float64(found[last-1].claims.median(wallOf))/float64(quantile(one, 0.5)), 1.5)
	return r
}
