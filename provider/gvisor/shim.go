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
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/journal"
	"github.com/brig-run/brig/internal/supervise"
)

// Descriptors with which a shim starts.
const (
	readyFD  = 3 // receives one readiness
	lockFD   = 4 // the directory's lock, held until the shim ends
	tetherFD = 5 // only for an ephemeral sandbox, which ends when the descriptor closes
)

// readiness is the shim's report that its sandbox runs or could not start.
type readiness struct {
	Error string   `json:",omitempty"`
	Notes []string `json:",omitempty"`
}

// shim supervises one sandbox, from its start to its exit file.
type shim struct {
	layout
	order
	group   *cgroup.Group // nil if no cgroup can be created
	machine *machine
	ln      *net.UnixListener
	log     *journal.Writer
	kept    keptProcesses
	lease   supervise.Lease
	main    supervise.Main
	end     chan brig.ExitReason // requests to end the sandbox, with the reason

	mu             sync.Mutex      // guards the fields below
	memoryExceeded bool            // whether the watchdog has measured more memory than allowed
	frozen         bool            // whether the guest is paused
	stopReason     brig.ExitReason // the reason for a graceful stop in progress
	orphaned       bool            // the process that created the sandbox has exited
}

// shimMain is the main function of the shim. Its only argument is the sandbox's
// directory.
func shimMain(args []string) int {
	// Signals for a server or its terminal must not end the server's
	// sandboxes.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE)
	ready := os.NewFile(readyFD, "ready")
	if len(args) != 1 || ready == nil {
		return 2
	}
	// The sentry must not inherit descriptors that the server's parent left
	// open.
	if err := unix.CloseRange(readyFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(readyFD) // kernels before 5.11
		unix.CloseOnExec(lockFD)
		unix.CloseOnExec(tetherFD)
	}
	s := &shim{layout: layout{dir: args[0]}, end: make(chan brig.ExitReason, 16)}
	ctx := context.Background()
	notes, err := s.start(ctx)
	if err != nil {
		s.rollback(ctx)
		if !report(ready, readiness{Error: err.Error()}) {
			// The server has died, so the shim removes the directory.
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

// report sends the readiness to the server, and reports whether that succeeded.
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

// start starts the sandbox, and returns notes about its limits for the
// sandbox's owner.
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
	if s.From != "" {
		if err := s.kept.restore(s.From); err != nil {
			return nil, err
		}
	}
	if s.log, err = journal.Open(s.path(logFile)); err != nil {
		return nil, err
	}
	if s.machine, err = boot(s.layout, &s.order, s.group); err != nil {
		return nil, err
	}
	failpoint.Hit("shim.booted")
	p, done, err := supervise.SocketPath(s.dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"}); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.ln.SetUnlinkOnClose(false)
	failpoint.Hit("shim.listening")
	// The sandbox is considered running once the agent has responded.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.machine.guest.Ping(ctx); err != nil {
		return nil, fmt.Errorf("wait for the agent: %w", err)
	}
	return notes, nil
}

// limit creates the cgroup, or enforces the limits without a cgroup.
func (s *shim) limit() (notes []string, err error) {
	raiseOpenFiles()
	if s.Cgroup == "" {
		return s.setLimitsWithoutCgroup()
	}
	s.group, err = cgroup.New(s.Cgroup, cgroup.Limits{
		Memory: s.Limits.Memory, CPUs: s.Limits.CPUs,
		PIDs: guest.SentryThreads(s.Limits.Processes),
	})
	if err == nil && s.Blank {
		// No caller waits for a sandbox of the warm pool, so it is created with
		// low priority.
		err = s.group.SetWeight(cgroup.LowWeight)
	}
	return nil, err
}

// run supervises the sandbox until it ends, and records how it ended.
func (s *shim) run(ctx context.Context) error {
	s.lease.Begin(time.Until(s.Lease), s.Ephemeral, func() { s.end <- brig.LeaseExpired })
	stopOOM := func() {}
	if s.group != nil {
		// The OOM killer may kill only one process of a sandbox. Kill the
		// others, too.
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

	reason, requested := brig.Exited, false
	select {
	case <-s.machine.ended:
		// A graceful stop ends the sandbox from within, before the stop itself
		// has finished.
		s.mu.Lock()
		if s.stopReason != "" {
			reason, requested = s.stopReason, true
		}
		s.mu.Unlock()
	case reason = <-s.end:
		requested = true
		s.machine.kill(s.group)
		<-s.machine.ended
	}
	stopOOM()
	failpoint.Hit("shim.gone")
	return s.finish(ctx, reason, requested)
}

// holdTether ends the sandbox when the process that created it exits, unless
// the sandbox is no longer ephemeral.
func (s *shim) holdTether() {
	_, _ = io.Copy(io.Discard, os.NewFile(tetherFD, "tether"))
	tethered := s.lease.IsTethered()
	s.mu.Lock()
	s.orphaned = tethered
	s.mu.Unlock()
	if tethered {
		s.end <- brig.HungUp
	}
}

// finish removes the sandbox's resources on the host and writes the exit file.
func (s *shim) finish(ctx context.Context, reason brig.ExitReason, requested bool) error {
	s.main.AwaitOutput()
	s.mu.Lock()
	e := ending{Exit: brig.Exit{Code: s.main.Code(), Reason: reason, At: time.Now().UTC()}}
	outOfMemory, tethered := s.memoryExceeded, s.lease.IsTethered()
	s.mu.Unlock()
	e.Refused = s.machine.refused.read()
	if s.group != nil {
		// The kernel maintains the counter. The guest cannot change it.
		if n, err := s.group.OOMKills(); err == nil && n > 0 {
			outOfMemory = true
		}
	}
	switch {
	case outOfMemory:
		e.Reason, e.OOMKilled, e.Code = brig.OutOfMem, true, 137
	case !requested: // requested is also set when a main program exits
		e.Reason, e.Code = brig.Crashed, s.machine.code()
	case requested && reason != brig.Exited:
		if e.Code == 0 {
			e.Code = 137
		}
	}
	err := errors.Join(s.log.Close(), s.clean(ctx))
	failpoint.Hit("shim.cleaned")
	err = errors.Join(err, s.writeJSON(exitFile, e, !tethered))
	failpoint.Hit("shim.finished")
	s.mu.Lock()
	orphaned := s.orphaned
	s.mu.Unlock()
	if orphaned {
		// No process will read the exit file, regardless of the exit reason:
		// even a server that was ending the sandbox may have died.
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// clean ends the sandbox and removes its resources, except the logs.
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

// rollback cleans up after a failed start. The provider removes the directory.
func (s *shim) rollback(ctx context.Context) {
	if err := s.clean(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "undo start:", err)
	}
}

// raiseOpenFiles raises the open-file limit of the sentry and the gofer to the
// hard limit, because each open file of the guest uses one of their
// descriptors.
func raiseOpenFiles() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
