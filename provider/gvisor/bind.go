package gvisor

import (
	"context"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
)

// Bind implements brig.Instance. What the sandbox's records need is written
// before the shim lets go of the tether, so that a server that dies meanwhile
// leaves either an ephemeral sandbox or a whole one of its own.
func (i *instance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	o := i.order
	o.Env, o.Limits, o.Lease, o.Ephemeral, o.Blank = spec.Env, spec.Limits, lease, spec.Ephemeral, false
	if spec.Name != "" && spec.Name != o.Hostname {
		if err := i.Guest.Name(ctx, spec.Name); err != nil {
			return err
		}
		o.Hostname = spec.Name
	}
	if spec.Ephemeral {
		// A one-shot is mostly over before its weight could matter.
		go func() { _ = i.weigh(cgroup.NormalWeight) }()
	} else {
		if err := i.weigh(cgroup.NormalWeight); err != nil {
			return err
		}
		if err := i.l.writeJSON(orderFile, o, false); err != nil {
			return err
		}
		failpoint.Hit("provider.reordered")
		if err := i.l.tell(ctx, request{Op: "own", Lease: lease}); err != nil {
			return err
		}
		failpoint.Hit("provider.owned")
		i.untie()
	}
	i.order, i.Guest.Env, i.Guest.Limits = o, o.Env, o.Limits
	return nil
}

// untie closes the tether of a sandbox that has become its own.
func (i *instance) untie() {
	if i.tether != nil {
		i.tether.Close()
		i.tether = nil
	}
	i.Guest.Grace = 0
}

func (i *instance) weigh(w uint64) error {
	g, err := i.group()
	if g == nil || err != nil {
		return err
	}
	return g.SetWeight(w)
}

// group returns the sandbox's cgroup, nil where there is none.
func (i *instance) group() (*cgroup.Group, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := i.p.cgroup(i.id)
	if i.cgroup != nil || name == "" {
		return i.cgroup, nil
	}
	g, err := cgroup.Open(name)
	if err == nil {
		i.cgroup = g
	}
	return g, err
}

// Freeze implements brig.Instance.
func (i *instance) Freeze(ctx context.Context) error { return i.l.tell(ctx, request{Op: "freeze"}) }

// Thaw implements brig.Instance.
func (i *instance) Thaw(ctx context.Context) error { return i.l.tell(ctx, request{Op: "thaw"}) }
