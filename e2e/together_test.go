package e2e

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/race"
	"github.com/brig-run/brig/internal/testenv"
)

// TestEndManyExecutions verifies that ending many executions at the same time affects only the
// executions: their sandbox keeps its state, and no processes of the executions remain. The
// executions and the agent compete for the sandbox's single CPU.
//
//suite:part core
func TestEndManyExecutions(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	// The busy process is not the first process of the execution, and has left
	// the process group.
	const busy = "setsid sh -c 'while :; do :; done' marked-tree & while :; do :; done"
	for _, c := range []struct {
		name, shell string
		n           int
		hangUp      bool
	}{
		{"loops time out", busy, 40, false},
		{"loops lose their clients", busy, 40, true},
		{"sleeps time out", "sleep 1000 & sleep 1000", 100, false},
		{"sleeps lose their clients", "sleep 1000 & sleep 1000", 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			box, err := e.Create(ctx, brig.Spec{TTL: 10 * time.Minute, Limits: brig.Limits{CPUs: 1, Memory: brig.GiB, Processes: 400}})
			if err != nil {
				t.Fatal(err)
			}
			name := box.Spec.Name
			defer func() {
				if err := e.Remove(ctx, name); err != nil {
					t.Error(err)
				}
			}()
			if _, err := e.Exec(ctx, name, brig.Command{Shell: "echo kept >/dev/shm/state"}, brig.IO{}); err != nil {
				t.Fatal(err)
			}
			n := testenv.Size(c.n/2, c.n)
			if race.Enabled { // the race detector slows the agent down several times, but the time limits are the same
				n /= 4
			}
			endTogether(t, ctx, e, name, c.shell, n, c.hangUp)
			res, err := e.Exec(ctx, name, brig.Command{Shell: "cat /dev/shm/state; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"}, brig.IO{})
			if err != nil {
				now, _ := e.Get(ctx, name)
				t.Fatalf("the sandbox did not survive: %v (%+v)", err, now.Exit)
			}
			out := string(res.Stdout.Head)
			if !strings.HasPrefix(out, "kept\n") || strings.Contains(out, "marked-tree") || strings.Contains(out, "sleep 1000") {
				t.Errorf("the state, and what runs after: %s", out)
			}
		})
	}
}

// endTogether starts n executions and ends all of them at the same time.
func endTogether(t *testing.T, ctx context.Context, s brig.Service, name, shell string, n int, hangUp bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := brig.Command{Shell: shell, Timeout: 10 * time.Minute}
	if !hangUp {
		cmd.Timeout = 10 * time.Second
	}
	var started, ended sync.WaitGroup
	begin := time.Now()
	for i := range n {
		started.Add(1)
		ended.Go(func() {
			var once sync.Once
			res, err := s.Exec(ctx, name, cmd, brig.IO{Started: func(string) { once.Do(started.Done) }})
			once.Do(started.Done)
			switch {
			case hangUp && !errors.Is(err, context.Canceled):
				t.Errorf("%d, whose client hung up: %+v, %v", i, res, err)
			case !hangUp && (err != nil || !res.TimedOut):
				t.Errorf("%d, whose time ran out: %+v, %v", i, res, err)
			}
		})
	}
	started.Wait()
	all := time.Now()
	if hangUp {
		cancel()
	}
	ended.Wait()
	t.Logf("%d started in %v, and had ended after %v more", n, all.Sub(begin).Round(time.Millisecond), time.Since(all).Round(time.Millisecond))
}
