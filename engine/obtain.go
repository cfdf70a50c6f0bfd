package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// machine is a sandbox that runs, with the interpreter that waited in it.
type machine struct {
	rec     *brig.Record
	at      *member
	in      brig.Instance
	session *interpreter.Session // nil when none waited
	img     *brig.Image
	notes   []string // beside those of its provider
}

// wish is what is wanted of a machine beyond its spec.
type wish struct {
	prefix string          // of its name, when the spec has none
	kinds  []brig.Language // of interpreters that may wait in it, the best first
	// template says what is to run in it before it is anybody's.
	template *brig.Template
}

// obtain makes a sandbox that runs, from the pool if one waits there. What
// fails leaves nothing.
func (e *Engine) obtain(ctx context.Context, v *visit, s stop, spec brig.Spec, w wish) (_ *machine, err error) {
	ctx, step := span.Start(ctx, "obtain")
	step.Set("brig.provider", s.at.id)
	defer func() { endStep(step, err) }()
	p, err := v.account.lodge(spec)
	if err != nil {
		return nil, over(err) // as it would be everywhere
	}
	if err = s.at.enter(s.most); err == nil {
		m, lost := e.lodged(ctx, v, s, p, spec, w)
		if e.noteHealth(s.at, lost); lost == nil {
			return m, nil
		}
		e.left(s.at)
		err = lost
	}
	p.end()
	return nil, err
}

// lodged is obtain of a sandbox that has its seat in the tenant's quota.
func (e *Engine) lodged(ctx context.Context, v *visit, s stop, p *seat, spec brig.Spec, w wish) (*machine, error) {
	m, err := e.register(ctx, v, s, spec, w)
	if _, missing := errors.AsType[missingImage](err); missing {
		// Not while anybody waits to remove an image: it may take minutes.
		m, err = e.registerMissing(ctx, v, s, spec, w, err)
	}
	if err != nil {
		return nil, err
	}
	if err = e.foresee(ctx, m); err == nil {
		err = e.furnish(ctx, m)
	}
	if err == nil {
		err = e.confirm(ctx, m)
	}
	if err == nil {
		err = e.prepare(ctx, m, w.template)
	}
	if err != nil {
		_ = v.recorded() // before it is forgotten
		e.drop(m.rec.ID)
		e.undo(ctx, m)
		return nil, err
	}
	if m.rec.State == brig.Running { // as claim left it
		e.house(m.rec.ID, p)
		e.adopt(m.rec, m.at, m.in)
		return m, nil
	}
	m.rec.State, m.rec.Handle, m.rec.Notes = brig.Running, m.in.Handle(), slices.Concat(m.in.Notes(), m.notes)
	var events []brig.Event
	if v.op == brig.OpCreate {
		// With the record, or not at all: what is not on record is no sandbox.
		events = append(events, v.outcome())
	}
	if err := e.Store.Put(ctx, m.rec, events...); err != nil {
		e.undo(ctx, m)
		return nil, err
	}
	failpoint.Hit("engine.running")
	e.house(m.rec.ID, p)
	e.adopt(m.rec, m.at, m.in)
	failpoint.Hit("engine.adopted")
	return m, nil
}

// registerMissing is register of a sandbox whose image was not here, when it
// is, or something in its stead.
func (e *Engine) registerMissing(ctx context.Context, v *visit, s stop, spec brig.Spec, w wish, missing error) (*machine, error) {
	if t := w.template; t != nil && len(t.Packages)+len(t.StandIn) > 0 {
		found, err := e.ensure(ctx, t)
		if err != nil {
			return nil, err
		}
		spec.Image = found
		m, err := e.register(ctx, v, s, spec, w)
		if err == nil && found != t.Image {
			m.notes = append(m.notes, fmt.Sprintf("image: %s, which stands in for %s until somebody makes that (brig setup %s)", found, t.Image, t.Name))
		}
		return m, err
	}
	switch lost := e.pullMissing(ctx, spec.Image); {
	case lost == nil:
		return e.register(ctx, v, s, spec, w)
	case errors.Is(lost, errNoPuller):
		return nil, missing
	default:
		return nil, imageError(lost)
	}
}

// register writes the record of a machine that is about to be made or bound,
// and the call's intent with it. A claim from the pool comes first: the
// record has the id of what was claimed. That of a claimed one-shot is written
// while its program runs, unless its name may be taken or something may leave it.
func (e *Engine) register(ctx context.Context, v *visit, s stop, spec brig.Spec, w wish) (*machine, error) {
	if e.isHome(s.at) { // others' images are not the server's to remove
		e.imageUse.RLock()
		defer e.imageUse.RUnlock()
	}
	img, err := e.imageAt(ctx, s.at, spec.Image)
	if err != nil {
		return nil, err
	}
	if err := v.ceilings.AllowsImage(img); err != nil {
		return nil, err
	}
	if spec, err = ofImage(img, spec); err != nil {
		return nil, err
	}
	if spec.Command != nil {
		main := inSandbox(spec, *spec.Command)
		spec.Command = &main
	}
	now := e.Now().UTC()
	m := &machine{at: s.at, img: img, rec: &brig.Record{Sandbox: brig.Sandbox{
		Tenant: v.actor.Tenant, Spec: spec, State: brig.Creating,
		Provider: s.at.id, Route: s.route, Digest: img.Digest,
		Created: now, Expires: now.Add(spec.TTL),
	}}}
	if w.template != nil { // time to be ready in
		m.rec.Expires = m.rec.Expires.Add(w.template.ReadyTimeout)
	}
	m.rec.ID = newID()
	_, step := span.Start(ctx, "claim")
	e.claim(m, w)
	step.Set("brig.pool", string(m.rec.Pool))
	step.End()
	failpoint.Hit("engine.claimed")
	if m.rec.Spec.Name == "" {
		m.rec.Spec.Name = newName(w.prefix)
	}
	v.id = m.rec.ID
	v.takesPlace(m.rec)
	v.sayRecord(m.rec)
	intent := v.intent()
	put := func(ctx context.Context, store brig.Store, rec *brig.Record) error {
		err := store.Put(ctx, rec, intent...)
		failpoint.Hit("engine.registered")
		return err
	}
	if m.rec.State == brig.Running && spec.Name == "" && len(spec.Egress.Rules) == 0 {
		rec := *m.rec // m's is read meanwhile
		v.writeBeside(func() error {
			return put(context.WithoutCancel(ctx), v.store(), &rec)
		})
		return m, nil
	}
	store := e.Store
	if e.isHome(s.at) && len(spec.Egress.Rules) == 0 {
		// A power cut ends the machine, too, and what comes of the call waits
		// for the disk.
		store = store.Soon()
	}
	if err := put(ctx, store, m.rec); err != nil {
		e.scrap(ctx, m)
		return nil, err
	}
	return m, nil
}

// claim takes a machine from the pool, if there is one of those kinds.
func (e *Engine) claim(m *machine, w wish) {
	if m.rec.Spec.Command != nil || !e.isHome(m.at) {
		return
	}
	var kinds []kind
	for _, l := range w.kinds {
		kinds = append(kinds, kind{image: m.rec.Digest, language: l, limits: m.rec.Spec.Limits})
	}
	found, use := e.pool.claim(!m.rec.Spec.Ephemeral, kinds...)
	if m.rec.Pool = use; found == nil {
		return
	}
	m.rec.ID, m.in, m.session = found.id, found.in, found.session
	if m.session != nil {
		m.session.Rouse()
	}
	if m.rec.Spec.Name == "" {
		m.rec.Spec.Name = found.name
	}
	if m.rec.Spec.Ephemeral {
		// It ends with this server whatever happens: one record is enough to
		// know of it.
		m.rec.State, m.rec.Handle, m.rec.Notes = brig.Running, m.in.Handle(), m.in.Notes()
	}
}

// furnish gets the machine of a sandbox that is on record, or binds the one
// that was claimed for it.
func (e *Engine) furnish(ctx context.Context, m *machine) (err error) {
	spec := m.rec.Spec
	spec.Image, spec.Env = m.rec.Digest, withAuthority(spec)
	if m.in != nil {
		begin := time.Now()
		bctx, s := span.Start(ctx, "bind")
		err = m.in.Bind(bctx, spec, m.rec.Expires.Add(spare(spec)))
		endStep(s, err)
		e.made(m.rec.Provider, brig.MadeClaim, begin, err)
		failpoint.Hit("engine.bound")
		if err != nil {
			return err
		}
		if err := e.fillWorkspace(ctx, m); err != nil {
			return err
		}
		return e.openWay(ctx, m.rec, m.in)
	}
	if spec.Command != nil {
		run, err := e.withSecrets(ctx, m.rec, *spec.Command)
		if err != nil {
			return err
		}
		spec.Command = &run
	}
	if e.isHome(m.at) { // others have processors of their own
		leave, err := e.capacity.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	spec.Held = spec.Command != nil && spec.Workspace.Name != ""
	begin := time.Now()
	cctx, s := span.Start(ctx, "create")
	m.in, err = m.at.provider.Create(cctx, m.rec.ID, spec, m.rec.Expires.Add(spare(spec)))
	endStep(s, err)
	e.made(m.rec.Provider, brig.MadeCaller, begin, err)
	failpoint.Hit("engine.made")
	if err != nil {
		return err
	}
	if err := e.fillWorkspace(ctx, m); err != nil {
		return err
	}
	if err := e.openWay(ctx, m.rec, m.in); err != nil || !spec.Held {
		return err
	}
	// Not before its files are there. Where they are written back, the machine
	// waits for that when the program has ended.
	return m.in.Begin(ctx, spec.Workspace.Mode == brig.WorkspaceDirect)
}

// letGo closes the interpreter that waited, when nobody needs it.
func (m *machine) letGo() {
	if m.session != nil {
		m.session.Close()
		m.session = nil
	}
}

// scrap ends what there is of a machine; the caller waits for that.
func (e *Engine) scrap(ctx context.Context, m *machine) {
	m.letGo()
	if m.in != nil {
		e.destroy(ctx, m.rec.ID, m.in)
	}
}

// undo is scrap of a machine that is on record, which it is not after.
func (e *Engine) undo(ctx context.Context, m *machine) {
	e.scrap(ctx, m)
	e.forget(ctx, m.rec)
}

// forget removes the record of a sandbox that did not start. A disk that is full
// may not even take that: then nobody finds the record until it is gone.
func (e *Engine) forget(ctx context.Context, rec *brig.Record) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	err := e.Store.Delete(ctx, rec.ID)
	if err != nil {
		e.Log.ErrorContext(ctx, "forget a sandbox that did not start", "sandbox", rec.ID, "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.unwanted, rec.ID); err != nil {
		e.unwanted[rec.ID] = rec
	}
}

// forgetUnwanted tries again to forget what could not be forgotten.
func (e *Engine) forgetUnwanted(ctx context.Context) {
	e.mu.Lock()
	list := slices.Collect(maps.Values(e.unwanted))
	e.mu.Unlock()
	for _, rec := range list {
		e.forget(ctx, rec)
	}
}

func (e *Engine) isUnwanted(id brig.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unwanted[id] != nil
}

// destroy ends a machine. One that does not go is tried again until it does.
func (e *Engine) destroy(ctx context.Context, id brig.ID, in brig.Instance) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	if err := in.Destroy(ctx); err != nil {
		e.Log.ErrorContext(ctx, "end a machine", "sandbox", id, "err", err)
		e.mu.Lock()
		e.doomed[id] = in
		e.mu.Unlock()
	}
}

// discard ends a machine that nobody can reach any more, without keeping
// anybody waiting.
func (e *Engine) discard(ctx context.Context, id brig.ID, in brig.Instance) {
	e.work.Go(func() { e.destroy(ctx, id, in) })
}

// discardDelay is how long a one-shot's machine outlives its program: to end
// it keeps processors busy that the answer still needs.
const discardDelay = 3 * time.Millisecond

// discardSoon is discard, when the answer is out. It calls f before, and lets
// go of the machine's provider after.
func (e *Engine) discardSoon(ctx context.Context, m *machine, f func()) {
	e.work.Go(func() {
		defer e.left(m.at)
		select {
		case <-time.After(discardDelay):
		case <-e.ctx.Done():
		}
		f()
		dctx, s := span.Start(ctx, "discard")
		e.destroy(dctx, m.rec.ID, m.in)
		s.End()
	})
}

// destroyDoomed tries again to end what did not go.
func (e *Engine) destroyDoomed(ctx context.Context) {
	e.mu.Lock()
	doomed := e.doomed
	e.doomed = map[brig.ID]brig.Instance{}
	e.mu.Unlock()
	for id, in := range doomed {
		e.discard(ctx, id, in)
	}
}
