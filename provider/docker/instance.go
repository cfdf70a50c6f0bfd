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
)

// instance is one sandbox, seen from a server. It implements brig.Instance.
type instance struct {
	guest.Guest // of its processes, files and trees

	p         *Provider
	f         folder
	id        brig.ID
	container string // its id at the engine
	done      chan struct{}
	oom       chan struct{} // closed when the engine says that its memory ran out
	log       chan struct{} // closed when all of the main program's output is in the journal

	sessions sync.Mutex // guards the field below
	session  *wire.Mux

	mu    sync.Mutex // guards the fields below
	order order
	exit  *brig.Exit
	lease *time.Timer
	short bool          // of memory: oom is closed
	held  *brig.Command // the main program that has not begun
}

var _ brig.Instance = (*instance)(nil)

func newInstance(p *Provider, id brig.ID, o order) *instance {
	return &instance{p: p, f: p.folder(id), id: id, container: o.Container, order: o, done: make(chan struct{}), oom: make(chan struct{}), log: make(chan struct{})}
}

// is returns what the machine was made as, or bound to.
func (i *instance) is() order {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.order
}

// become writes down what the machine is from now on, and when its lease ends.
func (i *instance) become(o order) error {
	if err := i.f.writeOrder(o); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.order = o
	i.lease.Reset(time.Until(o.Lease))
	return nil
}

// attach begins to look after the machine, if it runs.
func (i *instance) attach(runs bool) {
	o := i.is()
	i.Guest = guest.Guest{Dial: i.dial, Env: o.Env, Limits: i.p.inside(o.Limits)}
	if !runs {
		if o.Main {
			i.copyLog(i.p.life, false)
		}
		i.conclude(i.p.life)
		return
	}
	i.mu.Lock()
	i.lease = time.AfterFunc(time.Until(o.Lease), i.expire)
	i.mu.Unlock()
	i.p.admit(i)
	if o.Main {
		go func() {
			defer close(i.log)
			i.copyLog(i.p.life, true)
		}()
	}
	go i.watchEnd(i.p.life)
}

// inside are the limits that the agent sets. With runc it sets none: the host's
// kernel counts the processes of a user over all containers, and lets nobody
// have a limit back. So the container has them, and the agent with it.
func (p *Provider) inside(l brig.Limits) brig.Limits {
	if !p.gvisor {
		l.Processes, l.OpenFiles = 0, 0
	}
	return l
}

// fits refuses limits that the agent itself could not live within.
func (p *Provider) fits(l brig.Limits) error {
	if !p.gvisor && l.OpenFiles < agentFiles {
		return brig.InvalidField("limits.open_files", "%d is too low for a sandbox of the docker provider", l.OpenFiles).
			WithHint("give at least %d", agentFiles)
	}
	return nil
}

// startTime is how long an agent may take until it answers.
const startTime = 60 * time.Second

// launch waits for the agent and has it run the main program.
func (i *instance) launch(ctx context.Context, main *brig.Command) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err := i.Guest.Ping(ctx)
	if err == nil && main != nil {
		if err = i.Guest.Main(ctx, *main, i.is().Lingers); errors.Is(err, guest.ErrLost) {
			// One that ends at once takes the machine with it, and the answer.
			select {
			case <-i.done:
				return nil
			case <-time.After(guest.LostTime):
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

// Begin implements brig.Instance. A held program is this server's alone: one
// that dies before it begins takes it along.
func (i *instance) Begin(ctx context.Context, linger bool) error {
	i.mu.Lock()
	main := i.held
	i.held = nil
	i.mu.Unlock()
	if main == nil {
		return nil
	}
	if o := i.is(); linger {
		o.Lingers = true
		if err := i.become(o); err != nil {
			return err
		}
	}
	return i.launch(ctx, main)
}

// overAgain is how long it takes until an agent that could not be asked is asked
// again.
const overAgain = time.Second

// Over implements brig.Instance.
func (i *instance) Over(ctx context.Context) error {
	for {
		_, err := i.Guest.Over(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-i.done:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(overAgain):
		}
	}
}

// said takes what a session's relay, or the engine, says of it.
func (i *instance) said(text string) {
	i.p.Log.Warn("of a sandbox's session", "sandbox", i.id, "says", brig.Clip(text, 400))
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
func (i *instance) Notes() []string { return slices.Concat(i.p.notes(i.is().Limits), i.is().Notes) }

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
	case err == nil && res.Signal == "SIGKILL" && i.ranOut(context.WithoutCancel(ctx)):
		// The kernel has killed the one process: the machine goes with it.
		res.Done = false
		select {
		case <-i.done:
		case <-time.After(stopTime):
		}
	case !errors.Is(err, guest.ErrLost):
		return res, err
	}
	// Where it was not asked, nothing has begun that the machine would have to end
	// for.
	if !guest.EndsItself(ctx, res, i.done) && !errors.Is(err, guest.ErrUnasked) {
		// The agent is stuck or was tampered with, and nothing says that the
		// process tree is gone. The way of making sure is the machine.
		err = errors.Join(err, i.Stop(context.WithoutCancel(ctx), 0, brig.Killed))
	}
	if known, verdict := guest.Verdict(ctx, res, i.Exit(), err); known {
		return res, verdict
	}
	if errors.Is(err, guest.ErrUnasked) {
		return res, engineError(err)
	}
	return res, err
}

// Dial implements brig.Instance.
func (i *instance) Dial(ctx context.Context, port int) (net.Conn, error) {
	return i.Guest.Port(ctx, port)
}

// Bind implements brig.Instance.
func (i *instance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	o := i.is()
	o.Env, o.Limits, o.Lease, o.Ephemeral = spec.Env, spec.Limits, lease, spec.Ephemeral
	if spec.Name != "" && spec.Name != o.Hostname {
		if i.p.gvisor {
			if err := i.Guest.Name(ctx, spec.Name); err != nil {
				return err
			}
			o.Hostname = spec.Name
		} else {
			// Only the host's root may, and no engine does it.
			o.Notes = append(slices.Clone(o.Notes), "its host name is what it was before it was claimed")
		}
	}
	if err := i.become(o); err != nil {
		return err
	}
	i.Guest.Env, i.Guest.Limits = o.Env, i.p.inside(o.Limits)
	return i.Guest.Lease(ctx, time.Until(lease)+behind, !spec.Ephemeral)
}

// Freeze implements brig.Instance.
func (i *instance) Freeze(ctx context.Context) error {
	_, err := i.p.api.ContainerPause(ctx, i.container, client.ContainerPauseOptions{})
	return i.settled(ctx, err, true)
}

// Thaw implements brig.Instance.
func (i *instance) Thaw(ctx context.Context) error {
	_, err := i.p.api.ContainerUnpause(ctx, i.container, client.ContainerUnpauseOptions{})
	return i.settled(ctx, err, false)
}

// settled makes what was so already no error.
func (i *instance) settled(ctx context.Context, err error, frozen bool) error {
	if err == nil {
		return nil
	}
	look, lookErr := i.p.api.ContainerInspect(ctx, i.container, client.ContainerInspectOptions{})
	switch {
	case lookErr != nil:
		return engineError(errors.Join(err, lookErr))
	case !running(look.Container):
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
	o := i.is()
	o.Lease = lease
	if err := i.become(o); err != nil {
		return err
	}
	return i.Guest.Lease(ctx, time.Until(lease)+behind, false)
}

// stopTime is how long the engine may take to end a container.
const stopTime = 10 * time.Second

// expire ends a machine whose lease is over.
func (i *instance) expire() {
	if err := i.Stop(i.p.life, 0, brig.LeaseExpired); err != nil {
		i.p.Log.Error("end a sandbox whose lease is over", "sandbox", i.id, "err", err)
	}
}

// Stop implements brig.Instance.
func (i *instance) Stop(ctx context.Context, grace time.Duration, why brig.ExitReason) error {
	select {
	case <-i.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace+2*stopTime)
	defer cancel()
	a := asked{Reason: why}
	if why == brig.Exited && i.is().Lingers {
		a.Code = i.mainCode(ctx)
	}
	if err := i.f.ask(a); err != nil {
		return err
	}
	if grace > 0 {
		// Whether it went well does not matter: what is left is killed.
		_ = i.Guest.Terminate(ctx, grace)
	}
	return i.kill(ctx)
}

// mainCode is how a main program has ended that the machine has outlived, nil if
// it has not, or cannot be asked for.
func (i *instance) mainCode(ctx context.Context) *int {
	ctx, cancel := context.WithTimeout(ctx, guest.LostTime)
	defer cancel()
	code, err := i.Guest.Over(ctx)
	if err != nil {
		return nil
	}
	return &code
}

// kill has the engine end the container, and waits until it is known to have.
func (i *instance) kill(ctx context.Context) error {
	_, err := i.p.api.ContainerKill(ctx, i.container, client.ContainerKillOptions{Signal: "SIGKILL"})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // it has ended by itself
		err = nil
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return engineError(errors.Join(err, context.Cause(ctx)))
	case <-time.After(stopTime):
	}
	// An engine that cannot kill may still be able to remove.
	return errors.Join(engineError(errors.Join(err, errors.New("the container does not end"))), i.remove(ctx))
}

// remove has the engine remove the container.
func (i *instance) remove(ctx context.Context) error {
	_, err := i.p.api.ContainerRemove(ctx, i.container, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) { // gone, or going
		return nil
	}
	return engineError(err)
}

// Destroy implements brig.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*stopTime)
	defer cancel()
	err := i.Stop(ctx, 0, brig.Killed)
	err = errors.Join(err, i.remove(ctx))
	if err != nil {
		return err // the folder stays: by it the container is found
	}
	return os.RemoveAll(i.f.dir)
}

// discard undoes a Create that failed.
func (p *Provider) discard(ctx context.Context, f folder, o order) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stopTime)
	defer cancel()
	var err error
	if o.Container != "" {
		err = newInstance(p, "", o).remove(ctx)
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}
