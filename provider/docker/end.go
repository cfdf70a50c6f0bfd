package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
)

func isRunning(c container.InspectResponse) bool { return c.State != nil && c.State.Running }

func isNotFound(err error) bool { return cerrdefs.IsNotFound(err) }

// register registers an instance for the engine's events about its container.
func (p *Provider) register(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := i.container
	if p.live[at] == nil {
		p.live[at] = map[*instance]bool{}
	}
	p.live[at][i] = true
}

func (p *Provider) unregister(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := i.container
	if delete(p.live[at], i); len(p.live[at]) == 0 {
		delete(p.live, at)
	}
}

// watchMemory receives the engine's out-of-memory events. With runc, the kernel
// kills only one process. The provider then ends the whole sandbox, as other
// providers do, because clients could not detect that a process is missing.
func (p *Provider) watchMemory(ctx context.Context) {
	for ctx.Err() == nil {
		got := p.api.Events(ctx, client.EventsListOptions{
			Filters: client.Filters{}.Add("type", string(events.ContainerEventType)).Add("event", string(events.ActionOOM)).Add("label", labelInstance+"="+p.Instance),
		})
		for open := true; open; {
			select {
			case m := <-got.Messages:
				p.mu.Lock()
				for i := range p.live[m.Actor.ID] {
					go i.outOfMemory()
				}
				p.mu.Unlock()
			case err := <-got.Err:
				if open = false; ctx.Err() == nil {
					p.Log.Warn("the Docker Engine no longer sends events", "err", err)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// outOfMemory ends a sandbox after an out-of-memory event.
func (i *instance) outOfMemory() {
	i.mu.Lock()
	again := i.outOfMemorySeen
	i.outOfMemorySeen = true
	i.mu.Unlock()
	if again {
		return
	}
	close(i.oom)
	ctx, cancel := context.WithTimeout(i.p.life, 2*stopTimeout)
	defer cancel()
	if err := i.kill(ctx); err != nil {
		i.p.Log.Error("failed to end a sandbox that ran out of memory", "sandbox", i.id, "err", err)
	}
}

// oomEventTimeout is the maximum delay of the engine's out-of-memory event after
// the kernel's counter shows a shortage. Delays of more than three seconds were
// observed on a busy host.
const oomEventTimeout = 10 * time.Second

// wasKilledForMemory reports whether a process was killed because memory ran out.
// It returns false for a program that killed itself, and in a container that
// never reached its limit.
func (i *instance) wasKilledForMemory(ctx context.Context) bool {
	select {
	case <-i.oom:
		return true
	default:
	}
	if s, err := i.stats(ctx); err == nil && stayedBelowLimit(s.MemoryStats) {
		return false
	}
	select {
	case <-i.oom:
		return true
	case <-i.done:
		return true // the sandbox's exit will show the reason
	case <-time.After(oomEventTimeout):
		return false
	}
}

// stayedBelowLimit reports whether a container has always used far less than its
// memory limit. On cgroup v2, the engine's failure counter is oom in
// memory.events. On v1, it is memory.failcnt, which is always 0 with Linux
// 6.18. However, v1 reports the maximum usage, which equals the limit if memory
// ran out.
func stayedBelowLimit(m container.MemoryStats) bool {
	return m.Limit > 0 && m.Failcnt == 0 && m.MaxUsage < m.Limit-m.Limit/8
}

// ending is the stored record of how a sandbox ended.
type ending brig.Exit

// endRequest contains the reason why a server ends a sandbox, and the exit code
// of a main program that ended before its sandbox.
type endRequest struct {
	Reason brig.ExitReason
	Code   *int `json:",omitempty"`
}

// writeEndRequest stores the reason why a sandbox is ended. It never replaces
// an earlier reason.
func (f folder) writeEndRequest(a endRequest) error {
	if _, err := os.Lstat(f.path(endRequestFile)); err == nil {
		return nil
	}
	err := f.write(endRequestFile, a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another server has removed the directory
	}
	return err
}

// watchEnd waits for the sandbox's end.
func (i *instance) watchEnd(ctx context.Context) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		got := i.p.api.ContainerWait(ctx, i.container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-got.Result:
			i.determineEnd(ctx)
			return
		case err := <-got.Error:
			if isNotFound(err) {
				i.determineEnd(ctx)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause): // reconnect: containers survive a restart of the engine
		}
	}
}

// determineEnd determines how the sandbox ended, from the engine and the stored
// endRequest, and stores the result.
func (i *instance) determineEnd(ctx context.Context) {
	select {
	case <-i.log:
	case <-time.After(guest.LostTimeout):
	}
	var e ending
	if ok, err := i.f.read(endingFile, &e); err != nil || !ok {
		e = i.readExit(ctx)
		if err := i.f.write(endingFile, e); err != nil && !errors.Is(err, fs.ErrNotExist) {
			i.p.Log.Error("failed to record how a sandbox ended", "sandbox", i.id, "err", err)
		}
	}
	i.mu.Lock()
	i.exit = (*brig.Exit)(&e)
	i.mu.Unlock()
	i.lease.End()
	i.p.unregister(i)
	close(i.done)
	i.disconnect()
}

func (i *instance) readExit(ctx context.Context) ending {
	e := ending{Code: 137, At: time.Now().UTC()}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	look, err := i.p.api.ContainerInspect(ctx, i.container, client.ContainerInspectOptions{})
	known := err == nil && look.Container.State != nil
	if known {
		s := look.Container.State
		e.Code, e.OOMKilled = s.ExitCode, s.OOMKilled
		if at, err := time.Parse(time.RFC3339Nano, s.FinishedAt); err == nil && at.Year() > 1 {
			e.At = at.UTC()
		}
	}
	i.mu.Lock()
	e.OOMKilled = e.OOMKilled || i.outOfMemorySeen
	i.mu.Unlock()
	var a endRequest
	requested, _ := i.f.read(endRequestFile, &a)
	if !requested {
		return e.exitReason(i.currentOrder(), known, nil)
	}
	return e.exitReason(i.currentOrder(), known, &a)
}

// exitReason determines why a sandbox ended. The exit code comes from the
// untrusted agent, so an exit code for an expired lease is accepted only if
// the lease has expired.
func (e ending) exitReason(o order, known bool, a *endRequest) ending {
	e.Reason = brig.Crashed
	switch {
	case e.OOMKilled:
		e.Reason, e.Code = brig.OutOfMem, 137
		return e
	case a != nil:
		if e.Reason = a.Reason; a.Code != nil {
			e.Code = *a.Code
		}
	case known && e.Code == wire.ExitLease && !e.At.Before(o.Lease):
		e.Reason, e.Code = brig.LeaseExpired, 0
	case known && e.Code == wire.ExitTether && o.Ephemeral:
		e.Reason, e.Code = brig.HungUp, 0
	case known && o.Main && !o.Lingers:
		e.Reason = brig.Exited
	}
	if e.Code == 0 && e.Reason != brig.Exited {
		e.Code = 137
	}
	return e
}
