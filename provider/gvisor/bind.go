package gvisor

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
)

// Bind implements brig.Instance. It writes the sandbox's records before the
// shim releases the tether, so that a server crash leaves the sandbox either
// ephemeral or completely bound.
func (i *instance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	if spec.BuildRights {
		return errors.New("a started instance cannot get the rights of a build")
	}
	if len(spec.Volumes) > 0 {
		return errors.New("a started instance cannot mount volumes")
	}
	if spec.Name != "" && spec.Name != i.order.Hostname {
		if err := i.Guest.SetHostname(ctx, spec.Name); err != nil {
			return err
		}
	}
	o := i.order
	o.bind(spec, lease)
	if spec.Ephemeral {
		// Set the weight in the background: a run usually ends before its
		// cgroup weight matters.
		go func() { _ = i.p.shares.add(i, spec.Share, true) }()
	} else {
		if err := i.p.shares.add(i, spec.Share, true); err != nil {
			return err
		}
		if err := i.l.writeJSON(orderFile, o, false); err != nil {
			return err
		}
		failpoint.Hit("provider.reordered")
		if err := i.l.sendRequest(ctx, request{Op: "own", Lease: lease}); err != nil {
			return err
		}
		failpoint.Hit("provider.owned")
		i.closeTether()
	}
	// Assign only the fields that Bind changes: other goroutines read the
	// remaining fields.
	i.order.bind(spec, lease)
	i.Guest.Env, i.Guest.Limits = spec.Env, spec.Limits
	return nil
}

// bind sets the fields that Bind changes.
func (o *order) bind(spec brig.Spec, lease time.Time) {
	o.Env, o.Limits, o.Lease, o.Ephemeral, o.Blank, o.Share = spec.Env, spec.Limits, lease, spec.Ephemeral, false, spec.Share
	o.Carried = spec.Pausable && o.AgentAt != ""
	if spec.Name != "" {
		o.Hostname = spec.Name
	}
}

// closeTether closes the tether of a sandbox that is no longer ephemeral.
func (i *instance) closeTether() {
	if i.tether != nil {
		i.tether.Close()
		i.tether = nil
	}
	i.Guest.Grace = 0
}

func (i *instance) setWeight(w uint64) error {
	g, err := i.group()
	if g == nil || err != nil {
		return err
	}
	return g.SetWeight(w)
}

// group returns the sandbox's cgroup, or nil if there is none.
func (i *instance) group() (*cgroup.Group, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cgroup != nil {
		return i.cgroup, nil
	}
	name := i.cgroupName()
	if name == "" {
		return nil, nil
	}
	g, err := cgroup.Open(name)
	if err == nil {
		i.cgroup = g
	}
	return g, err
}

// Pause implements brig.Instance.
func (i *instance) Pause(ctx context.Context) error {
	return i.l.sendRequest(ctx, request{Op: "freeze"})
}

// Resume implements brig.Instance.
func (i *instance) Resume(ctx context.Context) error {
	return i.l.sendRequest(ctx, request{Op: "thaw"})
}
