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

// Server is a process that serves.
type Server struct {
	PID     int
	Service brig.Service
	// Kill ends it with SIGKILL, Stop asks it to end. Both wait for it.
	Kill, Stop func() error
}

// Options say what is tried.
type Options struct {
	// Dir is the data folder, in which nothing may be but what the server
	// makes.
	Dir string
	// Start starts a server on the data folder and returns when it says that
	// it is ready. Its pool must be bounded.
	Start func(ctx context.Context) (*Server, error)
	// Events reads the audit log, when no server runs.
	Events func(ctx context.Context) ([]brig.Event, error)
	// Kills is how many processes are killed.
	Kills int
	// Seed makes the choice of victims repeatable. When they die is not.
	Seed uint64
	// Say is told how it goes; nil for nobody.
	Say func(format string, args ...any)
}

// Report is what came of it.
type Report struct {
	Seed uint64 `json:"seed"`
	Counts
	Took    time.Duration       `json:"-"`
	Killed  map[string]int      `json:"killed"`
	Leaks   map[string][]string `json:"leaks"`
	Lost    []string            `json:"lost"`
	Missing int                 `json:"missing_events"`
	// Told are the errors that clients were told, by kind; Odd are those that
	// no death explains.
	Told map[brig.Kind]int `json:"errors"`
	Odd  []string          `json:"unexplained_errors"`
	// Ready is how long servers took from their start until they were ready,
	// First until their first one-shot was done.
	Ready []time.Duration `json:"-"`
	First []time.Duration `json:"-"`
	// Before and After are what a server without work holds.
	Before usage `json:"server_before"`
	After  usage `json:"server_after"`
}

// Clean reports whether every promise was kept.
func (r *Report) Clean() bool {
	return none(r.Leaks) && len(r.Lost) == 0 && r.Missing == 0 && len(r.Odd) == 0
}

// The victims, and how often each is chosen, in percent.
var victims = []struct {
	name string
	part int
}{{"server", 40}, {"shim", 22}, {"sentry", 23}, {"interpreter", 15}}

// run is one Run under way.
type run struct {
	Options
	*Report
	load *load
	host *Host
	rand *rand.Rand
	srv  *Server
}

// Run kills and counts. The error is about what could not be tried; what was
// found is in the report.
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
	files, err := r.warm(ctx)
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
			o.Say("%d kills, %d runs", i+1, r.load.done().Runs)
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

// warm does a little of everything, so that what stays for ever is there
// before it is counted.
func (r *run) warm(ctx context.Context) (files []string, err error) {
	for range 3 {
		if _, err := r.srv.Service.Run(ctx, brig.Program{Language: brig.Python, Code: "1"}, brig.IO{}); err != nil {
			return nil, err
		}
	}
	if err := r.idle(ctx); err != nil {
		return nil, err
	}
	r.Before = usageOf(r.srv.PID)
	return r.host.files(), nil
}

// kill waits for a random while and kills somebody.
func (r *run) kill(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(100+r.rand.IntN(900)) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	who, at := "", r.rand.IntN(100)
	for _, v := range victims {
		if at -= v.part; at < 0 {
			who = v.name
			break
		}
	}
	switch who {
	case "server":
		r.Killed[who]++
		return r.restart(ctx)
	case "interpreter":
		r.load.kills[r.rand.IntN(keepers)].Store(true)
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
	r.load.doom(r.sandboxOf(p))
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", who, err)
	}
	r.Killed[who]++
	return nil
}

// sandboxOf says whose a process is.
func (r *run) sandboxOf(p Process) brig.ID {
	folders, _ := r.host.Folders() // a victim of which nothing is known is passed over
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
		r.load.refused("first run", begin, err)
		if time.Since(begin) > callTime {
			return fmt.Errorf("a new server does not get a program run: %w", err)
		}
	}
}

// settle removes everything and counts what is left.
func (r *run) settle(ctx context.Context, files []string) error {
	svc := r.srv.Service
	r.load.check(ctx, svc)
	if err := removeAll(ctx, svc); err != nil {
		return err
	}
	if err := r.idle(ctx); err != nil {
		r.load.lose("%v", err)
	}
	// A server that was hit again and again has nothing that a new one has not.
	for range 50 {
		if r.After = usageOf(r.srv.PID); r.After.Descriptors <= r.Before.Descriptors {
			break
		}
		time.Sleep(100 * time.Millisecond) // connections of clients are idle
	}
	err := r.srv.Stop()
	r.srv = nil
	if err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if r.Leaks = r.host.leaks(files); none(r.Leaks) || time.Since(begin) > 5*time.Second {
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
	r.Missing = r.load.audit(events)
	l := r.load
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Counts, r.Lost, r.Odd, r.Told = l.counts, l.lost, l.odd, l.told
	return nil
}

// What a server may hold more at the end than at the beginning: connections
// of clients, of its own to the database, and what the collector of garbage
// has not given back.
const (
	spareDescriptors = 12
	spareMemory      = 64 * brig.MiB
)

// idle waits until a server has on the host what waits in its pool, and
// nothing else.
func (r *run) idle(ctx context.Context) error {
	why := ""
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
		why = fmt.Sprintf("%d sandboxes wait, %d are being made, and there are folders %v", ready, making, have)
		if making == 0 && ready > 0 && len(have) == ready {
			return nil
		}
	}
	return errors.New("a server without work: " + why)
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
