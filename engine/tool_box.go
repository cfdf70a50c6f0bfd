package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// boxIdle is after how long a box ends that nobody uses, if its setup does not
// say.
const boxIdle = 5 * time.Minute

// The labels of boxes, by which the next server finds them again. No caller may
// give them to a sandbox: it would be given a tenant's tools, with the secrets
// that they are called with.
const (
	labelsOfTools = "brig.tool."
	labelReady    = labelsOfTools + "ready"       // its key, when it has its packages
	labelKind     = labelsOfTools + "kind"        // of its setup
	labelPrint    = labelsOfTools + "fingerprint" // of its setup
)

// box is a sandbox in which a tenant's tools run, one after the other: what one
// leaves in files others of the same setup find, but none runs beside another.
type box struct {
	id          brig.ID
	name        string
	tenant      string
	kind        brig.ToolKind
	fingerprint string
	key         string
	reused      bool
	stale       bool // it ends when it is left
	inherited   bool // an earlier server has left it, and maybe what ran in it
}

// boxes are those of all tenants.
type boxes struct {
	mu   sync.Mutex // guards the fields below
	idle []*box
	busy []*box

	layers turns // of those that are being made, by digest
	vain   vain  // of those that could not be made, by digest
}

// turns let one at a time do what has a name.
type turns struct {
	mu    sync.Mutex // guards the field below
	going map[string]chan struct{}
}

// join waits for its turn, and returns what ends it.
func (t *turns) join(ctx context.Context, name string) (leave func(), err error) {
	for {
		t.mu.Lock()
		before := t.going[name]
		if before == nil {
			done := make(chan struct{})
			if t.going == nil {
				t.going = map[string]chan struct{}{}
			}
			t.going[name] = done
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.going, name)
				close(done)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim takes a box for a call, nil if there is none. Those that are of
// another time of the setup are returned, to be ended; the ones in which
// somebody is end when they are left.
func (b *boxes) claim(e *Engine, tenant string, j *toolJob) (found *box, old []*box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var idle []*box
	for _, x := range b.idle {
		in := e.instance(x.id)
		switch {
		case in == nil || gone(in):
			// Its lease has ended, or somebody has ended it.
		case x.tenant != tenant || x.kind != j.says.Kind:
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
		x.stale = x.stale || x.tenant == tenant && x.kind == j.says.Kind && x.fingerprint != j.fingerprint
	}
	if found != nil {
		found.reused = true
		b.busy = append(b.busy, found)
	}
	return found, old
}

// leave gives a box back, and reports whether it may be used again.
func (b *boxes) leave(x *box, sound bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = slices.DeleteFunc(b.busy, func(y *box) bool { return y == x })
	if !sound || x.stale {
		return false
	}
	b.idle = append(b.idle, x)
	return true
}

// take takes all of a tenant's idle boxes of a kind of setup, to be ended. The
// others end when they are left.
func (b *boxes) take(tenant string, kind brig.ToolKind) (out []*box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = slices.DeleteFunc(b.idle, func(x *box) bool {
		theirs := x.tenant == tenant && x.kind == kind
		if theirs {
			out = append(out, x)
		}
		return theirs
	})
	for _, x := range b.busy {
		x.stale = x.stale || x.tenant == tenant && x.kind == kind
	}
	return out
}

// enterBox gets a box for a call: one that is there, or a new one. What the packages of a call say why there is none is
// its result.
func (e *Engine) enterBox(ctx context.Context, v *visit, j *toolJob) (*room, *brig.ProgramError, error) {
	for {
		found, old := e.boxes.claim(e, v.actor.Tenant, j)
		for _, x := range old {
			e.endBox(ctx, x)
		}
		if found == nil {
			break
		}
		if e.settled(ctx, found, j) {
			if r, err := e.openBox(ctx, found, j); err == nil {
				return r, nil, nil
			}
		}
		// Its lease has ended this moment, or it is of no use otherwise: another
		// one, or a new one, is as good.
		e.leaveBox(ctx, found, false)
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
	}
	made, failed, err := e.makeBox(ctx, v, j)
	if failed != nil || err != nil {
		return nil, failed, err
	}
	r, err := e.openBox(ctx, made, j)
	if err != nil {
		e.leaveBox(ctx, made, false)
	}
	return r, nil, err
}

var errBoxGone = errors.New("the box ended before the call")

// room is a box in which a call is, which does not end meanwhile.
type room struct {
	*box
	rec  *brig.Record
	in   brig.Instance
	rest func() // when the call has left
}

// openBox opens a box for a call.
func (e *Engine) openBox(ctx context.Context, x *box, j *toolJob) (*room, error) {
	rec, err := e.Store.Get(ctx, x.tenant, string(x.id))
	if err != nil {
		return nil, err
	}
	in, rest, err := e.occupy(ctx, rec, j.tool.Timeout+toolGrace)
	if err != nil {
		return nil, err
	}
	if gone(in) {
		rest()
		return nil, e.lost(ctx, rec, in, errBoxGone)
	}
	return &room{x, rec, in, rest}, nil
}

// leaveBox gives a box back. One in which a call has not ended cleanly is used
// no more.
func (e *Engine) leaveBox(ctx context.Context, x *box, sound bool) {
	if !e.boxes.leave(x, sound) {
		e.endBox(ctx, x)
	}
}

// endBox ends a box that nobody can find any more.
func (e *Engine) endBox(ctx context.Context, x *box) {
	ctx = context.WithoutCancel(ctx)
	e.work.Go(func() {
		ctx, cancel := cleanup(ctx)
		defer cancel()
		rec, err := e.Store.Get(ctx, x.tenant, string(x.id))
		if err == nil {
			err = e.remove(ctx, rec)
		}
		if err != nil && brig.KindOf(err) != brig.NotFound {
			e.Log.ErrorContext(ctx, "end a box of tools", "sandbox", x.id, "err", err)
		}
	})
}

// inherit takes in a box of an earlier server, whose machine goes on.
func (b *boxes) inherit(r *brig.Record) {
	l := r.Spec.Labels
	if l[labelReady] == "" {
		return // it is a sandbox like others
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = append(b.idle, &box{
		id: r.ID, name: r.Spec.Name, tenant: r.Tenant, kind: brig.ToolKind(l[labelKind]), fingerprint: l[labelPrint], key: l[labelReady], inherited: true,
	})
}

// unequipped reports whether a record is that of a box which an earlier server
// has not filled.
func unequipped(r *brig.Record) bool {
	return r.State != brig.Ended && r.Spec.Labels[labelKind] != "" && r.Spec.Labels[labelReady] == ""
}

// settled ends what may still run in a box that an earlier server has left, and
// reports whether nothing does.
func (e *Engine) settled(ctx context.Context, x *box, j *toolJob) bool {
	if !x.inherited {
		return true
	}
	x.inherited = false
	in := e.instance(x.id)
	return in != nil && (e.templates[j.says.Template].Start != nil || in.Quiet(ctx, 0) == nil)
}

// makeBox makes a box with the packages of a call.
func (e *Engine) makeBox(ctx context.Context, v *visit, j *toolJob) (*box, *brig.ProgramError, error) {
	spec := brig.Spec{
		Name: newName("tool-"), Template: j.says.Template, TTL: min(cmp.Or(j.says.Idle, boxIdle), v.bounds.MaxTTL),
	}
	labels := map[string]string{labelKind: string(j.says.Kind), labelPrint: j.fingerprint}
	if len(j.layers) == 0 {
		labels[labelReady] = j.key
	}
	if spec.Template == "" {
		spec.Image = e.Options.Tools.Image
	}
	m, err := e.makeToolSandbox(ctx, v, spec, labels, e.Options.Tools.Egress)
	if err != nil {
		return nil, nil, err
	}
	x := &box{
		id: m.rec.ID, name: m.rec.Spec.Name, tenant: v.actor.Tenant,
		kind: j.says.Kind, fingerprint: j.fingerprint, key: j.key,
	}
	if failed, err := e.equip(ctx, v, x, j); failed != nil || err != nil {
		e.endBox(ctx, x)
		return nil, failed, err
	}
	e.boxes.mu.Lock()
	e.boxes.busy = append(e.boxes.busy, x)
	e.boxes.mu.Unlock()
	return x, nil, nil
}

// makeToolSandbox makes a sandbox that stays, for tools or for their packages.
func (e *Engine) makeToolSandbox(ctx context.Context, v *visit, spec brig.Spec, labels map[string]string, out brig.Egress) (*machine, error) {
	spec, t, err := e.fromTemplate(spec)
	if err != nil {
		return nil, err
	}
	if spec, err = e.complete(v, spec); err != nil {
		return nil, err
	}
	// These are the operator's own, whatever the caller might ask for.
	spec.Egress, spec.Labels = out, labels
	way := errand{tenant: v.actor.Tenant, spec: &spec}
	stops, err := e.route(ctx, way)
	if err != nil {
		return nil, err
	}
	var m *machine
	err = e.travel(ctx, v, way, stops, func(s stop) (err error) {
		m, err = e.obtain(ctx, v, s, spec, wish{prefix: "tool-", kinds: []brig.Language{brig.Python, ""}, template: t})
		return err
	})
	if err == nil {
		// The interpreter that waited knows another environment.
		m.letGo()
	}
	return m, err
}
