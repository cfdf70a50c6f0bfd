package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
)

// instance is one sandbox, seen from a server. It implements brig.Instance.
type instance struct {
	guest.Guest // of its processes, files and trees

	p      *Provider
	l      layout
	id     brig.ID
	order  order
	notes  []string
	tether *os.File // of an ephemeral sandbox: closing it ends the sandbox
	ahead  ahead
	watch  *net.UnixConn
	done   chan struct{}
	reaped chan struct{} // of a shim that this process has started

	mu     sync.Mutex // guards the fields below
	exit   *brig.Exit
	cgroup *cgroup.Group // once it was looked for
}

var _ brig.Instance = (*instance)(nil)

// handleState is what a handle remembers beyond the id.
type handleState struct{ Notes []string }

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(handleState{Notes: i.notes})
	if err != nil {
		b = nil // strings always marshal
	}
	return brig.Handle{Provider: Name, Version: orderVersion, State: b}
}

// Notes implements brig.Instance.
func (i *instance) Notes() []string { return i.notes }

// Done implements brig.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Exit implements brig.Instance.
func (i *instance) Exit() *brig.Exit {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.exit
}

// attach finds the sandbox, which may have ended, and watches for its end.
func (i *instance) attach() {
	i.ahead.dial = i.l.dialAgent
	i.Guest = guest.Guest{Dial: i.ahead.take, Env: i.order.Env, Limits: i.order.Limits}
	if i.order.Ephemeral {
		// Its sandbox is about to end anyway, and the host is faster at it
		// than an agent in the middle of a fork bomb.
		i.Guest.Grace = oneShotGrace
	}
	c := i.reach()
	if c == nil {
		i.conclude()
		return
	}
	i.watch = c
	go func() {
		// Nothing but the answer ever comes: the end of the stream is the
		// end of the shim.
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		i.conclude()
	}()
}

// bootTime is how long a shim may take from its start until it listens.
const bootTime = 30 * time.Second

// reach connects to the shim, nil if there is none. A shim that holds the
// folder's lock and does not listen yet is still booting: its server has died
// meanwhile, and it must not be taken for dead.
func (i *instance) reach() *net.UnixConn {
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	for {
		c, err := i.l.ask(ctx, request{Op: "watch"})
		if err == nil {
			return c
		}
		lock, lockErr := i.l.lock()
		if lock != nil {
			lock.Close()
		}
		if lock != nil || lockErr != nil || ctx.Err() != nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// conclude learns how the sandbox ended. A shim that wrote nothing down was
// killed, and its sandbox with it.
func (i *instance) conclude() {
	i.ahead.close()
	var e ending
	if ok, err := i.l.readJSON(exitFile, &e); err != nil || !ok {
		e = ending{Code: 137, Reason: brig.Crashed, At: time.Now().UTC()}
		if name := i.p.cgroup(i.id); name != "" {
			if g, err := cgroup.Open(name); err == nil {
				if n, err := g.OOMKills(); err == nil && n > 0 {
					e.Reason, e.OOMKilled = brig.OutOfMem, true
				}
			}
		}
	}
	i.mu.Lock()
	i.exit = e.exit()
	i.mu.Unlock()
	close(i.done)
}

// oneShotGrace is how long the agent of a one-shot has to kill its process
// tree, and to send what is on its way, before the machine is killed.
const oneShotGrace = 200 * time.Millisecond

// Exec implements brig.Instance.
func (i *instance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res, err := i.Guest.Exec(ctx, id, cmd, sio)
	if !errors.Is(err, guest.ErrLost) {
		return res, err
	}
	if !guest.EndsItself(ctx, res, i.done) {
		// The agent is stuck or was tampered with, and nothing says that the
		// process tree is gone. The host's way of making sure is the machine.
		stopErr := i.Stop(context.WithoutCancel(ctx), 0, brig.Killed)
		err = errors.Join(err, stopErr)
	}
	if known, verdict := guest.Verdict(ctx, res, i.Exit(), err); known {
		return res, verdict
	}
	return res, err
}

// Extend implements brig.Instance.
func (i *instance) Extend(ctx context.Context, lease time.Time) error {
	return i.l.tell(ctx, request{Op: "lease", Lease: lease})
}

// stopTime is how long a shim may take, beyond the grace, to end its sandbox.
const stopTime = 10 * time.Second

// Stop implements brig.Instance.
func (i *instance) Stop(ctx context.Context, grace time.Duration, why brig.ExitReason) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopTime)
	defer cancel()
	err := i.l.tell(ctx, request{Op: "stop", Grace: grace, Reason: why})
	failpoint.Hit("provider.stopped")
	select {
	case <-i.done:
		return nil
	default:
	}
	if err != nil {
		// Most likely it is just ending. Otherwise a shim that does not listen
		// is ended by what holds its sandbox.
		select {
		case <-i.done:
			return nil
		case <-time.After(guest.LostTime):
			return errors.Join(err, i.force(ctx))
		}
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: %w", i.id, context.Cause(ctx)), i.force(context.WithoutCancel(ctx)))
	}
}

// force kills whatever is in the sandbox's cgroup.
func (i *instance) force(ctx context.Context) error {
	name := i.p.cgroup(i.id)
	if name == "" {
		return nil
	}
	g, err := cgroup.Open(name)
	if err != nil {
		return err
	}
	return g.Destroy(ctx)
}

// Destroy implements brig.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stopTime)
	defer cancel()
	var err error
	select {
	case <-i.done:
	default:
		err = i.Stop(ctx, 0, brig.Killed)
	}
	if i.tether != nil {
		i.tether.Close()
	}
	if i.reaped != nil {
		// It says goodbye a moment before it has gone. Whoever ends now would
		// leave it to an init that may take its time.
		select {
		case <-i.reaped:
		case <-ctx.Done():
		}
	}
	// The shim has removed its cgroup unless it was killed.
	err = errors.Join(err, i.force(ctx))
	failpoint.Hit("provider.emptied")
	return errors.Join(err, os.RemoveAll(i.l.dir))
}

// Dial implements brig.Instance.
func (i *instance) Dial(ctx context.Context, port int) (net.Conn, error) {
	return i.Guest.Port(ctx, port)
}

// Usage implements brig.Instance.
func (i *instance) Usage(context.Context) (*brig.Usage, error) {
	name := i.p.cgroup(i.id)
	if name == "" {
		return nil, brig.Errorf(brig.Unimplemented, "without root nobody counts what a sandbox uses")
	}
	g, err := cgroup.Open(name)
	if err != nil {
		return nil, err
	}
	u, err := g.Usage()
	if err != nil {
		return nil, err
	}
	return &brig.Usage{At: time.Now().UTC(), CPU: u.CPU, Memory: int64(u.Memory), Cache: int64(u.Cache)}, nil
}
