package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
)

// instance is the server's handle of one sandbox. It implements brig.Instance.
type instance struct {
	guest.Guest   // processes, files and trees of the sandbox
	guest.LogFile // output of the main program

	p          *Provider
	l          layout
	id         brig.ID
	order      order
	notes      []string
	tether     *os.File // set for an ephemeral sandbox; closing it ends the sandbox
	preconnect preconnect
	watch      *net.UnixConn
	done       chan struct{}
	reaped     chan struct{} // closed when the shim was reaped; nil if another process started the shim

	mu     sync.Mutex // guards the fields below
	exit   *brig.Exit
	denied *brig.Refusals // final counts; nil if unknown
	cgroup *cgroup.Group  // nil until the first lookup
	layers []string       // files of the writable layer; nil until the first lookup
}

var (
	_ brig.Instance = (*instance)(nil)
	_ brig.Refuser  = (*instance)(nil)

	_ brig.DiskMeter = (*instance)(nil)
)

// handleState is the state that a handle contains in addition to the sandbox's
// ID.
type handleState struct{ Notes []string }

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(handleState{Notes: i.notes})
	if err != nil {
		b = nil // unreachable: a list of strings can always be encoded
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

// attach connects to the sandbox and watches for its end. The sandbox may
// already have ended.
func (i *instance) attach() {
	i.preconnect.dial = i.l.dialAgent
	i.LogFile = guest.LogFile(i.l.path(logFile))
	i.Guest = guest.Guest{Dial: i.preconnect.take, Env: i.order.Env, Limits: i.order.Limits, Done: i.done}
	if i.order.Ephemeral {
		// The sandbox is about to end anyway, and during a fork bomb the host
		// kills it faster than the agent can.
		i.Guest.Grace = runGrace
	}
	c := i.connectShim()
	if c == nil {
		i.determineEnd()
		return
	}
	i.watch = c
	go func() {
		// The shim sends only one response, and the stream ends when the shim
		// exits.
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		i.determineEnd()
	}()
}

// bootTimeout is the maximum time from the start of a shim until it listens.
const bootTimeout = 30 * time.Second

// connectShim connects to the shim, and returns nil if the shim does not exist.
// A shim that holds the directory's lock but does not listen yet is still
// booting. In that case the server that started the shim has died, and the shim
// must not be considered dead.
func (i *instance) connectShim() *net.UnixConn {
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	for {
		c, err := i.l.openRequest(ctx, request{Op: "watch"})
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

// cgroupName returns the name of the sandbox's cgroup, or "" if there is none.
// The order contains the name. If the order was lost in a crash, cgroupName
// searches the existing groups.
func (i *instance) cgroupName() string {
	if !i.p.cgroups || i.order.Cgroup != "" {
		return i.order.Cgroup
	}
	groups, _, err := i.p.groups()
	if err != nil {
		i.p.Log.Warn("failed to find the cgroup of a sandbox", "sandbox", i.id, "err", err)
	}
	for _, name := range groups {
		if filepath.Base(name) == string(i.id) {
			return name
		}
	}
	return cgroupOf(i.p.DataDir, "", i.id)
}

// determineEnd determines how the sandbox ended. If there is no exit file, the
// shim was killed, and the kernel has killed its sandbox with it.
func (i *instance) determineEnd() {
	i.preconnect.close()
	var e ending
	if ok, err := i.l.readJSON(exitFile, &e); err != nil || !ok {
		e = ending{Exit: brig.Exit{Code: 137, Reason: brig.Crashed, At: time.Now().UTC()}}
		if i.isSaved() {
			e.Reason = brig.Saved
			if err := i.removeRest(); err != nil {
				i.p.Log.Warn("failed to remove the remains of a saved sandbox whose shim was killed", "sandbox", i.id, "err", err)
			}
		} else if name := i.cgroupName(); name != "" {
			if g, err := cgroup.Open(name); err == nil {
				if n, err := g.OOMKills(); err == nil && n > 0 {
					e.Reason, e.OOMKilled = brig.OutOfMem, true
				}
			}
		}
	}
	i.mu.Lock()
	i.exit, i.denied = &e.Exit, e.Refused
	i.mu.Unlock()
	close(i.done)
	i.p.shares.remove(i)
}

// runGrace is the time for the agent of a run to kill its process tree and to
// send the remaining output. Afterwards the host kills the sandbox.
const runGrace = 200 * time.Millisecond

// Exec implements brig.Instance.
func (i *instance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res, err := i.Guest.Exec(ctx, id, cmd, sio)
	if !errors.Is(err, guest.ErrLost) {
		return res, err
	}
	cause := i.Guest.EndReason(ctx, id, res, err)
	if cause != nil {
		// The agent is stuck or was tampered with, so the end of the process
		// tree cannot be confirmed. The host therefore ends the sandbox.
		reason := brig.AgentLost
		if i.Guest.Grace > 0 {
			reason = brig.Killed // the sandbox of a run ends after its command anyway
		} else {
			i.p.Log.WarnContext(ctx, "ending a sandbox whose agent stopped working", "sandbox", i.id, "exec", id, "reason", reason, "err", cause)
		}
		err = errors.Join(err, i.Stop(context.WithoutCancel(ctx), 0, reason))
	}
	if known, verdict := guest.SetLostResult(ctx, res, i.Exit(), err); known {
		return res, verdict
	}
	if cause == nil {
		return res, guest.BrokenConnectionError(err)
	}
	return res, err
}

// Extend implements brig.Instance.
func (i *instance) Extend(ctx context.Context, lease time.Time) error {
	return i.l.sendRequest(ctx, request{Op: "lease", Lease: lease})
}

// stopTimeout is the maximum time, beyond the grace period, for a shim to end its
// sandbox.
const stopTimeout = 10 * time.Second

// Stop implements brig.Instance.
func (i *instance) Stop(ctx context.Context, grace time.Duration, reason brig.ExitReason) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopTimeout)
	defer cancel()
	err := i.l.sendRequest(ctx, request{Op: "stop", Grace: grace, Reason: reason})
	failpoint.Hit("provider.stopped")
	select {
	case <-i.done:
		return nil
	default:
	}
	if err != nil {
		// The shim is probably exiting. If it does not listen at all, kill the
		// sandbox through its cgroup.
		select {
		case <-i.done:
			return nil
		case <-time.After(guest.LostTimeout):
			return errors.Join(err, i.killCgroup(ctx))
		}
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop %s: %w", i.id, context.Cause(ctx)), i.killCgroup(context.WithoutCancel(ctx)))
	}
}

// killCgroup kills all processes in the sandbox's cgroup.
func (i *instance) killCgroup(ctx context.Context) error {
	name := i.cgroupName()
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
	return errors.Join(i.end(ctx), os.RemoveAll(i.l.dir))
}

// end ends the sandbox by all available means.
func (i *instance) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stopTimeout)
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
		// Wait for the shim, which reports its end shortly before it exits. If
		// this server exited first, init would adopt the shim, and may be slow
		// to reap it.
		select {
		case <-i.reaped:
		case <-ctx.Done():
		}
	}
	// The shim removes its cgroup, unless the shim was killed.
	err = errors.Join(err, i.killCgroup(ctx))
	failpoint.Hit("provider.emptied")
	return err
}

// Dial implements brig.Instance.
func (i *instance) Dial(ctx context.Context, port int) (net.Conn, error) {
	return i.Guest.DialPort(ctx, port)
}

// Usage implements brig.Instance.
func (i *instance) Usage(context.Context) (*brig.Usage, error) {
	g, err := i.group() // to open the group takes longer than to measure it
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, brig.Errorf(brig.Unimplemented, "usage is measured only if the server runs as root")
	}
	u, err := g.Usage()
	if err != nil {
		return nil, err
	}
	return &brig.Usage{At: time.Now().UTC(), CPU: u.CPU, Memory: int64(u.Memory), Cache: int64(u.Cache)}, nil
}

// DiskUsed implements brig.DiskMeter. It returns the allocated size of the writable layer,
// or -1 if this server cannot determine it.
func (i *instance) DiskUsed(ctx context.Context) (used int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	i.mu.Lock()
	layers := i.layers
	i.mu.Unlock()
	if layers == nil {
		pid, err := i.l.sentry(ctx)
		if err != nil {
			return -1
		}
		if layers = i.l.layersOf(pid); len(layers) == 0 {
			return -1
		}
		i.mu.Lock()
		i.layers = layers
		i.mu.Unlock()
	}
	for _, link := range layers {
		used += i.l.allocatedLayer(link)
	}
	return used
}

// layersOf returns the descriptors of a sentry for the unlinked files that back its
// writable layer, as paths in /proc.
func (l layout) layersOf(pid int) (out []string) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is valid
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, l.path(overlayDir)+"/") {
			out = append(out, link)
		}
	}
	return out
}

// allocatedLayer returns the allocated size of a file of the writable layer, in bytes. It
// returns 0 if the descriptor no longer refers to the layer, because the process has
// ended.
func (l layout) allocatedLayer(link string) int64 {
	var st unix.Stat_t
	to, err := os.Readlink(link)
	if err != nil || !strings.HasPrefix(to, l.path(overlayDir)+"/") || unix.Stat(link, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// StartMain implements brig.Instance.
func (i *instance) StartMain(ctx context.Context, linger bool) error {
	return i.l.sendRequest(ctx, request{Op: "begin", Linger: linger})
}

// WaitMain implements brig.Instance.
func (i *instance) WaitMain(ctx context.Context) error {
	return i.Guest.AwaitMain(ctx, func() error { return i.l.sendRequest(ctx, request{Op: "over"}) })
}

// Refusals implements brig.Refuser. It returns no counts for sandboxes with a
// gofer, sandboxes of older servers, and sandboxes whose shim was killed.
func (i *instance) Refusals(ctx context.Context) (*brig.Refusals, error) {
	select {
	case <-i.done:
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.denied, nil
	default:
	}
	if !i.order.Counted {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a, err := i.l.call(ctx, request{Op: "refused"})
	return a.Refused, err
}
