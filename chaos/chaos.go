package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig"
)

// Server is a running server process.
type Server struct {
	PID     int
	Service brig.Service
	// Kill ends the process with SIGKILL. Stop ends it gracefully. Both wait
	// for its exit.
	Kill, Stop func() error
}

// Options are the options of Run.
type Options struct {
	// Dir is the data folder. It may contain only files that the server creates.
	Dir string
	// Start starts a server on the data folder and returns when the server is ready. The server's
	// pool must be bounded.
	Start func(ctx context.Context) (*Server, error)
	// Events reads the audit log while no server runs.
	Events func(ctx context.Context) ([]brig.Event, error)
	// Kills is the number of processes to kill.
	Kills int
	// Seed makes the choice of victims repeatable, but not the times of the
	// kills.
	Seed uint64
	// Say receives progress messages. It may be nil.
	Say func(format string, args ...any)
}

// Report is the result of Run.
type Report struct {
	Seed uint64 `json:"seed"`
	Counts
	Took    time.Duration       `json:"-"`
	Killed  map[string]int      `json:"killed"`
	Leaks   map[string][]string `json:"leaks"`
	Lost    []string            `json:"lost"`
	Missing int                 `json:"missing_events"`
	// Errors counts the errors that clients received, by kind. Unexplained
	// lists those that no killed process explains.
	Errors      map[brig.Kind]int `json:"errors"`
	Unexplained []string          `json:"unexplained_errors"`
	// Ready lists the times from a server's start until it was ready, and First
	// the times until its first one-shot had ended.
	Ready []time.Duration `json:"-"`
	First []time.Duration `json:"-"`
	// Before and After are the resources of an idle server before and after the
	// test.
	Before resourceUsage `json:"server_before"`
	After  resourceUsage `json:"server_after"`
}

// IsClean reports whether there were no leaks, lost results, missing events or
// unexplained errors.
func (r *Report) IsClean() bool {
	return hasNoLeaks(r.Leaks) && len(r.Lost) == 0 && r.Missing == 0 && len(r.Unexplained) == 0
}

// victims lists the kinds of processes to kill, with the probability of each in
// percent.
var victims = []struct {
	name string
	part int
}{{"server", 40}, {"shim", 22}, {"sentry", 23}, {"interpreter", 15}}

// run is the state of Run.
type run struct {
	Options
	*Report
	load *load
	host *Host
	rand *rand.Rand
	srv  *Server
}

// Run kills processes and counts the effects, which it returns in the report.
// An error means that the test itself failed.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	h, err := NewHost(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &run{Options: o, host: h, rand: rand.New(rand.NewPCG(o.Seed, 0)), Report: &Report{Seed: o.Seed, Killed: map[string]int{}}}
	begin := time.Now()
	if r.srv, err = o.Start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if r.srv != nil {
			err = errors.Join(err, r.srv.Kill())
		}
	}()
	files, err := r.warmUp(ctx)
	if err != nil {
		return nil, err
	}
	r.load = &load{ledger: newLedger(), tag: strconv.FormatUint(o.Seed%10000, 10)}
	r.load.server.Store(r.srv)
	work, quit := context.WithCancel(ctx)
	defer func() { quit(); r.load.work.Wait() }()
	r.load.start(work)
	for i := range o.Kills {
		if err := r.kill(ctx); err != nil {
			return nil, err
		}
		if (i+1)%20 == 0 {
			o.Say("%d kills, %d runs", i+1, r.load.successes().Runs)
		}
	}
	quit()
	r.load.work.Wait()
	if err := r.settle(ctx, files); err != nil {
		return nil, err
	}
	r.Took = time.Since(begin)
	return r.Report, nil
}

// warmUp makes a few runs, so that permanent resources exist before they are counted. It returns
// the files of the data folder.
func (r *run) warmUp(ctx context.Context) (files []string, err error) {
	for range 3 {
		if _, err := r.srv.Service.Run(ctx, brig.Program{Language: brig.Python, Code: "1"}, brig.IO{}); err != nil {
			return nil, err
		}
	}
	if err := r.waitIdle(ctx); err != nil {
		return nil, err
	}
	r.Before = resourceUsageOf(r.srv.PID)
	return r.host.files(), nil
}

// kill waits for a random time and kills a victim.
func (r *run) kill(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(100+r.rand.IntN(900)) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	who, index := "", r.rand.IntN(100)
	for _, v := range victims {
		if index -= v.part; index < 0 {
			who = v.name
			break
		}
	}
	switch who {
	case "server":
		r.Killed[who]++
		return r.restart(ctx)
	case "interpreter":
		r.load.kills[r.rand.IntN(holderCount)].Store(true)
		r.Killed[who]++
		return nil
	}
	name := map[string]string{"shim": shimName, "sentry": sentryName}[who]
	var list []Process
	for _, p := range r.host.Processes(r.srv.PID) {
		if p.name() == name && r.sandboxOf(p) != "" {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return r.kill(ctx)
	}
	p := list[r.rand.IntN(len(list))]
	r.load.markKilled(r.sandboxOf(p))
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", who, err)
	}
	r.Killed[who]++
	return nil
}

// sandboxOf returns the sandbox that a process belongs to.
func (r *run) sandboxOf(p Process) brig.ID {
	folders, _ := r.host.Folders() // an unknown victim is skipped
	for _, id := range folders {
		if strings.Contains(p.Cmdline+p.Cgroups, id) {
			return brig.ID(id)
		}
	}
	return ""
}

// restart kills the server and starts another.
func (r *run) restart(ctx context.Context) error {
	if err := r.srv.Kill(); err != nil {
		return err
	}
	r.srv = nil
	begin := time.Now()
	srv, err := r.Start(ctx)
	if err != nil {
		return err
	}
	r.Ready = append(r.Ready, time.Since(begin))
	r.srv = srv
	r.load.server.Store(srv)
	for {
		_, err := srv.Service.Run(ctx, brig.Program{Language: brig.Python, Code: "1"}, brig.IO{})
		if err == nil {
			r.First = append(r.First, time.Since(begin))
			return nil
		}
		r.load.recordError("first run", begin, err)
		if time.Since(begin) > callTimeout {
			return fmt.Errorf("a new server does not get a program run: %w", err)
		}
	}
}

// settle removes all sandboxes and counts the remaining resources.
func (r *run) settle(ctx context.Context, files []string) error {
	svc := r.srv.Service
	r.load.check(ctx, svc)
	if err := removeAll(ctx, svc); err != nil {
		return err
	}
	if err := r.waitIdle(ctx); err != nil {
		r.load.recordLoss("%v", err)
	}
	// A server that has survived many kills must not hold more descriptors than
	// a new one.
	for range 50 {
		if r.After = resourceUsageOf(r.srv.PID); r.After.Descriptors <= r.Before.Descriptors {
			break
		}
		time.Sleep(100 * time.Millisecond) // until idle client connections are closed
	}
	err := r.srv.Stop()
	r.srv = nil
	if err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if r.Leaks = r.host.findLeaks(files); hasNoLeaks(r.Leaks) || time.Since(begin) > 5*time.Second {
			break
		}
	}
	if more := r.After.Descriptors - r.Before.Descriptors; more > spareDescriptors {
		r.Leaks["descriptors"] = []string{fmt.Sprintf("%d, and %d before", r.After.Descriptors, r.Before.Descriptors)}
	}
	if more := r.After.RSS - r.Before.RSS; more > spareMemory {
		r.Leaks["memory"] = []string{fmt.Sprintf("%s, and %s before", brig.FormatBytes(r.After.RSS), brig.FormatBytes(r.Before.RSS))}
	}
	events, err := r.Events(ctx)
	if err != nil {
		return err
	}
	r.Missing = r.load.countMissing(events)
	l := r.load
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Counts, r.Lost, r.Unexplained, r.Errors = l.counts, l.lost, l.unexplained, l.errors
	return nil
}

// These constants are the permitted growth of a server's resources: connections of clients and to
// the database, and memory that the garbage collector has not returned.
const (
	spareDescriptors = 12
	spareMemory      = 64 * brig.MiB
)

// waitIdle waits until the server has no sandboxes on the host except those in its pool.
func (r *run) waitIdle(ctx context.Context) error {
	reason := ""
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(20 * time.Millisecond) {
		shelves, err := r.srv.Service.Pool(ctx)
		if err != nil {
			return err
		}
		ready, making := 0, 0
		for _, s := range shelves {
			ready, making = ready+s.Ready, making+s.Making
		}
		have, err := r.host.Folders()
		if err != nil {
			return err
		}
		reason = fmt.Sprintf("%d sandboxes wait, %d are being made, and there are folders %v", ready, making, have)
		if making == 0 && ready > 0 && len(have) == ready {
			return nil
		}
	}
	return errors.New("a server without work: " + reason)
}

// removeAll removes every sandbox.
func removeAll(ctx context.Context, svc brig.Service) error {
	for {
		page, err := svc.List(ctx, brig.ListOptions{})
		if err != nil || len(page.Sandboxes) == 0 {
			return err
		}
		for _, box := range page.Sandboxes {
			if err := svc.Remove(ctx, string(box.ID)); err != nil && brig.KindOf(err) != brig.NotFound {
				return fmt.Errorf("remove %s: %w", box.Spec.Name, err)
			}
		}
	}
}
