package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/keylock"
)

// boxIdleTimeout is the default time after which an unused box ends.
const boxIdleTimeout = 5 * time.Minute

// The labels by which the next server finds boxes. Callers must not set these labels, because the
// server would run a tenant's tools, with their secrets, in such a sandbox.
const (
	toolLabelPrefix  = "brig.tool."
	labelReady       = toolLabelPrefix + "ready"       // the box's key, set once its packages are installed
	labelKind        = toolLabelPrefix + "kind"        // the kind of the box's setup
	labelFingerprint = toolLabelPrefix + "fingerprint" // the fingerprint of the box's setup
)

// box is a sandbox in which a tenant's tools run one at a time. The files of
// one tool are visible to the next tool with the same setup.
type box struct {
	id          brig.ID
	name        string
	tenant      string
	kind        brig.ToolKind
	fingerprint string
	key         string
	reused      bool
	stale       bool // the box ends after its current call
	adopted     bool // an earlier server created it, and its programs may still run
}

// boxes holds the boxes of all tenants.
type boxes struct {
	mu   sync.Mutex // guards the fields below
	idle []*box
	busy []*box

	layers        keylock.Mutex // locks the layers that are being built, by digest
	negativeCache negativeCache // the layers that could not be built, by digest
}

// acquire takes a box for a call, or returns nil if there is no suitable box. It also returns idle
// boxes with an older fingerprint of the setup, which the caller must end. Busy boxes with an older
// fingerprint end after their calls.
func (b *boxes) acquire(e *tools, tenant string, j *toolJob) (found *box, old []*box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var idle []*box
	for _, x := range b.idle {
		in := e.instance(x.id)
		switch {
		case in == nil || hasEnded(in):
			// The box's lease has ended, or a caller has removed the box.
		case x.tenant != tenant || x.kind != j.setup.Kind:
			idle = append(idle, x)
		case x.fingerprint != j.fingerprint:
			old = append(old, x)
		case x.key == j.key && found == nil:
			found = x
		default:
			idle = append(idle, x)
		}
	}
	b.idle = idle
	for _, x := range b.busy {
		x.stale = x.stale || x.tenant == tenant && x.kind == j.setup.Kind && x.fingerprint != j.fingerprint
	}
	if found != nil {
		found.reused = true
		b.busy = append(b.busy, found)
	}
	return found, old
}

// release returns a box to the idle boxes, and reports whether it may be used
// again.
func (b *boxes) release(x *box, reusable bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = slices.DeleteFunc(b.busy, func(y *box) bool { return y == x })
	if !reusable || x.stale {
		return false
	}
	b.idle = append(b.idle, x)
	return true
}

// removeIdle removes and returns a tenant's idle boxes for a kind of setup,
// which the caller must end. Busy boxes end after their calls.
func (b *boxes) removeIdle(tenant string, kind brig.ToolKind) (out []*box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = slices.DeleteFunc(b.idle, func(x *box) bool {
		matches := x.tenant == tenant && x.kind == kind
		if matches {
			out = append(out, x)
		}
		return matches
	})
	for _, x := range b.busy {
		x.stale = x.stale || x.tenant == tenant && x.kind == kind
	}
	return out
}

// acquireBox returns an idle or a new box for a call. If the call's packages
// cannot be installed, the ProgramError is the call's result.
func (ts *tools) acquireBox(ctx context.Context, v *call, j *toolJob) (*heldBox, *brig.ProgramError, error) {
	for {
		found, old := ts.boxes.acquire(ts, v.actor.Tenant, j)
		for _, x := range old {
			ts.endBox(ctx, x)
		}
		if found == nil {
			break
		}
		if ts.killLeftoverPrograms(ctx, found, j) {
			if r, err := ts.openBox(ctx, found, j); err == nil {
				return r, nil, nil
			}
		}
		// The box's lease has just ended, or the box is unusable for another reason, so try another
		// box.
		ts.releaseBox(ctx, found, false)
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
	}
	created, failed, err := ts.makeBox(ctx, v, j)
	if failed != nil || err != nil {
		return nil, failed, err
	}
	r, err := ts.openBox(ctx, created, j)
	if err != nil {
		ts.releaseBox(ctx, created, false)
	}
	return r, nil, err
}

var errBoxGone = errors.New("the box ended before the call")

// heldBox is a box that is reserved for a call and does not end before the
// call.
type heldBox struct {
	*box
	rec     *brig.Record
	in      brig.Instance
	release func() // must be called after the call
}

// openBox opens a box for a call.
func (ts *tools) openBox(ctx context.Context, x *box, j *toolJob) (*heldBox, error) {
	rec, err := ts.Store.Get(ctx, x.tenant, string(x.id))
	if err != nil {
		return nil, err
	}
	in, releaseUse, err := ts.lifecycle.useInstanceFor(ctx, rec, j.tool.Timeout+toolGrace)
	if err != nil {
		return nil, err
	}
	if hasEnded(in) {
		releaseUse()
		return nil, ts.lifecycle.explainLoss(ctx, rec, in, errBoxGone)
	}
	return &heldBox{x, rec, in, releaseUse}, nil
}

// releaseBox returns a box after a call. If the call did not end cleanly, it
// ends the box.
func (ts *tools) releaseBox(ctx context.Context, x *box, reusable bool) {
	if !ts.boxes.release(x, reusable) {
		ts.endBox(ctx, x)
	}
}

// endBox ends a box that calls can no longer find.
func (ts *tools) endBox(ctx context.Context, x *box) {
	ctx = context.WithoutCancel(ctx)
	ts.background.Go(func() {
		ctx, cancel := detachedContext(ctx)
		defer cancel()
		rec, err := ts.Store.Get(ctx, x.tenant, string(x.id))
		if err == nil {
			err = ts.lifecycle.destroyAndDelete(ctx, rec)
		}
		if err != nil && brig.KindOf(err) != brig.NotFound {
			ts.Log.ErrorContext(ctx, "failed to end a sandbox for tools", "sandbox", x.id, "err", err)
		}
	})
}

// adopt takes over a box of an earlier server, whose instance still runs.
func (b *boxes) adopt(r *brig.Record) {
	l := r.Spec.Labels
	if l[labelReady] == "" {
		return // an ordinary sandbox
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = append(b.idle, &box{
		id: r.ID, name: r.Spec.Name, tenant: r.Tenant, kind: brig.ToolKind(l[labelKind]), fingerprint: l[labelFingerprint], key: l[labelReady], adopted: true,
	})
}

// lacksPackages reports whether a record belongs to a box whose packages an
// earlier server did not finish installing.
func lacksPackages(r *brig.Record) bool {
	return r.State != brig.Ended && r.Spec.Labels[labelKind] != "" && r.Spec.Labels[labelReady] == ""
}

// killLeftoverPrograms ends the programs that may still run in an adopted box, and
// reports whether all have ended. It skips a box whose template has a start
// command.
func (ts *tools) killLeftoverPrograms(ctx context.Context, x *box, j *toolJob) bool {
	if !x.adopted {
		return true
	}
	x.adopted = false
	in := ts.instance(x.id)
	return in != nil && (ts.images.templates[j.setup.Template].Start != nil || in.Quiet(ctx, 0) == nil)
}

// makeBox creates a box with the packages of a call.
func (ts *tools) makeBox(ctx context.Context, v *call, j *toolJob) (*box, *brig.ProgramError, error) {
	spec := brig.Spec{
		Name: newName("tool-"), Template: j.setup.Template, TTL: min(cmp.Or(j.setup.Idle, boxIdleTimeout), v.limitRange.MaxTTL),
	}
	labels := map[string]string{labelKind: string(j.setup.Kind), labelFingerprint: j.fingerprint}
	if len(j.layers) == 0 {
		labels[labelReady] = j.key
	}
	if spec.Template == "" {
		spec.Image = ts.Options.Tools.Image
	}
	m, err := ts.makeToolSandbox(ctx, v, spec, labels, ts.Options.Tools.Egress)
	if err != nil {
		return nil, nil, err
	}
	x := &box{
		id: m.rec.ID, name: m.rec.Spec.Name, tenant: v.actor.Tenant,
		kind: j.setup.Kind, fingerprint: j.fingerprint, key: j.key,
	}
	if failed, err := ts.installPackages(ctx, v, x, j); failed != nil || err != nil {
		ts.endBox(ctx, x)
		return nil, failed, err
	}
	ts.boxes.mu.Lock()
	ts.boxes.busy = append(ts.boxes.busy, x)
	ts.boxes.mu.Unlock()
	return x, nil, nil
}

// makeToolSandbox creates a persistent sandbox for tools or for the
// installation of their packages.
func (ts *tools) makeToolSandbox(ctx context.Context, v *call, spec brig.Spec, labels map[string]string, out brig.Egress) (*machine, error) {
	spec, t, err := ts.images.applyTemplate(spec)
	if err != nil {
		return nil, err
	}
	if spec, err = ts.images.completeSpec(v, spec); err != nil {
		return nil, err
	}
	// The operator sets these, regardless of the request.
	spec.Egress, spec.Labels = out, labels
	placement := placementRequest{tenant: v.actor.Tenant, spec: &spec}
	candidates, err := ts.providers.route(ctx, placement)
	if err != nil {
		return nil, err
	}
	var m *machine
	err = ts.providers.dispatch(ctx, v, placement, candidates, func(s candidate) (err error) {
		m, err = ts.machines.acquire(ctx, v, s, spec, requirements{prefix: "tool-", languages: []brig.Language{brig.Python, ""}, template: t})
		return err
	})
	if err == nil {
		// The waiting interpreter has a different environment.
		m.closeUnusedSession()
	}
	return m, err
}
