package e2e

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/gvisor"
)

// hostileProvider returns a provider whose sandboxes run the probe as their
// agent.
func hostileProvider(t *testing.T) (*gvisor.Provider, *image.Store) {
	t.Helper()
	p, images := newProvider(t, t.TempDir())
	o := p.Options
	o.Agent = filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(o.Agent, probeFile(t).Data, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := gvisor.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, images
}

// byteCounter is a writer that counts the bytes and discards them.
type byteCounter struct{ n atomic.Int64 }

// Write implements io.Writer.
func (c *byteCounter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestAttackHostileAgent verifies that the host tolerates any response of an agent: a call
// returns in time, with an error or a bounded result, and the sandbox can be ended.
//
//suite:part hostile waits
func TestAttackHostileAgent(t *testing.T) {
	needRoot(t)
	p, images := hostileProvider(t)
	img, err := images.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	peak, stop := watchHeap()
	var all sync.WaitGroup
	few := make(chan struct{}, 6)
	for _, what := range []string{
		"garbage", "huge", "endless", "started", "half", "silent", "trickle", "unknown", "order", "exit", "lies", "error", "deep",
		"stubborn", "killed", "flooded", "closes", "skipped", "artifacts", "artifact", "executions", "put",
	} {
		all.Go(func() {
			few <- struct{}{}
			defer func() { <-few }()
			t.Run(what, func(t *testing.T) {
				attack.Case(t, "GST-01", what)
				callHostileAgent(t, p, img.Digest, what)
			})
		})
	}
	all.Wait()
	stop()
	if highest := peak.Load(); highest > 128*brig.MiB {
		t.Errorf("the heap grew to %d bytes", highest)
	}
	for end := time.Now().Add(promptTimeout); runtime.NumGoroutine() > before+2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 64<<10)
			t.Fatalf("%d goroutines before, %d after: %s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// callHostileAgent makes a call to an agent that misbehaves in the given way.
func callHostileAgent(t *testing.T, p *gvisor.Provider, digest, what string) {
	spec := brig.Spec{Name: "hostile", Image: digest, Limits: brig.DefaultLimitRange().Default}
	spec.Limits.Memory = 128 * brig.MiB
	in, err := p.Create(t.Context(), brig.ID("hostile-"+what), spec, time.Now().Add(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	switch what {
	case "skipped", "artifacts", "artifact":
		var files []brig.File
		files, _, err = in.Collect(ctx, what)
		if err == nil || len(files) != 0 {
			t.Errorf("collected %d files, %v", len(files), err)
		}
	case "executions":
		if xs, err := in.Execs(ctx); err == nil || len(xs) != 0 {
			t.Errorf("%d executions, %v", len(xs), err)
		}
	case "put":
		if err := in.Put(ctx, "silent", []brig.File{{Path: "x", Data: make([]byte, 8<<20)}}); err == nil {
			t.Error("put went well")
		}
	default:
		var out byteCounter
		var res *brig.Result
		res, err = in.Exec(t.Context(), "x", brig.Command{Argv: []string{what}, Timeout: 2 * time.Second}, brig.IO{Stdout: &out, Stderr: &out})
		timesOut := slices.Contains([]string{"endless", "silent", "trickle", "stubborn", "killed", "flooded", "closes"}, what)
		if ends := what != "lies" && what != "error"; ends {
			// The engine must end the sandbox, because the processes of such a command cannot be
			// removed otherwise.
			if e := in.Exit(); e == nil || e.Reason != brig.AgentLost {
				t.Errorf("exit: %+v", e)
			}
		}
		switch {
		case what == "lies":
			// A guest can forge the exit code of its program, but not the verdicts of the host.
			if err != nil || res.TimedOut || res.OOMKilled || res.ExitCode < 0 || res.ExitCode > 255 {
				t.Errorf("%+v, %v", res, err)
			}
		case timesOut:
			if err != nil || !res.TimedOut || res.ExitCode != 124 {
				t.Errorf("%+v, %v", res, err)
			}
		case err == nil:
			t.Errorf("%+v without an error", res)
		case what == "error" && (len(err.Error()) > 4096 || strings.Contains(brig.AsError(err).Field, "etc")):
			t.Errorf("the agent's error went through: %d bytes, field %q", len(err.Error()), brig.AsError(err).Field)
		}
	}
	// An unresponsive agent gets some time, because an agent that competes with many programs is
	// slow, too. An agent that responds but makes no progress gets a minute or two. An agent that
	// violates the protocol gets none.
	limit := promptTimeout
	switch what {
	case "silent", "endless", "trickle", "half", "closes":
		limit += guest.AgentTimeout
	case "killed":
		limit += 2 * guest.AgentTimeout
	case "stubborn":
		limit += 4 * guest.AgentTimeout
	}
	d := time.Since(start)
	if t.Logf("the verdict took %v", d.Round(time.Millisecond)); d > limit {
		t.Errorf("it took %v", d)
	}
	start = time.Now()
	m := &machine{Instance: in, t: t, dir: filepath.Join(p.DataDir, "sandboxes", "hostile-"+what)}
	if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil || time.Since(start) > promptTimeout {
		t.Errorf("destroy took %v: %v", time.Since(start), err)
	}
	m.checkNoTraces()
}

// watchHeap samples the heap size. It returns the peak and a function that
// stops sampling.
func watchHeap() (*atomic.Int64, func()) {
	runtime.GC() // exclude the garbage of other tests
	var peak atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), int64(m.HeapInuse)))
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return &peak, func() { close(done); <-ended }
}
