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

// promised is what a server has said yes to, and may not forget by dying.
type promised struct {
	mu      sync.Mutex // guards the fields below
	boxes   map[string]brig.ID
	leaving map[string]bool   // whose removal was asked for
	runs    map[string]string // name and output
	execs   map[string]string // "box id" and output, of those that were answered
	started map[string]string // the same of those that survive, once they had started
	kept    int               // how many of these were held to
}

func (p *promised) note(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// storm is clients at work on a server that keeps dying.
type storm struct {
	promised
	t    *testing.T
	svc  atomic.Pointer[client.Client] // of the present server
	n    atomic.Int64
	done atomic.Int64 // answers
	work sync.WaitGroup
	quit chan struct{}
	over sync.Once
}

// client starts a client that does one thing again and again.
func (s *storm) client(do func(ctx context.Context, svc brig.Service, n int64) error) {
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
				time.Sleep(5 * time.Millisecond) // the server is dead
			default:
				s.t.Errorf("a client is told %s: %v", k, err)
			}
		}
	})
}

// end ends the clients.
func (s *storm) end() {
	s.over.Do(func() { close(s.quit) })
	s.work.Wait()
}

// permanent are the sandboxes whose main programs must never notice.
const permanent = 3

func permanentName(i int64) string { return fmt.Sprintf("permanent-%d", i%permanent) }

func (s *storm) start() {
	runs := func(ctx context.Context, svc brig.Service, n int64) error {
		name := fmt.Sprintf("run-%d", n)
		o, err := svc.Run(ctx, brig.Program{Name: name, Command: []string{"/bin/sh", "-c", "echo $0; exit 3", name}}, brig.IO{})
		if err == nil {
			s.note(func() { s.runs[name] = name + "\n" })
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
		s.note(func() { s.boxes[name] = box.ID })
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		s.note(func() { s.leaving[name] = true })
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
			s.note(func() { s.execs[permanentName(n)+" "+res.ExecID] = word + "\n" })
		}
		return err
	})
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		word := fmt.Sprintf("survived-%d", n)
		_, err := svc.Exec(ctx, permanentName(n), brig.Command{Shell: "sleep 0.4; echo " + word, Survive: true}, brig.IO{Started: func(id string) {
			s.note(func() { s.started[permanentName(n)+" "+id] = word + "\n" })
		}})
		return err
	})
	s.client(func(ctx context.Context, svc brig.Service, n int64) error {
		time.Sleep(20 * time.Millisecond)
		_, err := svc.List(ctx, brig.ListOptions{})
		return err
	})
}

// tick is the last line that a permanent sandbox's main program wrote: how
// often it has been round, and who it is.
func tick(t *testing.T, svc brig.Service, name string) (n int, who string) {
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

// check holds a new server to what earlier ones promised.
func (s *storm) check(svc brig.Service) {
	t, ctx := s.t, s.t.Context()
	s.mu.Lock()
	boxes, leaving := maps.Clone(s.boxes), maps.Clone(s.leaving)
	runs, execs, started := s.runs, s.execs, s.started
	// What was checked once is on disk: the next round looks at what is new.
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
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if x, err = svc.GetExec(ctx, box, id); err == nil && x.Done {
				break
			}
		}
		if err != nil || !x.Done || string(x.Stdout.Head) != out || x.ExitCode != 0 {
			t.Errorf("exec %s survives and is %+v, %v", key, x, err)
		}
	}
}

// TestServerKilledUnderLoad kills a server again and again while clients are at work.
// The next one keeps every promise, no program notices, and in the end, when
// all is removed, there is nothing on the host that belongs to nobody.
//
//suite:part crash
func TestServerKilledUnderLoad(t *testing.T) {
	dir := dataDir(t)
	srv := startServer(t, dir)
	s := &storm{t: t, quit: make(chan struct{}), promised: promised{
		boxes: map[string]brig.ID{}, leaving: map[string]bool{},
		runs: map[string]string{}, execs: map[string]string{}, started: map[string]string{},
	}}
	s.svc.Store(srv.client())
	main := &brig.Command{Shell: "read -r who < /proc/sys/kernel/random/uuid; i=0; while :; do i=$((i+1)); echo tick $i $who; sleep 0.05; done"}
	type life struct {
		sentry, ticks int
		who           string
	}
	lives, ids := map[string]life{}, map[string]brig.ID{}
	for i := range int64(permanent) {
		box, err := s.svc.Load().Create(t.Context(), brig.Spec{Name: permanentName(i), Command: main, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s.boxes[box.Spec.Name], ids[box.Spec.Name] = box.ID, box.ID
		lives[box.Spec.Name] = life{sentry: processOf(t, dir, box.ID, "runsc-sandbox")}
	}
	s.start()
	defer s.end() // also when a check gives up
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
			n, who := tick(t, srv.client(), name)
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
	if s.kept < kills || len(s.boxes) <= permanent {
		t.Error("too little happened for this test to mean anything")
	}
	removeAll(t, srv.client())
	wantOnlyPool(t, srv)
	if err := srv.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	wantNoTraces(t, dir)
}

// removeAll removes every sandbox of a server, and checks that it is so.
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
