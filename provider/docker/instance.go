package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/supervise"
)

// instance is one sandbox, as used by a server. It implements brig.Instance.
type instance struct {
	guest.Guest   // processes, files and trees of the sandbox
	guest.LogFile // output of the main program

	p         *Provider
	f         folder
	id        brig.ID
	container string // container ID at the engine
	done      chan struct{}
	oom       chan struct{} // closed when the engine reports that the container ran out of memory
	log       chan struct{} // closed when all output of the main program is in the journal
	lease     supervise.Lease

	connecting  guest.Attempts[*wire.Mux]
	sessions    sync.Mutex // guards the fields below
	session     *wire.Mux
	disconnects int // number of calls of disconnect

	mu              sync.Mutex // guards the fields below
	order           order
	exit            *brig.Exit
	outOfMemorySeen bool          // memory ran out, and oom is closed
	held            *brig.Command // the main program, if it has not started
}

var _ brig.Instance = (*instance)(nil)

func newInstance(p *Provider, id brig.ID, o order) *instance {
	f := p.folder(id)
	return &instance{
		LogFile: guest.LogFile(f.path(logFile)), p: p, f: f, id: id, container: o.Container, order: o,
		done: make(chan struct{}), oom: make(chan struct{}), log: make(chan struct{}),
	}
}

// currentOrder returns the configuration with which the sandbox was created or
// bound.
func (i *instance) currentOrder() order {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.order
}

// setConfig stores the sandbox's new configuration, and restarts its lease
// timer.
func (i *instance) setConfig(o order) error {
	if err := i.f.writeOrder(o); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.order = o
	i.lease.Renew(time.Until(o.Lease), false)
	return nil
}

// attach starts to supervise the sandbox if it is running.
func (i *instance) attach(runs bool) {
	o := i.currentOrder()
	i.Guest = guest.Guest{Dial: i.dial, Env: o.Env, Limits: i.p.agentLimits(o.Limits), Done: i.done, Remote: true}
	if !runs {
		if o.Main {
			i.copyLog(i.p.life, false)
		}
		close(i.log)
		i.determineEnd(i.p.life)
		return
	}
	i.lease.Begin(time.Until(o.Lease), false, i.expire)
	i.p.register(i)
	go func() {
		defer close(i.log)
		if o.Main {
			i.copyLog(i.p.life, true)
		}
	}()
	go i.watchEnd(i.p.life)
}

// agentLimits returns the limits that the agent sets. With runc, the agent sets
// no limits on processes and open files, because the host's kernel counts a
// user's processes across all containers, and no process can raise a limit
// again. Instead, these limits apply to the whole container, including the
// agent.
func (p *Provider) agentLimits(l brig.Limits) brig.Limits {
	if !p.gvisor {
		l.Processes, l.OpenFiles = 0, 0
	}
	return l
}

// checkLimits rejects limits that are too low for the agent.
func (p *Provider) checkLimits(l brig.Limits) error {
	if !p.gvisor && l.OpenFiles < agentFiles {
		return brig.InvalidField("limits.open_files", "%d is too low for a sandbox of the docker provider", l.OpenFiles).
			WithHint("give at least %d", agentFiles)
	}
	return nil
}

// startTimeout is the maximum time until the first response of an agent.
const startTimeout = 60 * time.Second

// launch waits until the agent responds, and makes it run the main program.
func (i *instance) launch(ctx context.Context, main *brig.Command) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := i.Guest.Ping(ctx)
	if err == nil && main != nil {
		if err = i.Guest.RunMain(ctx, *main, i.currentOrder().Lingers); errors.Is(err, guest.ErrLost) {
			// If the program ends immediately, the sandbox ends before the
			// response arrives.
			select {
			case <-i.done:
				return nil
			case <-time.After(guest.LostTimeout):
			}
		}
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if exit := i.Exit(); exit != nil {
		if exit.OOMKilled {
			return brig.Errorf(brig.CreationFailed, "the sandbox used more memory than it may while it started").WithHint("raise limits.memory").Because(err)
		}
		err = fmt.Errorf("%w; it ended with code %d", err, exit.Code)
	}
	return creationError(err)
}

// StartMain implements brig.Instance. The held program exists only in this
// server's memory. If the server dies before the start, the program is lost.
func (i *instance) StartMain(ctx context.Context, linger bool) error {
	i.mu.Lock()
	main := i.held
	i.held = nil
	i.mu.Unlock()
	if main == nil {
		return nil
	}
	if o := i.currentOrder(); linger {
		o.Lingers = true
		if err := i.setConfig(o); err != nil {
			return err
		}
	}
	return i.launch(ctx, main)
}

// WaitMain implements brig.Instance.
func (i *instance) WaitMain(ctx context.Context) error {
	return i.Guest.AwaitMain(ctx, func() error {
		_, err := i.Guest.WaitMain(ctx)
		return err
	})
}

// logRelay logs a message from a session's relay, or from the engine about the
// relay.
func (i *instance) logRelay(text string) {
	i.p.Log.Warn("message of a sandbox's session", "sandbox", i.id, "message", brig.Clip(text, 400))
}

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(i.container)
	if err != nil {
		b = nil // strings always marshal
	}
	return brig.Handle{Provider: Name, Version: orderVersion, State: b}
}

// Notes implements brig.Instance.
func (i *instance) Notes() []string {
	return slices.Concat(i.p.enforcementNotes(i.currentOrder().Limits), i.currentOrder().Notes)
}

// Done implements brig.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Exit implements brig.Instance.
func (i *instance) Exit() *brig.Exit {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.exit
}

// Exec implements brig.Instance.
func (i *instance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res, err := i.Guest.Exec(ctx, id, cmd, sio)
	switch {
	case err == nil && res.Signal == "SIGKILL" && i.wasKilledForMemory(context.WithoutCancel(ctx)):
		// The kernel has killed only this process. The whole sandbox ends with
		// it.
		res.Done = false
		select {
		case <-i.done:
		case <-time.After(stopTimeout):
		}
	case !errors.Is(err, guest.ErrLost):
		return res, err
	}
	var cause error
	switch {
	case err == nil:
		if !guest.WaitSelfEnd(ctx, res, i.done) {
			err = i.Stop(context.WithoutCancel(ctx), 0, brig.Killed)
		}
	case errors.Is(err, guest.ErrNotReached):
		guest.WaitSelfEnd(ctx, res, i.done)
	default:
		cause = i.Guest.EndReason(ctx, id, res, err)
	}
	if cause != nil {
		// The agent is stuck or was tampered with, so the end of the process
		// tree cannot be confirmed. To be safe, the server ends the sandbox.
		i.p.Log.WarnContext(ctx, "ending a sandbox whose agent stopped working", "sandbox", i.id, "exec", id, "reason", brig.AgentLost, "err", cause)
		err = errors.Join(err, i.Stop(context.WithoutCancel(ctx), 0, brig.AgentLost))
	}
	if known, verdict := guest.SetLostResult(ctx, res, i.Exit(), err); known {
		return res, verdict
	}
	if errors.Is(err, guest.ErrNotReached) {
		return res, engineError(err)
	}
	if cause == nil && err != nil {
		return res, guest.BrokenConnectionError(err)
	}
	return res, err
}

// Start implements brig.Instance.
func (i *instance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	return i.Guest.StartCarried(ctx, id, cmd, s)
}

// Keep implements brig.Instance. The agent keeps the process's descriptors. The
// server keeps the note, which the guest must not see.
func (i *instance) Keep(ctx context.Context, p brig.Process, text []byte) error {
	return i.Guest.KeepCarried(ctx, p, text, i.f.notebook().Put)
}

// KeptProcesses implements brig.Instance.
func (i *instance) KeptProcesses(ctx context.Context) ([]brig.KeptProcess, error) {
	return i.f.notebook().KeptProcesses(ctx, &i.Guest, func(id string) {
		i.p.Log.WarnContext(ctx, "a process ended while no server ran", "sandbox", i.id, "exec", id)
	})
}

// Dial implements brig.Instance.
func (i *instance) Dial(ctx context.Context, port int) (net.Conn, error) {
	return i.Guest.DialPort(ctx, port)
}

// Bind implements brig.Instance.
func (i *instance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	o := i.currentOrder()
	o.Env, o.Limits, o.Lease, o.Ephemeral = spec.Env, spec.Limits, lease, spec.Ephemeral
	if spec.Name != "" && spec.Name != o.Hostname {
		if i.p.gvisor {
			if err := i.Guest.SetHostname(ctx, spec.Name); err != nil {
				return err
			}
			o.Hostname = spec.Name
		} else {
			// Only root on the host could change the hostname, and the engine
			// has no request for this.
			o.Notes = append(slices.Clone(o.Notes), "its host name is what it was before it was claimed")
		}
	}
	if err := i.setConfig(o); err != nil {
		return err
	}
	i.Guest.Env, i.Guest.Limits = o.Env, i.p.agentLimits(o.Limits)
	return i.Guest.SetLease(ctx, time.Until(lease)+leaseSlack, !spec.Ephemeral)
}

// Pause implements brig.Instance.
func (i *instance) Pause(ctx context.Context) error {
	_, err := i.p.api.ContainerPause(ctx, i.container, client.ContainerPauseOptions{})
	return i.ignoreUnchanged(ctx, err, true)
}

// Resume implements brig.Instance.
func (i *instance) Resume(ctx context.Context) error {
	_, err := i.p.api.ContainerUnpause(ctx, i.container, client.ContainerUnpauseOptions{})
	return i.ignoreUnchanged(ctx, err, false)
}

// ignoreUnchanged ignores the error of a change to a state that the container
// already has.
func (i *instance) ignoreUnchanged(ctx context.Context, err error, frozen bool) error {
	if err == nil {
		return nil
	}
	look, lookErr := i.p.api.ContainerInspect(ctx, i.container, client.ContainerInspectOptions{})
	switch {
	case lookErr != nil:
		return engineError(errors.Join(err, lookErr))
	case !isRunning(look.Container):
		return errEnded
	case look.Container.State.Paused == frozen:
		return nil
	}
	return engineError(err)
}

// Usage implements brig.Instance.
func (i *instance) Usage(ctx context.Context) (*brig.Usage, error) {
	s, err := i.stats(ctx)
	if err != nil {
		return nil, err
	}
	cache, ok := s.MemoryStats.Stats["file"] // cgroup v2
	if !ok {
		cache = s.MemoryStats.Stats["cache"]
	}
	return &brig.Usage{
		At: time.Now().UTC(), CPU: time.Duration(s.CPUStats.CPUUsage.TotalUsage),
		Memory: int64(s.MemoryStats.Usage), Cache: int64(min(cache, s.MemoryStats.Usage)),
	}, nil
}

func (i *instance) stats(ctx context.Context) (*container.StatsResponse, error) {
	r, err := i.p.api.ContainerStats(ctx, i.container, client.ContainerStatsOptions{})
	if err != nil {
		return nil, engineError(err)
	}
	defer r.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return nil, engineError(err)
	}
	return &s, nil
}

// Extend implements brig.Instance.
func (i *instance) Extend(ctx context.Context, lease time.Time) error {
	select {
	case <-i.done:
		return errEnded
	default:
	}
	o := i.currentOrder()
	o.Lease = lease
	if err := i.setConfig(o); err != nil {
		return err
	}
	return i.Guest.SetLease(ctx, time.Until(lease)+leaseSlack, false)
}

// stopTimeout is the maximum time for the engine to end a container.
const stopTimeout = 10 * time.Second

// expire ends a sandbox whose lease has expired.
func (i *instance) expire() {
	if err := i.Stop(i.p.life, 0, brig.LeaseExpired); err != nil {
		i.p.Log.Error("failed to end a sandbox whose lease has expired", "sandbox", i.id, "err", err)
	}
}

// Stop implements brig.Instance.
func (i *instance) Stop(ctx context.Context, grace time.Duration, reason brig.ExitReason) error {
	select {
	case <-i.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace+2*stopTimeout)
	defer cancel()
	a := endRequest{Reason: reason}
	if reason == brig.Exited && i.currentOrder().Lingers {
		a.Code = i.mainCode(ctx)
	}
	if err := i.f.writeEndRequest(a); err != nil {
		return err
	}
	if grace > 0 {
		// Ignore the error, because remaining processes are killed below.
		_ = i.Guest.Terminate(ctx, grace)
	}
	return i.kill(ctx)
}

// mainCode returns the exit code of a main program that ended before its
// sandbox. It returns nil if the program has not ended, or the agent does not
// respond.
func (i *instance) mainCode(ctx context.Context) *int {
	ctx, cancel := context.WithTimeout(ctx, guest.LostTimeout)
	defer cancel()
	code, err := i.Guest.WaitMain(ctx)
	if err != nil {
		return nil
	}
	return &code
}

// kill makes the engine kill the container, and waits until its end has been
// recorded.
func (i *instance) kill(ctx context.Context) error {
	_, err := i.p.api.ContainerKill(ctx, i.container, client.ContainerKillOptions{Signal: "SIGKILL"})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // already ended
		err = nil
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return engineError(errors.Join(err, context.Cause(ctx)))
	case <-time.After(stopTimeout):
	}
	// An engine that cannot kill the container may still be able to remove it.
	return errors.Join(engineError(errors.Join(err, errors.New("the container does not end"))), i.remove(ctx))
}

// remove makes the engine remove the container.
func (i *instance) remove(ctx context.Context) error {
	_, err := i.p.api.ContainerRemove(ctx, i.container, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // already removed, or being removed
		return nil
	}
	return engineError(err)
}

// Destroy implements brig.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*stopTimeout)
	defer cancel()
	err := i.Stop(ctx, 0, brig.Killed)
	err = errors.Join(err, i.remove(ctx))
	if err != nil {
		return err // keep the directory, because it identifies the container
	}
	return os.RemoveAll(i.f.dir)
}

// rollback cleans up after a failed Create.
func (p *Provider) rollback(ctx context.Context, f folder, o order) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stopTimeout)
	defer cancel()
	var err error
	if o.Container != "" {
		err = newInstance(p, "", o).remove(ctx)
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}
