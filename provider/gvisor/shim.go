package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/journal"
)

// The descriptors that a shim is started with.
const (
	readyFD  = 3 // written once: a readiness
	lockFD   = 4 // the folder's lock, held until the shim ends
	tetherFD = 5 // of an ephemeral sandbox: its end is the sandbox's end
)

// readiness is what a shim reports when its sandbox runs, or cannot.
type readiness struct {
	Error string   `json:",omitempty"`
	Notes []string `json:",omitempty"`
}

// shim looks after one sandbox, from its start to its exit file.
type shim struct {
	layout
	order
	group   *cgroup.Group // nil where no cgroup can be made
	machine *machine
	ln      *net.UnixListener
	log     *journal.Writer
	kept    keepsakes

	end  chan brig.ExitReason // asked for an end, and why
	over chan struct{}        // closed when a main program that lingers has ended
	said chan struct{}        // closed when all that a main program said is in the log

	mu       sync.Mutex // guards the fields below
	lease    *time.Timer
	overuse  bool            // the watchdog saw more memory than allowed
	mainCode int             // the main program's exit code
	frozen   bool            // no task of the guest runs
	asked    brig.ExitReason // why somebody is stopping it gently, if so
	begun    bool            // the main program was started
	orphan   bool            // whoever it was for has gone
}

// shimMain is the shim's main. Its only argument is the sandbox's folder.
func shimMain(args []string) int {
	// Signals meant for a server and its terminal are not for its sandboxes.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE)
	ready := os.NewFile(readyFD, "ready")
	if len(args) != 1 || ready == nil {
		return 2
	}
	// Whatever whoever started the server has left open is not the sentry's.
	if err := unix.CloseRange(readyFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(readyFD) // a kernel before 5.11
		unix.CloseOnExec(lockFD)
		unix.CloseOnExec(tetherFD)
	}
	s := &shim{layout: layout{dir: args[0]}, end: make(chan brig.ExitReason, 16), over: make(chan struct{}), said: make(chan struct{})}
	ctx := context.Background()
	notes, err := s.start(ctx)
	if err != nil {
		s.discard(ctx)
		if !report(ready, readiness{Error: err.Error()}) {
			// The server has died: nobody else removes the folder.
			_ = os.RemoveAll(s.dir)
		}
		return 1
	}
	report(ready, readiness{Notes: notes})
	failpoint.Hit("shim.ready")
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// report tells the server, and whether there was one to tell.
func report(ready *os.File, r readiness) bool {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = ready.Write(b)
	}
	if err = errors.Join(err, ready.Close()); err != nil {
		fmt.Fprintln(os.Stderr, "report readiness:", err)
	}
	return err == nil
}

// start brings the sandbox to life, and returns what its owner should know of
// its limits.
func (s *shim) start(ctx context.Context) (notes []string, err error) {
	if ok, err := s.readJSON(orderFile, &s.order); err != nil || !ok {
		return nil, errors.Join(errors.New("no order"), err)
	}
	if s.Version != orderVersion {
		return nil, fmt.Errorf("order of version %d, want %d", s.Version, orderVersion)
	}
	if err := s.reveal(os.Stdin); err != nil {
		return nil, err
	}
	if notes, err = s.limit(); err != nil {
		return nil, err
	}
	failpoint.Hit("shim.limited")
	if s.log, err = journal.Open(s.path(logFile)); err != nil {
		return nil, err
	}
	if s.machine, err = boot(s.layout, &s.order, s.group); err != nil {
		return nil, err
	}
	failpoint.Hit("shim.booted")
	p, done, err := s.socketPath()
	if err != nil {
		return nil, err
	}
	defer done()
	if s.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"}); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.ln.SetUnlinkOnClose(false)
	failpoint.Hit("shim.listening")
	// The agent answers when it is up; a sandbox is not running before.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.machine.guest.Ping(ctx); err != nil {
		return nil, fmt.Errorf("wait for the agent: %w", err)
	}
	return notes, nil
}

// limit makes the cgroup, or does without one what can be done.
func (s *shim) limit() (notes []string, err error) {
	raiseOpenFiles()
	if s.Cgroup == "" {
		return s.limitWithout()
	}
	s.group, err = cgroup.New(s.Cgroup, cgroup.Limits{
		Memory: s.Limits.Memory, CPUs: s.Limits.CPUs,
		PIDs: threads(s.Limits.Processes),
	})
	if err == nil && s.Blank {
		// Nobody waits for it: it is made in what time others leave.
		err = s.group.SetWeight(cgroup.LowWeight)
	}
	return nil, err
}

// threads is how many of the host's a machine may have. A hit crashes the
// sentry, so this is only far behind RLIMIT_NPROC: a guest's thread may need
// three on the host, and the sentry its own.
func threads(processes int) int64 { return int64(4*processes + 512) }

// run looks after the sandbox until it ends, and writes down how.
func (s *shim) run(ctx context.Context) error {
	s.mu.Lock()
	s.lease = time.AfterFunc(time.Until(s.Lease), func() { s.end <- brig.LeaseExpired })
	s.mu.Unlock()
	stopOOM := func() {}
	if s.group != nil {
		// One process of a sandbox may die for all; make the rest follow.
		stop, err := s.group.WatchOOM(func() { s.machine.kill(s.group) })
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		} else {
			stopOOM = stop
		}
	} else {
		go s.watchdog()
	}
	if s.Ephemeral {
		go s.holdTether()
	}
	if !s.Held {
		s.begin(ctx, false)
	}
	go s.serve(ctx)

	why, asked := brig.Exited, false
	select {
	case <-s.machine.gone:
		// A gentle stop ends the machine from within, before it is through.
		s.mu.Lock()
		if s.asked != "" {
			why, asked = s.asked, true
		}
		s.mu.Unlock()
	case why = <-s.end:
		asked = true
		s.machine.kill(s.group)
		<-s.machine.gone
	}
	stopOOM()
	failpoint.Hit("shim.gone")
	return s.finish(ctx, why, asked)
}

// holdTether ends the sandbox with whoever it is for, unless it has become a
// sandbox of its own meanwhile.
func (s *shim) holdTether() {
	_, _ = io.Copy(io.Discard, os.NewFile(tetherFD, "tether"))
	s.mu.Lock()
	s.orphan = s.Ephemeral
	tied := s.orphan
	s.mu.Unlock()
	if tied {
		s.end <- brig.HungUp
	}
}

// sayTime bounds how long what a main program said last may take from the agent,
// which has ended, to the log.
const sayTime = time.Second

// hear waits until what a main program has said is in the log, and its code is
// known if it had ended by itself.
func (s *shim) hear() {
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if !begun {
		return
	}
	select {
	case <-s.said:
	case <-time.After(sayTime):
	}
}

// finish removes what the sandbox had on the host and writes the exit file.
func (s *shim) finish(ctx context.Context, why brig.ExitReason, asked bool) error {
	s.hear()
	s.mu.Lock()
	e := ending{Code: s.mainCode, Reason: why, At: time.Now().UTC()}
	over, tied := s.overuse, s.Ephemeral
	s.mu.Unlock()
	if s.group != nil {
		// The counter is the kernel's; nothing in the guest can move it.
		if n, err := s.group.OOMKills(); err == nil && n > 0 {
			over = true
		}
	}
	switch {
	case over:
		e.Reason, e.OOMKilled, e.Code = brig.OutOfMem, true, 137
	case !asked: // the end of a main program is asked for, too
		e.Reason, e.Code = brig.Crashed, s.machine.code()
	case asked && why != brig.Exited:
		if e.Code == 0 {
			e.Code = 137
		}
	}
	err := errors.Join(s.log.Close(), s.clean(ctx))
	failpoint.Hit("shim.cleaned")
	err = errors.Join(err, s.writeJSON(exitFile, e, !tied))
	failpoint.Hit("shim.finished")
	s.mu.Lock()
	orphan := s.orphan
	s.mu.Unlock()
	if orphan {
		// Nobody is left who would read how it ended, whoever asked for that:
		// a server that has begun to end it may have died.
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// clean ends the machine and removes everything but the logs.
func (s *shim) clean(ctx context.Context) error {
	var err error
	if s.machine != nil {
		s.machine.kill(s.group)
		err = s.machine.destroy()
	}
	if s.group != nil {
		err = errors.Join(err, s.group.Destroy(ctx))
	}
	for _, name := range []string{stateDir, overlayDir, configFile} {
		err = errors.Join(err, os.RemoveAll(s.path(name)))
	}
	return err
}

// discard undoes a start that failed. The provider removes the folder.
func (s *shim) discard(ctx context.Context) {
	if err := s.clean(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "undo start:", err)
	}
}

// raiseOpenFiles lets the sentry and the gofer hold as many files open as the
// host allows: each file that is open in the guest is one of theirs.
func raiseOpenFiles() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
