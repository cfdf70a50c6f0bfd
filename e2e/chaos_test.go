package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/internal/testenv"
)

// readLog reads the last lines of a sandbox's log; 0 reads all.
func readLog(t *testing.T, svc brig.Service, name string, tail int) string {
	t.Helper()
	r, err := svc.Logs(t.Context(), name, brig.LogOptions{Tail: tail})
	if err != nil {
		t.Errorf("logs of %s: %v", name, err)
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("logs of %s: %v", name, err)
	}
	return string(b)
}

// acknowledgedRequests records the requests that a server has acknowledged. Their results must
// outlive a crash of the server.
type acknowledgedRequests struct {
	mu      sync.Mutex // guards the fields below
	boxes   map[string]brig.ID
	leaving map[string]bool   // sandboxes whose removal was requested
	runs    map[string]string // output by name
	execs   map[string]string // output by "box id", of executions whose results were received
	started map[string]string // like execs, but for started executions that outlive a restart
	kept    int               // the number of verified results
}

func (p *acknowledgedRequests) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// loadTest runs clients against a server that is killed repeatedly.
type loadTest struct {
	acknowledgedRequests
	t    *testing.T
	svc  atomic.Pointer[client.Client] // client of the current server
	n    atomic.Int64
	done atomic.Int64 // the number of responses
	work sync.WaitGroup
	quit chan struct{}
	over sync.Once
}

// client starts a client that repeatedly calls do.
func (s *loadTest) client(do func(ctx context.Context, svc brig.Service, n int64) error) {
	s.work.Go(func() {
		for {
			select {
			case <-s.quit:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
			err := do(ctx, s.svc.Load(), s.n.Add(1))
			cancel()
			switch k := brig.KindOf(err); k {
			case "":
				s.done.Add(1)
			case brig.ConnectionFailed:
				time.Sleep(5 * time.Millisecond) // the server is not running
			default:
				s.t.Errorf("client error %s: %v", k, err)
			}
		}
	})
}

// end stops the clients and waits until they have ended.
func (s *loadTest) end() {
	s.over.Do(func() { close(s.quit) })
	s.work.Wait()
}

// permanentCount is the number of sandboxes whose main programs must not be
// affected by kills.
const permanentCount = 3

func permanentName(i int64) string { return fmt.Sprintf("permanent-%d", i%permanentCount) }

func (s *loadTest) start() {
	runs := func(ctx context.Context, svc brig.Service, n int64) error {
		name := fmt.Sprintf("run-%d", n)
		o, err := svc.Run(ctx, brig.Program{SandboxName: name, Command: []string{"/bin/sh", "-c", "echo $0; exit 3", name}}, brig.IO{})
		if err == nil {
			s.update(func() { s.runs[name] = name + "\n" })
			if o.ExitCode != 3 || string(o.Stdout.Head) != name+"\n" {
				s.t.Errorf("%s: %+v", name, o.Result)
			}
		}
		return err
	}
	s.client(runs)
	s.client(runs)
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		name := fmt.Sprintf("passing-%d", n)
		box, err := svc.Create(ctx, brig.Spec{Name: name})
		if err != nil {
			return err
		}
		s.update(func() { s.boxes[name] = box.ID })
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		s.update(func() { s.leaving[name] = true })
		if rand.IntN(2) == 0 {
			if _, err := svc.Stop(ctx, name, 50*time.Millisecond); err != nil {
				return err
			}
		}
		return s.svc.Load().Remove(ctx, name)
	})
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		word := fmt.Sprintf("answered-%d", n)
		res, err := svc.Exec(ctx, permanentName(n), brig.Command{Argv: []string{"echo", word}}, brig.IO{})
		if err == nil {
			s.update(func() { s.execs[permanentName(n)+" "+res.ExecID] = word + "\n" })
		}
		return err
	})
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		word := fmt.Sprintf("survived-%d", n)
		_, err := svc.Exec(ctx, permanentName(n), brig.Command{Shell: "sleep 0.4; echo " + word, Survive: true}, brig.IO{Started: func(id string) {
			s.update(func() { s.started[permanentName(n)+" "+id] = word + "\n" })
		}})
		return err
	})
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		time.Sleep(20 * time.Millisecond)
		_, err := svc.List(ctx, brig.ListOptions{})
		return err
	})
}

// readLastTick returns the number of rounds and the identity of the process from the last output line
// of a permanent sandbox's main program.
func readLastTick(t *testing.T, svc brig.Service, name string) (n int, who string) {
	t.Helper()
	for line := range strings.Lines(readLog(t, svc, name, 200)) {
		if strings.HasPrefix(line, "tick ") {
			if _, err := fmt.Sscanf(line, "tick %d %s", &n, &who); err != nil {
				t.Errorf("log of %s: %q: %v", name, line, err)
			}
		}
	}
	return n, who
}

// check verifies that a server has the results that earlier servers acknowledged.
func (s *loadTest) check(svc brig.Service) {
	t, ctx := s.t, s.t.Context()
	s.mu.Lock()
	boxes, leaving := maps.Clone(s.boxes), maps.Clone(s.leaving)
	runs, execs, started := s.runs, s.execs, s.started
	// Verified results are on disk, so the next round checks only new ones.
	s.kept += len(runs) + len(execs) + len(started)
	s.runs, s.execs, s.started = map[string]string{}, map[string]string{}, map[string]string{}
	s.mu.Unlock()
	for name, id := range boxes {
		if leaving[name] {
			continue
		}
		box, err := svc.Get(ctx, name)
		s.mu.Lock()
		meanwhile := s.leaving[name]
		s.mu.Unlock()
		if !meanwhile && (err != nil || box.ID != id || box.State != brig.Running) {
			t.Errorf("sandbox %s was promised and is %+v, %v", name, box, err)
		}
	}
	for name, out := range runs {
		if o, err := svc.GetRun(ctx, name); err != nil || string(o.Stdout.Head) != out || o.ExitCode != 3 {
			t.Errorf("run %s was answered and is %+v, %v", name, o, err)
		}
	}
	for key, out := range execs {
		box, id, _ := strings.Cut(key, " ")
		if x, err := svc.GetExec(ctx, box, id); err != nil || !x.Done || string(x.Stdout.Head) != out {
			t.Errorf("exec %s was answered and is %+v, %v", key, x, err)
		}
	}
	for key, out := range started {
		box, id, _ := strings.Cut(key, " ")
		var x *brig.Execution
		var err error
		for deadline := time.Now().Add(promptTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if x, err = svc.GetExec(ctx, box, id); err == nil && x.Done {
				break
			}
		}
		if err != nil || !x.Done || string(x.Stdout.Head) != out || x.ExitCode != 0 {
			t.Errorf("exec %s survives and is %+v, %v", key, x, err)
		}
	}
}

// TestServerKilledUnderLoad verifies that every acknowledged result outlives a server that is
// killed under load, and that programs are not affected. After the removal of all sandboxes, no
// orphaned resources may remain on the host.
//
//suite:part crash
func TestServerKilledUnderLoad(t *testing.T) {
	dir := dataDir(t)
	srv := startServer(t, dir)
	s := &loadTest{t: t, quit: make(chan struct{}), acknowledgedRequests: acknowledgedRequests{
		boxes: map[string]brig.ID{}, leaving: map[string]bool{},
		runs: map[string]string{}, execs: map[string]string{}, started: map[string]string{},
	}}
	s.svc.Store(srv.client())
	main := &brig.Command{Shell: "read -r who < /proc/sys/kernel/random/uuid; i=0; while :; do i=$((i+1)); echo tick $i $who; sleep 0.05; done"}
	type lifecycle struct {
		sentry, ticks int
		who           string
	}
	lives, ids := map[string]lifecycle{}, map[string]brig.ID{}
	for i := range int64(permanentCount) {
		box, err := s.svc.Load().Create(t.Context(), brig.Spec{Name: permanentName(i), Command: main, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s.boxes[box.Spec.Name], ids[box.Spec.Name] = box.ID, box.ID
		lives[box.Spec.Name] = lifecycle{sentry: processOf(t, dir, box.ID, "runsc-sandbox")}
	}
	s.start()
	defer s.end() // even if a check fails the test
	var slowest time.Duration
	kills := testenv.Size(6, 20)
	for range kills {
		time.Sleep(time.Duration(100+rand.IntN(700)) * time.Millisecond)
		srv.kill()
		start := time.Now()
		srv = startServer(t, dir)
		slowest = max(slowest, time.Since(start))
		s.svc.Store(srv.client())
		s.check(srv.client())
		for name, l := range lives {
			n, who := readLastTick(t, srv.client(), name)
			if l.who != "" && (who != l.who || n <= l.ticks) {
				t.Errorf("%s is at tick %d as %s, and was at %d as %s", name, n, who, l.ticks, l.who)
			}
			if pid := processOf(t, dir, ids[name], "runsc-sandbox"); pid != l.sentry {
				t.Errorf("%s has sentry %d, and had %d", name, pid, l.sentry)
			}
			l.who, l.ticks = who, n
			lives[name] = l
		}
	}
	s.end()
	s.check(srv.client())
	t.Logf("%d kills, %d answers, %d sandboxes, %d results kept; the slowest start took %v", kills, s.done.Load(), len(s.boxes), s.kept, slowest.Round(time.Millisecond))
	if s.kept < kills || len(s.boxes) <= permanentCount {
		t.Error("too little happened for this test to mean anything")
	}
	removeAll(t, srv.client())
	checkOnlyPool(t, srv)
	if err := srv.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	checkNoHostTraces(t, dir)
}

// removeAll removes every sandbox of a server, and waits until the list is
// empty.
func removeAll(t *testing.T, svc brig.Service) {
	t.Helper()
	for range 100 {
		page, err := svc.List(t.Context(), brig.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Sandboxes) == 0 {
			return
		}
		for _, box := range page.Sandboxes {
			if err := svc.Remove(t.Context(), string(box.ID)); err != nil {
				t.Errorf("remove %s: %v", box.Spec.Name, err)
			}
		}
	}
	t.Error("there is no end of sandboxes")
}
