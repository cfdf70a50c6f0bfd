//go:build bench

package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig/chaos"
)

func (c benchCommands) soakCommand() *cobra.Command {
	var howLong, every time.Duration
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Work steadily for a while, and say how memory and latency move",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runSoak(cmd.Context(), howLong, every)
		},
	}
	cmd.Flags().DurationVar(&howLong, "for", 10*time.Minute, "how long")
	cmd.Flags().DurationVar(&every, "every", 5*time.Second, "between samples")
	return cmd
}

func (c benchCommands) runSoak(ctx context.Context, howLong, every time.Duration) (err error) {
	l, err := newLab()
	if err != nil {
		return err
	}
	defer l.remove()
	s, err := l.start(ctx)
	if err != nil {
		return err
	}
	r, err := chaos.Soak(ctx, chaos.SoakOptions{Server: s, For: howLong, Every: every, Say: c.printProgress, Goroutines: l.goroutines})
	if stopErr := s.Stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	if len(r.Lost) > 0 {
		c.code = 1
	}
	if c.asJSON {
		return c.printJSON(r)
	}
	return c.printSoak(howLong, r)
}

func (c benchCommands) printSoak(howLong time.Duration, r *chaos.SoakReport) error {
	fmt.Fprintf(c.stdout, "%v of work: %d runs (%d from the pool), %d sandboxes, %d executions, %d codes; %d samples\n",
		howLong, r.Runs, r.Hits, r.Sandboxes, r.Executions, r.Codes, len(r.Samples))
	var rows [][]string
	for _, op := range r.Operations {
		rows = append(rows, []string{op.Name, fmt.Sprint(op.Count), fmt.Sprintf("p50 %s, p99 %s, max %s", formatMilliseconds(op.P50), formatMilliseconds(op.P99), formatMilliseconds(op.Max))})
	}
	total := 0
	for _, n := range r.Errors {
		total += n
	}
	last := chaos.Sample{}
	if n := len(r.Samples); n > 0 {
		last = r.Samples[n-1]
	}
	rows = append(rows,
		[]string{"errors", fmt.Sprint(total), fmt.Sprint(r.Errors)},
		[]string{"lost or unexplained", fmt.Sprint(len(r.Lost)), firstOrEmpty(r.Lost)},
		[]string{"memory", fmt.Sprintf("%+.2f MiB per 1000 runs", r.Memory), fmt.Sprintf("%d MiB at the end", last.RSS>>20)},
		[]string{"descriptors", fmt.Sprintf("%+.2f per 1000 runs", r.Descriptors), fmt.Sprintf("%d at the end", last.Descriptors)},
		[]string{"goroutines", fmt.Sprintf("%+.2f per 1000 runs", r.Goroutines), fmt.Sprintf("%d at the end", last.Goroutines)},
		[]string{"latency of runs, p50", fmt.Sprintf("%+.1f %%", r.Drift50), "from the first sample to the last, along the line"},
		[]string{"latency of runs, p99", fmt.Sprintf("%+.1f %%", r.Drift99), ""},
	)
	return c.printTable("WHAT\tCOUNT\t", rows)
}

// goroutines returns the number of goroutines that a server reports in its metrics, or 0 if it
// reports none.
func (l *lab) goroutines(ctx context.Context) int {
	resp, err := l.get(ctx, "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			n, _ := strconv.ParseFloat(v, 64)
			return int(n)
		}
	}
	return 0
}
