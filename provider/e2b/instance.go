package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
)

// instance is one sandbox in the cloud, managed by a supervisor inside the
// sandbox. It implements brig.Instance.
type instance struct {
	*guest.SupervisedInstance
	p          *Provider
	id         brig.ID
	sandbox    string
	remoteHost *guest.RemoteHost
}

var _ brig.Instance = (*instance)(nil)

// Handle implements brig.Instance.
func (i *instance) Handle() brig.Handle {
	b, err := json.Marshal(handleState{Sandbox: i.sandbox})
	if err != nil {
		b = nil // strings always marshal
	}
	return brig.Handle{Provider: Name, Version: 1, State: b}
}

// Notes implements brig.Instance.
func (i *instance) Notes() []string {
	notes := []string{"memory, processors and disk: those of the template, whatever was asked for"}
	if i.IsPlain() {
		notes = append(notes, "users: there is one account; a program that takes a mark off its environment outlives its timeout until the sandbox ends")
	}
	return notes
}

// Extend implements brig.Instance.
func (i *instance) Extend(ctx context.Context, lease time.Time) error {
	if err := i.p.api.timeoutError(ctx, i.sandbox, seconds(lease)); err != nil {
		return err
	}
	return i.SupervisedInstance.Extend(ctx, lease)
}

// Bind implements brig.Instance.
func (i *instance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	if err := i.p.api.timeoutError(ctx, i.sandbox, seconds(lease)); err != nil {
		return err
	}
	return i.SupervisedInstance.Bind(ctx, spec, lease)
}

// Destroy implements brig.Instance.
func (i *instance) Destroy(ctx context.Context) error {
	// First let the agent inside the sandbox report how the sandbox ended, if
	// possible.
	shortCtx, cancel := context.WithTimeout(ctx, agentExitTimeout)
	_ = i.SupervisedInstance.Destroy(shortCtx)
	cancel()
	if err := i.destroySandbox(ctx); err != nil {
		return err
	}
	i.MarkEnded(brig.Killed)
	return nil
}

// agentExitTimeout is the maximum time for the agent in the sandbox to exit.
const agentExitTimeout = 3 * time.Second

// destroySandbox ends the sandbox and closes the connection to it.
func (i *instance) destroySandbox(ctx context.Context) error {
	err := i.p.api.kill(ctx, i.sandbox)
	if i.remoteHost != nil {
		err = errors.Join(err, i.remoteHost.Close())
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(i.p.env.Dir, "machines", string(i.id)))
}

// Usage implements brig.Instance. The cloud samples the CPU load, and Brig
// integrates between the samples.
func (i *instance) Usage(ctx context.Context) (*brig.Usage, error) {
	all, err := i.p.api.metrics(ctx, i.sandbox)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, brig.Errorf(brig.Unimplemented, "the E2B service has not measured this sandbox yet")
	}
	last := all[len(all)-1]
	u := &brig.Usage{At: time.Unix(last.TimestampUnix, 0).UTC(), Memory: last.MemUsed, Cache: last.MemCache}
	for n := 1; n < len(all); n++ {
		interval := time.Duration(max(0, all[n].TimestampUnix-all[n-1].TimestampUnix)) * time.Second
		u.CPU += time.Duration(all[n].CPUUsedPct / 100 * float64(interval))
	}
	return u, nil
}

// Enforced implements brig.Instance.
func (i *instance) Enforced(context.Context) (map[brig.Area]brig.Enforcement, error) {
	if i.Exit() != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the machine has ended")
	}
	return guest.MarkObserved(enforces()), nil
}

// enforces returns the enforcement levels of a remote cloud. They are based on
// the cloud's own claims, which Brig cannot verify, and are therefore
// incomplete.
func enforces() map[brig.Area]brig.Enforcement {
	out := guest.ProcessEnforcement("the cloud's sandbox")
	claim := func(a brig.Area, how string) {
		e := brig.Enforcement{Level: brig.LevelBoundary, How: how, Help: "use a provider of your own"}
		e.Lower(brig.LevelGaps, "it is what the service says, and cannot be seen from here")
		out[a] = e
	}
	claim(brig.AreaIsolation, "the service makes a machine of its own for each sandbox")
	claim(brig.AreaTime, "the server's clock ends an execution; the service's timeout a sandbox, after the supervisor in it")
	for a, what := range map[brig.Area]string{brig.AreaMemory: "memory", brig.AreaCPUs: "processors", brig.AreaDisk: "disk"} {
		e := brig.Enforcement{Level: brig.LevelNone, How: "nothing", Help: "choose a template with less"}
		e.Lower(brig.LevelNone, "a sandbox has the %s of its template, whatever is asked for", what)
		out[a] = e
	}
	e := brig.Enforcement{Level: brig.LevelBoundary, How: "the service is told to allow no connections, and programs are in a network namespace without an interface", Help: "use a provider of your own"}
	e.Lower(brig.LevelGaps, "whether the service does is its affair")
	out[brig.AreaEgress] = e
	return out
}

// Capabilities implements brig.Provider.
func (p *Provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: Name, Isolation: "e2b", Enforces: enforces()}
}
