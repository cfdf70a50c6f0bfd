package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// followInterval is the interval at which logs -f and ls --watch poll.
const followInterval = time.Second

func (c sandboxCommands) logs() *cobra.Command {
	var (
		tail          int
		times, follow bool
	)
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the output of a sandbox's programs",
		Long: `Print the output of a sandbox's programs. The logs of a stopped sandbox stay until it
is removed. With --follow, the command prints new output until the sandbox stops.`,
		Example: `  brig sandbox logs one --tail 20
  brig sandbox logs one --follow --times`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				out := c.guestOutput(c.stdout)
				f := &follower{out: out, times: times, tail: tail}
				f.read = func(ctx context.Context, o brig.LogOptions) (io.ReadCloser, error) {
					return svc.Logs(ctx, args[0], o)
				}
				f.live = func(ctx context.Context) (bool, error) {
					s, err := svc.Get(ctx, args[0])
					return err == nil && s.State.Live(), err
				}
				run := f.printOnce
				if follow {
					run = f.follow
				}
				return errors.Join(run(ctx), finish(out))
			})
		},
	}
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "print only the last `n` lines")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new output until the sandbox stops")
	cmd.Flags().BoolVarP(&times, "times", "t", false, "print the time before each line")
	return cmd
}

// follower prints a sandbox's log as it grows.
type follower struct {
	read  func(context.Context, brig.LogOptions) (io.ReadCloser, error)
	live  func(context.Context) (bool, error)
	out   io.Writer
	times bool
	tail  int // the number of lines to begin with; 0 means all

	// The position in the log: all lines before the time last are printed, and
	// the first count lines of that time.
	last  time.Time
	count int
}

// printOnce prints the current log.
func (f *follower) printOnce(ctx context.Context) error {
	r, err := f.read(ctx, brig.LogOptions{Tail: f.tail, Times: f.times})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(f.out, r)
	return err
}

// follow prints the log and the lines that are added to it, until the sandbox
// has stopped.
func (f *follower) follow(ctx context.Context) error {
	for tail := f.tail; ; tail = 0 {
		live, err := f.live(ctx) // before the log is read: if the sandbox has ended, the log is complete
		if err == nil {
			err = f.print(ctx, tail, !live)
		}
		if err != nil || !live {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // the user interrupted the command
		case <-time.After(followInterval):
		}
	}
}

// print prints the lines that were not printed before. It defers an incomplete
// line to the next call, unless the log is complete.
func (f *follower) print(ctx context.Context, tail int, complete bool) error {
	r, err := f.read(ctx, brig.LogOptions{Tail: tail, Times: true})
	if err != nil {
		return err
	}
	defer r.Close()
	lines := bufio.NewReader(r)
	seen := 0 // the number of lines with the time f.last
	for {
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		whole := strings.HasSuffix(line, "\n")
		if line == "" || !whole && !complete {
			return nil
		}
		at, text, _ := brig.CutLogTime(line)
		switch {
		case at.Before(f.last):
			continue
		case at.Equal(f.last):
			if seen++; seen <= f.count {
				continue
			}
			f.count++
		default:
			f.last, f.count, seen = at, 1, 1
		}
		if f.times {
			text = line
		}
		if _, err := io.WriteString(f.out, text); err != nil {
			return err
		}
	}
}
