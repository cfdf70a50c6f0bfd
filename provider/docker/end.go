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

func running(c container.InspectResponse) bool { return c.State != nil && c.State.Running }

func isNotFound(err error) bool { return cerrdefs.IsNotFound(err) }

// admit has what the engine says of a container reach the instance.
func (p *Provider) admit(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := i.container
	if p.live[at] == nil {
		p.live[at] = map[*instance]bool{}
	}
	p.live[at][i] = true
}

func (p *Provider) dismiss(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := i.container
	if delete(p.live[at], i); len(p.live[at]) == 0 {
		delete(p.live, at)
	}
}

// watchMemory learns from the engine whose memory has run out. With runc the
// kernel kills one process; the machine goes with it, as it does everywhere
// else: what is left of it would be of no use and could not be told from whole.
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
					p.Log.Warn("the engine no longer tells of its containers", "err", err)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// outOfMemory ends a machine of which the engine has said so.
func (i *instance) outOfMemory() {
	i.mu.Lock()
	again := i.short
	i.short = true
	i.mu.Unlock()
	if again {
		return
	}
	close(i.oom)
	ctx, cancel := context.WithTimeout(i.p.life, 2*stopTime)
	defer cancel()
	if err := i.kill(ctx); err != nil {
		i.p.Log.Error("end a sandbox that is out of memory", "sandbox", i.id, "err", err)
	}
}

// tellTime is how long the engine has to tell that memory has run out, once
// the kernel's counter says that it was short. On a busy machine it needed more
// than three seconds.
const tellTime = 10 * time.Second

// ranOut reports whether a process that was killed was killed for its memory:
// a program that kills itself is not. Who never came to the limit was not.
func (i *instance) ranOut(ctx context.Context) bool {
	select {
	case <-i.oom:
		return true
	default:
	}
	if s, err := i.stats(ctx); err == nil && neverShort(s.MemoryStats) {
		return false
	}
	select {
	case <-i.oom:
		return true
	case <-i.done:
		return true // how it ended says whether that was why
	case <-time.After(tellTime):
		return false
	}
}

// neverShort reports whether a container has been far from its limit all along.
// On cgroup v2 the engine's counter of failures is oom in memory.events. On v1 it
// is memory.failcnt, which Linux 6.18 leaves at 0 whatever happens; but v1 has the
// most that was used, which then is the limit.
func neverShort(m container.MemoryStats) bool {
	return m.Limit > 0 && m.Failcnt == 0 && m.MaxUsage < m.Limit-m.Limit/8
}

// ending is how a machine ended, as it is written down once.
type ending struct {
	Code      int
	Reason    brig.ExitReason
	OOMKilled bool
	At        time.Time
}

// asked says why somebody has ended a machine, or is about to, and the exit code
// of a main program that it has outlived.
type asked struct {
	Reason brig.ExitReason
	Code   *int `json:",omitempty"`
}

// ask writes down why a machine is ended. The first reason stays.
func (f folder) ask(a asked) error {
	if _, err := os.Lstat(f.path(askedFile)); err == nil {
		return nil
	}
	err := f.write(askedFile, a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody has removed it all
	}
	return err
}

// watchEnd waits for the machine's end.
func (i *instance) watchEnd(ctx context.Context) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		got := i.p.api.ContainerWait(ctx, i.container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-got.Result:
			i.conclude(ctx)
			return
		case err := <-got.Error:
			if isNotFound(err) {
				i.conclude(ctx)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause): // an engine that starts again has its containers again
		}
	}
}

// conclude learns how the machine ended, of the engine and of who has asked
// for it, and writes it down.
func (i *instance) conclude(ctx context.Context) {
	i.mu.Lock()
	follows := i.order.Main && i.lease != nil
	i.mu.Unlock()
	if follows {
		select {
		case <-i.log:
		case <-time.After(guest.LostTime):
		}
	}
	var e ending
	if ok, err := i.f.read(endingFile, &e); err != nil || !ok {
		e = i.howItEnded(ctx)
		if err := i.f.write(endingFile, e); err != nil && !errors.Is(err, fs.ErrNotExist) {
			i.p.Log.Error("write down how a sandbox ended", "sandbox", i.id, "err", err)
		}
	}
	i.mu.Lock()
	i.exit = &brig.Exit{Code: e.Code, Reason: e.Reason, OOMKilled: e.OOMKilled, At: e.At}
	if i.lease != nil {
		i.lease.Stop()
	}
	i.mu.Unlock()
	i.p.dismiss(i)
	close(i.done)
	i.hangUp()
}

func (i *instance) howItEnded(ctx context.Context) ending {
	e := ending{Code: 137, At: time.Now().UTC()}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
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
	e.OOMKilled = e.OOMKilled || i.short
	i.mu.Unlock()
	var a asked
	wanted, _ := i.f.read(askedFile, &a)
	if !wanted {
		return e.judge(i.is(), known, nil)
	}
	return e.judge(i.is(), known, &a)
}

// judge finds the reason of an end. The exit code is the agent's word: that a
// lease is over is believed only when it is.
func (e ending) judge(o order, known bool, a *asked) ending {
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
