package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/attest"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/workspace"
)

// machines creates the instances of sandboxes or claims them from the pool, and
// verifies their enforcement.
type machines struct {
	*gate
	vault        *vault
	images       *images
	network      *network
	providers    *providers
	workspaces   *workspaces
	lifecycle    *lifecycle
	programs     *programs
	pool         *pool
	boots        *boots
	attestations attest.Cache
	attesting    sync.Mutex // held while an instance is created for an examination
}

// machine is a running sandbox, with an idle interpreter if it comes from the
// pool.
type machine struct {
	rec               *brig.Record
	backend           *placement.Backend
	in                brig.Instance
	session           *interpreter.Session // nil if there is none
	img               *brig.Image
	notes             []string // in addition to the provider's notes
	program           programFile
	workspace         *workspace.Unpacking // the workspace to unpack; nil if none
	releaseCreateSlot func()               // releases the creation slot; nil if the machine has none
	booted            *bootedTemplate      // the template to restore from; nil if the instance boots
	account           *account             // charged for the start command; nil for the tenant's account
}

// maxSlotHold is how long a one-shot may keep its creation slot while its
// interpreter starts.
const maxSlotHold = time.Second

// releaseSlot releases the creation slot of the machine, if it has one.
func (m *machine) releaseSlot() {
	if m.releaseCreateSlot != nil {
		m.releaseCreateSlot()
		m.releaseCreateSlot = nil
	}
}

// requirements holds the requirements for a machine that are not part of its
// spec.
type requirements struct {
	prefix    string               // prefix of the generated name, if the spec has no name
	languages []brig.Language      // languages of suitable pooled interpreters, in order of preference
	workspace *workspace.Unpacking // the workspace to unpack; nil if none
	// template lists the programs to start before the caller gets the machine.
	template *brig.Template
}

// admitSpec checks the parts of a complete spec that depend on the tenant: its
// rules must be permitted, and its secrets and its workspace must exist. It sets
// the version of the workspace.
func (ms *machines) admitSpec(ctx context.Context, v *call, spec *brig.Spec) (err error) {
	if err := ms.network.checkEgress(v.actor, &spec.Egress); err != nil {
		return err
	}
	if err := ms.vault.findSecrets(ctx, v.actor.Tenant, spec.Secrets); err != nil {
		return err
	}
	spec.Workspace, err = ms.workspaces.findWorkspace(ctx, v.actor.Tenant, *spec)
	return err
}

// acquire returns a running sandbox, from the pool if a suitable one is ready
// there. If it fails, it leaves no instance and no record behind.
func (ms *machines) acquire(ctx context.Context, v *call, s candidate, spec brig.Spec, w requirements) (_ *machine, err error) {
	ctx, step := span.Start(ctx, "obtain")
	step.Set("brig.provider", s.backend.ID)
	defer func() { endStep(step, err) }()
	// Begin before reserving quota and a creation slot: a sweep of workspaces or a lack of memory
	// must not delay a machine that holds resources needed by other calls.
	var done func()
	if w.workspace, done, err = ms.workspaces.beginUnpack(ctx, v.actor.Tenant, spec.Workspace); err != nil {
		return nil, err
	}
	defer done()
	alloc, err := ms.allocateNew(v, s.backend, s.maxUsers, spec)
	if err != nil {
		return nil, err
	}
	m, err := ms.withReservation(ctx, v, s, alloc.reservation, spec, w)
	if ms.providers.noteHealth(s.backend, err); err != nil {
		alloc.release()
		return nil, err
	}
	return m, nil
}

// withReservation is the part of acquire that follows the allocation.
func (ms *machines) withReservation(ctx context.Context, v *call, s candidate, p *quota.Reservation, spec brig.Spec, w requirements) (*machine, error) {
	slot, err := ms.slotFor(ctx, v, s, spec, w)
	if err != nil {
		return nil, err
	}
	kept := false // whether a one-shot keeps the slot until its interpreter is ready
	defer func() {
		if !kept {
			slot()
		}
	}()
	m, err := ms.register(ctx, v, s, spec, w)
	if err == nil && m.in == nil {
		m.releaseCreateSlot = slot
	} else {
		slot()
	}
	if _, missing := errors.AsType[missingImage](err); missing {
		// Pull without holding imageMu, because a pull may take minutes and
		// would block the removal of images.
		m, err = ms.registerPulled(ctx, v, s, spec, w, err)
	}
	if err != nil {
		return nil, err
	}
	ms.track(m.rec.ID, p) // before the network opens, whose traffic is charged to p
	if err = ms.checkAttestation(ctx, m); err == nil {
		err = ms.provision(ctx, m)
	}
	if spec.Ephemeral {
		v.reservations = append(v.reservations, p) // start the reservation with the program
	} else {
		p.Start()
	}
	if err == nil {
		err = ms.verifyEnforcement(ctx, m)
	}
	if err == nil {
		err = ms.startTemplate(ctx, m, w.template)
	}
	if err != nil {
		_ = v.awaitIntent() // wait for the write before the record is deleted
		ms.abandon(ctx, m)
		return nil, err
	}
	kept = spec.Ephemeral
	if m.rec.State == brig.Running { // set by claimPooled
		ms.lifecycle.adopt(m.rec, m.backend, m.in)
		return m, nil
	}
	m.rec.State, m.rec.Handle, m.rec.Notes = brig.Running, m.in.Handle(), slices.Concat(m.in.Notes(), m.notes)
	var events []brig.Event
	if v.op == brig.OpCreate {
		// Write the event together with the record, because a sandbox without a
		// record does not exist.
		events = append(events, v.outcomeEvent())
	}
	if err := ms.Store.Put(ctx, m.rec, events...); err != nil {
		m.releaseSlot()
		ms.abandon(ctx, m)
		return nil, err
	}
	failpoint.Hit("engine.running")
	ms.lifecycle.adopt(m.rec, m.backend, m.in)
	failpoint.Hit("engine.adopted")
	return m, nil
}

// slotFor waits for a creation slot, if an instance probably has to be created. It runs before any
// record is written, so that rejecting many requests for lack of a slot costs almost nothing. The
// returned function is never nil, and may be called more than once.
func (ms *machines) slotFor(ctx context.Context, v *call, s candidate, spec brig.Spec, w requirements) (func(), error) {
	none := func() {}
	if !ms.providers.isBuiltin(s.backend) || len(ms.providers.requirementOf(&spec)) > 0 { // probing an image first takes a separate slot
		return none, nil
	}
	img, err := ms.providers.imageAt(ctx, s.backend, spec.Image)
	if err != nil {
		return none, nil //nolint:nilerr // register returns the error
	}
	if !needsOwnBoot(spec) && ms.pool.hasAny(poolKeys(img.Digest, spec, w)) {
		return none, nil
	}
	release, err := ms.capacity.Acquire(ctx, v.actor.Tenant, v.arrived)
	if err != nil {
		return none, err
	}
	return release, nil
}

// needsOwnBoot reports whether an instance cannot come from the pool or from a template that has booted: its
// main program, its rights and its mounts are given at its start.
func needsOwnBoot(spec brig.Spec) bool {
	return spec.Command != nil || spec.BuildRights || len(spec.Volumes) > 0
}

// poolKeys returns the kinds of pooled instances that meet the requirements.
func poolKeys(digest string, spec brig.Spec, w requirements) []poolKey {
	var kinds []poolKey
	for _, l := range w.languages {
		kinds = append(kinds, poolKey{image: digest, language: l, limits: spec.Limits})
	}
	return kinds
}

// registerPulled pulls a missing image, or finds a stand-in for it, and then
// calls register.
func (ms *machines) registerPulled(ctx context.Context, v *call, s candidate, spec brig.Spec, w requirements, missing error) (*machine, error) {
	if t := w.template; t != nil && len(t.Packages)+len(t.StandIn) > 0 {
		found, err := ms.images.ensureImage(ctx, t)
		if err != nil {
			return nil, err
		}
		spec.Image = found
		m, err := ms.register(ctx, v, s, spec, w)
		if err == nil && found != t.Image {
			m.notes = append(m.notes, fmt.Sprintf("image: %s, which stands in for %s until it is built (brig setup %s)", found, t.Image, t.Name))
		}
		return m, err
	}
	switch lost := ms.images.pullMissing(ctx, spec.Image); {
	case lost == nil:
		return ms.register(ctx, v, s, spec, w)
	case errors.Is(lost, errNoPuller):
		return nil, missing
	default:
		return nil, imageError(lost)
	}
}

// register writes the record of a machine that is about to be created or bound, together with the
// call's intent. It claims a pooled instance first, because the record contains the ID of the
// claimed instance. The record of a claimed one-shot is written while its program runs, unless its
// name may already be in use or its egress rules permit traffic.
func (ms *machines) register(ctx context.Context, v *call, s candidate, spec brig.Spec, w requirements) (*machine, error) {
	if ms.providers.isBuiltin(s.backend) { // the server removes images only of its own provider
		ms.images.imageMu.RLock()
		defer ms.images.imageMu.RUnlock()
	}
	img, err := ms.providers.imageAt(ctx, s.backend, spec.Image)
	if err != nil {
		return nil, err
	}
	if err := v.tenantLimits.CheckImage(img); err != nil {
		return nil, err
	}
	var notes []string
	if img.Alias != "" { // report which image is used, and why
		notes = append(notes, fmt.Sprintf("image: %s, by the alias %s", canonicalImage(img), img.Alias))
		spec.Image = canonicalImage(img)
	}
	if spec, err = withImageDefaults(img, spec); err != nil {
		return nil, err
	}
	if spec.PausableIfSupported {
		spec.Pausable, spec.PausableIfSupported = s.backend.Provider.Capabilities().Saves, false
	}
	if spec.Command != nil {
		main := applySandboxDefaults(spec, *spec.Command)
		spec.Command = &main
	}
	now := ms.Now().UTC()
	m := &machine{backend: s.backend, img: img, notes: notes, workspace: w.workspace, rec: &brig.Record{Sandbox: brig.Sandbox{
		Tenant: v.actor.Tenant, Spec: spec, State: brig.Creating,
		Provider: s.backend.ID, Route: s.route, Digest: img.Digest,
		Created: now, Expires: now.Add(spec.TTL),
	}}}
	if !needsOwnBoot(spec) {
		m.booted = ms.boots.find(w.template, s.backend.ID, img.Digest, spec.Limits)
	}
	if w.template != nil && m.booted == nil { // allow for the time until it is ready
		m.rec.Expires = m.rec.Expires.Add(w.template.ReadyTimeout)
	}
	m.rec.ID = newID()
	_, step := span.Start(ctx, "claim")
	ms.claimPooled(m, w)
	step.Set("brig.pool", string(m.rec.Pool))
	step.End()
	failpoint.Hit("engine.claimed")
	if m.rec.Spec.Name == "" {
		m.rec.Spec.Name = newName(w.prefix)
	}
	if m.rec.Given, err = ms.vault.grantedSecrets(ctx, m.rec); err != nil {
		ms.destroyMachine(ctx, m)
		return nil, err
	}
	v.id = m.rec.ID
	v.setSandbox(m.rec)
	v.addRecord(m.rec)
	intent := v.intentEvents()
	put := func(ctx context.Context, store brig.Store, rec *brig.Record) error {
		err := store.Put(ctx, rec, intent...)
		failpoint.Hit("engine.registered")
		return err
	}
	if m.rec.State == brig.Running && spec.Name == "" && len(spec.Egress.Rules) == 0 {
		rec := *m.rec // a copy, because m.rec is used concurrently
		v.writeConcurrently(func() error {
			return put(context.WithoutCancel(ctx), v.store(), &rec)
		})
		return m, nil
	}
	store := ms.Store
	if ms.providers.isBuiltin(s.backend) && len(spec.Egress.Rules) == 0 {
		// A power failure ends the instance too, so the record need not be
		// synced. The outcome of the call is synced.
		store = store.Soon()
	}
	if err := put(ctx, store, m.rec); err != nil {
		ms.destroyMachine(ctx, m)
		return nil, err
	}
	return m, nil
}

// canonicalImage returns brig.HostImage if the image has that name, and its
// digest otherwise.
func canonicalImage(img *brig.Image) string {
	for _, n := range img.Names {
		if n == brig.HostImage {
			return n
		}
	}
	return img.Digest
}

// claimPooled claims a suitable instance from the pool, if one is ready.
func (ms *machines) claimPooled(m *machine, w requirements) {
	if needsOwnBoot(m.rec.Spec) || m.booted != nil || !ms.providers.isBuiltin(m.backend) {
		return
	}
	found, use := ms.pool.claim(!m.rec.Spec.Ephemeral, poolKeys(m.rec.Digest, m.rec.Spec, w)...)
	if m.rec.Pool = use; found == nil {
		return
	}
	m.rec.ID, m.in, m.session = found.id, found.in, found.session
	if _, ok := m.in.(brig.Parker); m.rec.Spec.Pausable && !ok {
		m.closeUnusedSession() // its streams belong to the host, and cannot be saved
	}
	if m.session != nil {
		ms.limitMessages(m.session.Process, m.rec.Tenant)
		m.session.Wake()
	}
	if m.rec.Spec.Name == "" {
		m.rec.Spec.Name = found.name
	}
	if m.rec.Spec.Ephemeral {
		// A one-shot always ends with this server, so its record is written
		// only once.
		m.rec.State, m.rec.Handle, m.rec.Notes = brig.Running, m.in.Handle(), slices.Concat(m.in.Notes(), m.notes)
	}
}

// provision creates the instance of a recorded sandbox, or binds the instance that was claimed from
// the pool.
func (ms *machines) provision(ctx context.Context, m *machine) (err error) {
	spec := m.rec.Spec
	spec.Image, spec.Env, spec.Share = m.rec.Digest, withCA(spec), m.rec.Tenant
	if m.in != nil {
		begin := time.Now()
		bctx, s := span.Start(ctx, "bind")
		err = m.in.Bind(bctx, spec, m.rec.Expires.Add(saveAllowance(spec)))
		endStep(s, err)
		ms.reportCreation(m.rec.Provider, brig.MadeClaim, begin, err)
		failpoint.Hit("engine.bound")
		if err != nil {
			return err
		}
		if err := ms.workspaces.fillWorkspace(ctx, m); err != nil {
			return err
		}
		return ms.network.openEgress(ctx, m.rec, m.in)
	}
	if spec.Command != nil {
		run, err := ms.vault.withSecrets(ctx, m.rec, *spec.Command)
		if err != nil {
			return err
		}
		spec.Command = &run
	}
	if ms.providers.isBuiltin(m.backend) && m.releaseCreateSlot == nil { // other providers use their own CPUs
		// The call has no slot yet, because another call claimed the pooled
		// sandbox first, or because the image was pulled or examined.
		if m.releaseCreateSlot, err = ms.capacity.Acquire(ctx, m.rec.Tenant, time.Now()); err != nil {
			return err
		}
	}
	if spec.Ephemeral && m.releaseCreateSlot != nil {
		// Starting the interpreter is as much work as creating the instance (see runJob). A
		// one-shot therefore keeps its slot until the interpreter is ready, for at most
		// maxSlotHold.
		defer func(release func()) { time.AfterFunc(maxSlotHold, release) }(m.releaseCreateSlot)
	} else {
		defer m.releaseSlot()
	}
	spec.Held = spec.Command != nil && spec.Workspace.Name != ""
	begin := time.Now()
	cctx, s := span.Start(ctx, "create")
	m.in, err = ms.create(cctx, m, spec)
	endStep(s, err)
	ms.reportCreation(m.rec.Provider, brig.MadeCaller, begin, err)
	failpoint.Hit("engine.made")
	if err != nil {
		return err
	}
	if err := ms.workspaces.fillWorkspace(ctx, m); err != nil {
		return err
	}
	if err := ms.network.openEgress(ctx, m.rec, m.in); err != nil || !spec.Held {
		return err
	}
	// Start the program after its files are in place. If the files are written
	// back, the instance is kept until then, even after the program has ended.
	return m.in.StartMain(ctx, spec.Workspace.Mode == brig.WorkspaceDirect)
}

// create creates the instance of a recorded sandbox, as a copy of its booted template if there is
// one.
func (ms *machines) create(ctx context.Context, m *machine, spec brig.Spec) (brig.Instance, error) {
	if m.booted != nil {
		in, err := ms.boots.restore(ctx, m, spec)
		if err == nil || ctx.Err() != nil {
			return in, err
		}
		ms.Log.WarnContext(ctx, "failed to copy a booted template; the sandbox boots on its own", "template", spec.Template, "err", err)
		ms.boots.discard(ctx, spec.Template, m.booted)
		m.booted = nil
		m.rec.Expires = m.rec.Expires.Add(ms.images.templates[spec.Template].ReadyTimeout)
	}
	return m.backend.Provider.Create(ctx, m.rec.ID, spec, m.rec.Expires.Add(saveAllowance(spec)))
}

// closeUnusedSession closes the idle interpreter, if there is one.
func (m *machine) closeUnusedSession() {
	if m.session != nil {
		m.session.Close()
		m.session = nil
	}
}

// destroyMachine ends the interpreter and the instance of a machine, and waits
// until they have ended.
func (ms *machines) destroyMachine(ctx context.Context, m *machine) {
	m.closeUnusedSession()
	if m.in != nil {
		ms.destroyInstance(ctx, m.rec.ID, m.in)
	}
}

// rollback destroys a machine and deletes its record.
func (ms *machines) rollback(ctx context.Context, m *machine) {
	ms.destroyMachine(ctx, m)
	ms.deleteRecord(ctx, m.rec)
}

// abandon is like rollback, for a machine that may have had a network. The caller releases the
// reservation, which counts against the quota until the instance has ended.
func (ms *machines) abandon(ctx context.Context, m *machine) {
	ms.network.endEgress(m.rec.ID)
	ms.track(m.rec.ID, nil)
	ms.lifecycle.unregister(m.rec.ID)
	ms.rollback(ctx, m)
}

// destroyInstance ends an instance. If that fails, housekeeping retries it until it
// succeeds.
func (ms *machines) destroyInstance(ctx context.Context, id brig.ID, in brig.Instance) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	if err := in.Destroy(ctx); err != nil {
		ms.Log.ErrorContext(ctx, "failed to destroy an instance; retrying", "sandbox", id, "err", err)
		ms.sandboxes.update(id, func(s *sandbox) { s.pendingDestroy = in })
	}
}

// destroyAsync ends an instance that callers can no longer reach, in the background.
func (ms *machines) destroyAsync(ctx context.Context, id brig.ID, in brig.Instance) {
	ms.background.Go(func() { ms.destroyInstance(ctx, id, in) })
}

// destroyDelay is how long a one-shot's instance outlives its program. An earlier destruction would
// compete for CPU time with sending the result.
const destroyDelay = 3 * time.Millisecond

// destroyLater destroys the instance in the background, after the result has
// been sent. It calls f first, and destroyed at the end, when it also releases
// the provider.
func (ms *machines) destroyLater(ctx context.Context, m *machine, f, destroyed func()) {
	ms.background.Go(func() {
		defer ms.releaseBackend(m.backend)
		defer destroyed()
		select {
		case <-time.After(destroyDelay):
		case <-ms.ctx.Done():
		}
		f()
		dctx, s := span.Start(ctx, "discard")
		ms.destroyInstance(dctx, m.rec.ID, m.in)
		s.End()
	})
}

// retryDestroys retries the destruction of instances that destroyInstance could
// not end.
func (ms *machines) retryDestroys(ctx context.Context) {
	doomed := map[brig.ID]brig.Instance{}
	ms.sandboxes.updateEach(func(id brig.ID, s *sandbox) {
		if s.pendingDestroy != nil {
			doomed[id], s.pendingDestroy = s.pendingDestroy, nil
		}
	})
	for id, in := range doomed {
		ms.destroyAsync(ctx, id, in)
	}
}
