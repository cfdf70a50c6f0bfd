package engine_test

import (
	"context"
	"io"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// hookedProvider is a provider that counts the calls of its instances and lets
// a test intercept them.
type hookedProvider struct {
	brig.Provider

	mu sync.Mutex // guards the fields below
	hooks
	creates      int
	made         map[brig.ID]*hookedInstance // the instances that are not destroyed
	binds        map[brig.ID][]string        // the owners, from a variable of the spec
	maxInstances int                         // the largest number of instances at the same time
	open         int                         // number of open processes
	procs        []*hookedProcess
	disconnected chan struct{}
	destroys     map[brig.ID]int
	shells       []brig.ID // instances whose shell ran the empty command, in order
}

// hooks are functions that are called before the methods of the provider. If a hook
// returns an error, the method returns this error.
type hooks struct {
	create  func(context.Context, brig.ID) error
	bind    func(*hookedInstance) error
	start   func(*hookedInstance) error
	destroy func(*hookedInstance) error
	exec    func(brig.Command) error
	kill    func() error // called for a process
	stop    func() error
	pack    func(context.Context, func(brig.Node, io.Reader) error) error // replaces the method
	changed func(context.Context, func(brig.Node, io.Reader) error) error // replaces the method
}

type hookedInstance struct {
	brig.Instance
	p  *hookedProvider
	id brig.ID
}

type hookedProcess struct {
	brig.Process
	p      *hookedProvider
	closed func()
	budget brig.MessageBudget
	sent   int // signals; guarded by p.mu
}

func (p *hookedProvider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	p.mu.Lock()
	p.creates++
	create := p.create
	p.mu.Unlock()
	if create != nil {
		if err := create(ctx, id); err != nil {
			return nil, err
		}
	}
	in, err := p.Provider.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made, p.binds, p.destroys = map[brig.ID]*hookedInstance{}, map[brig.ID][]string{}, map[brig.ID]int{}
	}
	w := &hookedInstance{Instance: in, p: p, id: id}
	p.made[id] = w
	p.maxInstances = max(p.maxInstances, len(p.made))
	return w, nil
}

func (i *hookedInstance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	i.p.mu.Lock()
	i.p.binds[i.id] = append(i.p.binds[i.id], spec.Env["OWNER"])
	bind := i.p.bind
	i.p.mu.Unlock()
	if bind != nil {
		if err := bind(i); err != nil {
			return err
		}
	}
	return i.Instance.Bind(ctx, spec, lease)
}

func (i *hookedInstance) Pack(ctx context.Context, dir string, on func(brig.Node, io.Reader) error) error {
	i.p.mu.Lock()
	pack := i.p.pack
	i.p.mu.Unlock()
	if pack != nil {
		return pack(ctx, on)
	}
	return i.Instance.Pack(ctx, dir, on)
}

func (i *hookedInstance) Changed(ctx context.Context, paths []string, since time.Time, on func(brig.Node, io.Reader) error) error {
	i.p.mu.Lock()
	changed := i.p.changed
	i.p.mu.Unlock()
	if changed != nil {
		return changed(ctx, on)
	}
	return i.Instance.Changed(ctx, paths, since, on)
}

func (i *hookedInstance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	i.p.mu.Lock()
	if cmd.Shell == ":" {
		i.p.shells = append(i.p.shells, i.id)
	}
	exec := i.p.exec
	i.p.mu.Unlock()
	if exec != nil {
		if err := exec(cmd); err != nil {
			return nil, err
		}
	}
	return i.Instance.Exec(ctx, id, cmd, sio)
}

func (i *hookedInstance) Stop(ctx context.Context, grace time.Duration, reason brig.ExitReason) error {
	i.p.mu.Lock()
	stop := i.p.stop
	i.p.mu.Unlock()
	if stop != nil {
		if err := stop(); err != nil {
			return err
		}
	}
	return i.Instance.Stop(ctx, grace, reason)
}

func (i *hookedInstance) Destroy(ctx context.Context) error {
	i.p.mu.Lock()
	destroy := i.p.destroy
	i.p.mu.Unlock()
	if destroy != nil {
		if err := destroy(i); err != nil {
			return err
		}
	}
	i.p.mu.Lock()
	i.p.destroys[i.id]++
	delete(i.p.made, i.id)
	i.p.mu.Unlock()
	return i.Instance.Destroy(ctx)
}

func (i *hookedInstance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	proc, err := i.Instance.Start(ctx, id, cmd, s)
	if err != nil {
		return nil, err
	}
	i.p.mu.Lock()
	start := i.p.start
	i.p.mu.Unlock()
	if start != nil {
		if err := start(i); err != nil {
			return nil, err
		}
	}
	i.p.addOpen(1)
	w := &hookedProcess{Process: proc, p: i.p, closed: sync.OnceFunc(func() { i.p.addOpen(-1) })}
	i.p.mu.Lock()
	defer i.p.mu.Unlock()
	i.p.procs = append(i.p.procs, w)
	return w, nil
}

func (i *hookedInstance) Keep(ctx context.Context, p brig.Process, note []byte) error {
	if w, ok := p.(*hookedProcess); ok {
		p = w.Process
	}
	return i.Instance.Keep(ctx, p, note)
}

// disconnect closes the engine's connections to the existing processes, as if the
// server had died, until the returned function is called.
func (p *hookedProvider) disconnect() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = make(chan struct{})
	for _, proc := range p.procs {
		_ = proc.Process.Close()
	}
	return func() { close(p.disconnected) }
}

func (p *hookedProvider) isDisconnected() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disconnected
}

func (p *hookedProcess) Receive() (brig.From, []byte, error) {
	from, b, err := p.Process.Receive()
	if c := p.p.isDisconnected(); c != nil {
		<-c
	}
	return from, b, err
}

// LimitMessages records the budget without using it, because the fake process
// buffers no messages.
func (p *hookedProcess) LimitMessages(b brig.MessageBudget) {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	p.budget = b
}

// Ahead calls the method of the fake process, which the embedded interface hides.
func (p *hookedProcess) Ahead() (sent []byte, ended bool) {
	if a, ok := p.Process.(interface{ Ahead() ([]byte, bool) }); ok {
		return a.Ahead()
	}
	return nil, false
}

// Signal counts the calls, each of which is a connection to the sandbox.
func (p *hookedProcess) Signal(ctx context.Context, name string) error {
	p.p.mu.Lock()
	p.sent++
	p.p.mu.Unlock()
	return p.Process.Signal(ctx, name)
}

func (p *hookedProcess) Kill(ctx context.Context) error {
	if p.p.isDisconnected() != nil {
		return nil
	}
	p.p.mu.Lock()
	kill := p.p.kill
	p.p.mu.Unlock()
	if kill != nil {
		if err := kill(); err != nil {
			return err
		}
	}
	return p.Process.Kill(ctx)
}

func (p *hookedProcess) Close() error {
	p.closed()
	return p.Process.Close()
}

// setHooks sets the hooks.
func (p *hookedProvider) setHooks(tr hooks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks = tr
}

// counts returns the number of created instances, the largest number that
// existed at the same time, and the number of open processes.
func (p *hookedProvider) counts() (creates, maxInstances, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates, p.maxInstances, p.open
}

func (p *hookedProvider) addOpen(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// instances returns the existing instances.
func (p *hookedProvider) instances() map[brig.ID]*hookedInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.made)
}

// assertClean fails the test unless all instances are destroyed and all
// processes are closed. Instances with a record may remain.
func (p *hookedProvider) assertClean(t *testing.T) {
	t.Helper()
	if instances := p.instances(); len(instances) > 0 {
		t.Errorf("%d machines are left", len(instances))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != 0 {
		t.Errorf("%d processes were not closed", p.open)
	}
	for id, n := range p.destroys {
		if n > 1 {
			t.Errorf("machine %s was destroyed %d times", id, n)
		}
	}
}

// withFakeClock runs f with a fake clock, in a fixture with a hooked provider
// and a recovered engine.
func withFakeClock(t *testing.T, o engine.Options, f func(t *testing.T, h *fixture, p *hookedProvider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &hookedProvider{}
		t.Cleanup(func() { // after the engine has closed, for instances that outlive it
			for _, in := range p.instances() {
				_ = in.Instance.Destroy(context.WithoutCancel(t.Context()))
			}
		})
		h := newFixture(t, func(all *engine.Options) {
			p.Provider = all.Provider
			all.Provider, all.Pool, all.Capacity, all.RunRetention = p, o.Pool, o.Capacity, o.RunRetention
			if c, ok := o.Provider.(*outage); ok {
				c.hookedProvider, all.Provider = p, c
			}
			all.Screen, all.TypeScript = o.Screen, o.TypeScript
			if o.LimitRange != (brig.LimitRange{}) {
				all.LimitRange = o.LimitRange
			}
			if o.Images != nil {
				all.Images = o.Images
			}
			if o.Store != nil {
				all.Store = o.Store
			}
		})
		if err := h.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		waitForRefill()
		f(t, h, p)
	})
}

// advance advances the clock by slightly more than d, so that the next step of
// a test does not coincide with a check of the pool.
func advance(d time.Duration) {
	time.Sleep(d + 37*time.Millisecond)
	synctest.Wait()
}

// waitForRefill waits until the pool has refilled its classes.
func waitForRefill() { advance(time.Second) }

func tenantContext(t *testing.T, name string) context.Context {
	return brig.WithActor(t.Context(), brig.Actor{Name: name, Tenant: name, Role: brig.Operator})
}

// poolClasses returns the status of the pool.
func (h *fixture) poolClasses(t *testing.T) []brig.PoolClass {
	t.Helper()
	list, err := h.Pool(withRole(t, brig.Operator))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// poolClass returns the status of the pool's only class.
func (h *fixture) poolClass(t *testing.T) brig.PoolClass {
	t.Helper()
	list := h.poolClasses(t)
	if len(list) != 1 {
		t.Fatalf("the pool has %d shelves, want one: %+v", len(list), list)
	}
	return list[0]
}

// countRecords returns the number of records in the store.
func (h *fixture) countRecords(t *testing.T) (n int) {
	t.Helper()
	if err := h.store.All(t.Context(), func(*brig.Record) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
