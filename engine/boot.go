package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/interpreter"
)

const (
	// bootInterval is the interval at which the server checks for changed images of templates that
	// boot once.
	bootInterval = time.Minute
	// bootTimeout is the time limit for the boot of a template, without its ready command.
	bootTimeout = 10 * time.Minute
	// bootRetryDelay is the delay before a failed boot is tried again.
	bootRetryDelay = 10 * time.Minute
	// bootRefusedDelay replaces bootRetryDelay if the provider cannot save sandboxes.
	bootRefusedDelay = 24 * time.Hour
)

// boots holds the saves of templates that boot once. Sandboxes of such a template
// are copies of one sandbox that has booted, without a tenant, secrets or network.
type boots struct {
	*gate
	providers    *providers
	images       *images
	interpreters *interpreters
	pauser       *pauser
	machines     *machines
	wake         chan struct{} // triggers a check of all templates in run

	mu         sync.Mutex // guards the fields below
	byTemplate map[string]*bootedTemplate
	retryAt    map[string]time.Time
}

// bootedTemplate is the save of a template that has booted.
type bootedTemplate struct {
	image      string // a digest
	limits     brig.Limits
	save       brig.SaveID
	executions int // number of processes in the save
	at         time.Time
	using      sync.RWMutex // read-locked during a restore of the save, write-locked during its removal
}

func newBoots(e *Engine) *boots {
	return &boots{
		gate: e.gate, providers: e.providers, images: e.images, interpreters: e.interpreters, pauser: e.pauser, machines: e.machines,
		wake: make(chan struct{}, 1), byTemplate: map[string]*bootedTemplate{}, retryAt: map[string]time.Time{},
	}
}

// find returns the booted template from which a sandbox with this image and these
// limits can start, or nil if it must boot.
func (b *boots) find(t *brig.Template, provider, digest string, limits brig.Limits) *bootedTemplate {
	if t == nil || !t.BootOnce || provider != b.builtinID {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	booted := b.byTemplate[t.Name]
	if booted == nil || booted.image != digest || booted.limits != limits {
		return nil
	}
	return booted
}

// run boots the templates that boot once, and boots them again when their images change or when a
// save is lost, until ctx is done. The saves do not outlive the server: its next start removes them
// and boots the templates again.
func (b *boots) run(ctx context.Context) {
	var bootOnce []brig.Template
	for _, t := range b.images.templates {
		if t.BootOnce {
			bootOnce = append(bootOnce, t)
		}
	}
	if len(bootOnce) == 0 {
		return
	}
	tick := time.NewTicker(bootInterval)
	defer tick.Stop()
	for {
		for i := range bootOnce {
			b.update(ctx, &bootOnce[i])
		}
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-tick.C:
		}
	}
}

// update boots a template unless it has booted with its present image, or has failed
// recently.
func (b *boots) update(ctx context.Context, t *brig.Template) {
	img, err := b.imageOf(ctx, t)
	if err != nil {
		return // the image must be built or pulled first
	}
	b.mu.Lock()
	was, wait := b.byTemplate[t.Name], b.retryAt[t.Name].After(b.Now())
	b.mu.Unlock()
	if wait || was != nil && was.image == img.Digest {
		return
	}
	begin := time.Now()
	booted, err := b.boot(ctx, t, img)
	b.mu.Lock()
	switch brig.KindOf(err) {
	case "":
		b.byTemplate[t.Name] = booted
	case brig.RateLimited: // a busy server tries again soon
	case brig.Unimplemented:
		b.retryAt[t.Name] = b.Now().Add(bootRefusedDelay)
	default:
		b.retryAt[t.Name] = b.Now().Add(bootRetryDelay)
	}
	b.mu.Unlock()
	switch {
	case err == nil:
		b.Log.InfoContext(ctx, "booted a template", "template", t.Name, "took", time.Since(begin))
		b.removeSave(ctx, t.Name, was)
	case ctx.Err() == nil:
		b.Log.WarnContext(ctx, "failed to boot a template; its sandboxes boot on their own", "template", t.Name, "err", err)
	}
}

// imageOf returns the image of a template's sandboxes.
func (b *boots) imageOf(ctx context.Context, t *brig.Template) (*brig.Image, error) {
	img, err := b.images.resolveImage(ctx, t.Image)
	if err != nil && t.StandIn != "" {
		img, err = b.images.resolveImage(ctx, t.StandIn)
	}
	return img, err
}

// restore creates the instance of a sandbox as a copy of its template.
func (b *boots) restore(ctx context.Context, m *machine, spec brig.Spec) (brig.Instance, error) {
	saver, err := saverAt(m.backend)
	if err != nil {
		return nil, err
	}
	m.booted.using.RLock()
	defer m.booted.using.RUnlock()
	in, err := saver.Restore(ctx, m.booted.save, m.rec.ID, spec, m.rec.Expires.Add(saveAllowance(spec)))
	failpoint.Hit("boot.restored")
	return in, err
}

// attach takes over the running programs of a copy. The copy is in the state Creating, so no other
// call can use it yet.
func (b *boots) attach(ctx context.Context, m *machine) error {
	a, err := b.getAccount(ctx, m.rec.Tenant)
	if err != nil {
		return err
	}
	carried, err := b.pauser.programs.reserveCarried(a, m.rec, m.booted.executions, true)
	if err != nil {
		return err
	}
	m.notes = append(m.notes, fmt.Sprintf("template: a copy of the sandbox that booted at %s", m.booted.at.UTC().Format(time.RFC3339)))
	return b.interpreters.continueCopy(ctx, m, carried, m.booted.at)
}

// discard drops a save that cannot be restored, and boots the template again.
func (b *boots) discard(ctx context.Context, template string, booted *bootedTemplate) {
	b.mu.Lock()
	current := b.byTemplate[template] == booted
	if current {
		delete(b.byTemplate, template)
	}
	b.mu.Unlock()
	if !current {
		return
	}
	b.background.Go(func() {
		b.removeSave(ctx, template, booted)
		select {
		case b.wake <- struct{}{}:
		default: // a check of all templates is already pending
		}
	})
}

// removeSave removes a save after its last restore.
func (b *boots) removeSave(ctx context.Context, template string, booted *bootedTemplate) {
	if booted == nil {
		return
	}
	booted.using.Lock()
	defer booted.using.Unlock()
	if saver, err := saverAt(b.providers.builtin()); err == nil {
		b.pauser.discardSave(ctx, saver, booted.save, "template", template)
	}
}

// boot boots a template in an instance that belongs to no tenant, and saves it.
func (b *boots) boot(ctx context.Context, t *brig.Template, img *brig.Image) (*bootedTemplate, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout+t.ReadyTimeout)
	defer cancel()
	backend := b.providers.builtin()
	saver, err := saverAt(backend)
	if err != nil {
		return nil, err
	}
	m, err := b.newMachine(t, backend, img)
	if err != nil {
		return nil, err
	}
	release, err := b.capacity.Acquire(ctx, "", time.Now())
	if err != nil {
		return nil, err
	}
	defer release()
	begin := time.Now()
	spec := m.rec.Spec
	spec.Image = img.Digest
	m.in, err = backend.Provider.Create(ctx, m.rec.ID, spec, m.rec.Expires)
	b.reportCreation(backend.ID, brig.MadePool, begin, err)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("boot.made")
	defer func() {
		b.pauser.lifecycle.unregister(m.rec.ID)
		b.machines.destroyAsync(ctx, m.rec.ID, m.in)
	}()
	release() // the template's programs may take arbitrarily long
	if err := b.machines.verifyEnforcement(ctx, m); err != nil {
		return nil, err
	}
	if err := b.machines.startTemplateCommands(ctx, m, t); err != nil {
		return nil, err
	}
	if err := b.startInterpreter(ctx, t, m); err != nil {
		return nil, err
	}
	if err := b.pauser.prepareSave(ctx, saver, m.rec, m.in); err != nil {
		return nil, err
	}
	id := brig.SaveID(newID())
	save, err := b.pauser.saveDetached(ctx, saver, m.rec, m.in, id, brig.SaveOptions{})
	if err != nil {
		return nil, err
	}
	failpoint.Hit("boot.saved")
	return &bootedTemplate{
		image: img.Digest, limits: m.rec.Spec.Limits, save: id, executions: b.takeCarried(m.rec.ID).release(), at: save.At,
	}, nil
}

// newMachine returns a machine without an instance, whose record is not stored.
func (b *boots) newMachine(t *brig.Template, backend *placement.Backend, img *brig.Image) (*machine, error) {
	spec, err := withImageDefaults(img, t.Apply(brig.Spec{Name: newName("boot-"), Pausable: true}))
	if err != nil {
		return nil, err
	}
	if spec.Limits, err = b.LimitRange.Fill(spec.Limits); err != nil {
		return nil, err
	}
	spec.TTL = pooledTTL
	now := b.Now().UTC()
	own := &account{Account: quota.New(b.Now, brig.Tenant{}, b.LimitRange, nil), records: newCtxMutex(), workspaces: newCtxMutex()}
	return &machine{backend: backend, img: img, account: own, rec: &brig.Record{Sandbox: brig.Sandbox{
		ID: newID(), Spec: spec, State: brig.Creating, Provider: backend.ID, Digest: img.Digest, Created: now, Expires: now.Add(spec.TTL),
	}}}, nil
}

// startInterpreter starts a Python interpreter that imports the template's modules. In each copy,
// the interpreter waits for the first context.
func (b *boots) startInterpreter(ctx context.Context, t *brig.Template, m *machine) error {
	if len(t.Imports) == 0 {
		return nil
	}
	lang, ok := interpreter.Lookup(brig.Python)
	if !ok {
		return errors.New("there is no driver for Python")
	}
	s, err := b.openSession(ctx, m.in, "", newExecID(), lang, brig.Command{})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	err = s.Import(t.Imports)
	stop()
	if err != nil {
		s.Close()
		return brig.Errorf(brig.CreationFailed, "template %q: %s", t.Name, err)
	}
	if s = b.interpreters.carriedSession(ctx, m.rec, m.in, s); s == nil {
		return errors.New("the interpreter cannot be saved")
	}
	defer s.Close()
	note, err := json.Marshal(reattachState{Idle: brig.Python, Context: brig.CodeContext{Flavor: s.Flavor, Version: s.Version}, Nonces: s.Nonces})
	if err != nil {
		return fmt.Errorf("encode the state of an interpreter: %w", err)
	}
	return m.in.Keep(ctx, s.Process, note)
}
