package engine_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// tricky is a provider that counts what is done to its machines, and lets a
// test have a say in it.
type tricky struct {
	brig.Provider

	mu sync.Mutex // guards the fields below
	tricks
	creates  int
	made     map[brig.ID]*trickyInstance // and not destroyed
	binds    map[brig.ID][]string        // for whom, by a variable of the spec
	most     int                         // that there were at once
	open     int                         // processes that were not closed
	procs    []*trickyProcess
	severed  chan struct{}
	destroys map[brig.ID]int
	shells   []brig.ID // machines whose shell did nothing, in order
}

// tricks, when set, are asked first; what they return is the error.
type tricks struct {
	create  func(context.Context, brig.ID) error
	bind    func(*trickyInstance) error
	start   func(*trickyInstance) error
	destroy func(*trickyInstance) error
	exec    func(brig.Command) error
}

type trickyInstance struct {
	brig.Instance
	p  *tricky
	id brig.ID
}

type trickyProcess struct {
	brig.Process
	p      *tricky
	closed func()
}

func (p *tricky) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
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
		p.made, p.binds, p.destroys = map[brig.ID]*trickyInstance{}, map[brig.ID][]string{}, map[brig.ID]int{}
	}
	w := &trickyInstance{Instance: in, p: p, id: id}
	p.made[id] = w
	p.most = max(p.most, len(p.made))
	return w, nil
}

func (i *trickyInstance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
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

func (i *trickyInstance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
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

func (i *trickyInstance) Destroy(ctx context.Context) error {
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

func (i *trickyInstance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
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
	i.p.opened(1)
	w := &trickyProcess{proc, i.p, sync.OnceFunc(func() { i.p.opened(-1) })}
	i.p.mu.Lock()
	defer i.p.mu.Unlock()
	i.p.procs = append(i.p.procs, w)
	return w, nil
}

func (i *trickyInstance) Keep(ctx context.Context, p brig.Process, note []byte) error {
	if w, ok := p.(*trickyProcess); ok {
		p = w.Process
	}
	return i.Instance.Keep(ctx, p, note)
}

// sever makes of whoever uses the processes that there are one who is dead:
// it hears nothing and does nothing, until the function is called that sever
// returns.
func (p *tricky) sever() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = make(chan struct{})
	for _, proc := range p.procs {
		_ = proc.Process.Close()
	}
	return func() { close(p.severed) }
}

func (p *tricky) isSevered() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed
}

func (p *trickyProcess) Receive() (brig.From, []byte, error) {
	from, b, err := p.Process.Receive()
	if c := p.p.isSevered(); c != nil {
		<-c
	}
	return from, b, err
}

func (p *trickyProcess) Kill(ctx context.Context) error {
	if p.p.isSevered() != nil {
		return nil
	}
	return p.Process.Kill(ctx)
}

func (p *trickyProcess) Close() error {
	p.closed()
	return p.Process.Close()
}

// play sets the tricks.
func (p *tricky) play(tr tricks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tricks = tr
}

// counted returns how many machines were asked for, how many there were at
// once, and how many processes are open.
func (p *tricky) counted() (creates, most, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates, p.most, p.open
}

func (p *tricky) opened(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// instances returns what there is now.
func (p *tricky) instances() map[brig.ID]*trickyInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.made)
}

// nothingLeft fails the test unless everything is gone and closed. Machines
// that are on record may stay.
func (p *tricky) nothingLeft(t *testing.T) {
	t.Helper()
	if made := p.instances(); len(made) > 0 {
		t.Errorf("%d machines are left", len(made))
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

// bubble runs f with a clock of its own, in a house whose provider is tricky
// and whose engine is at work.
func bubble(t *testing.T, o engine.Options, f func(t *testing.T, h *house, p *tricky)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &tricky{}
		t.Cleanup(func() { // after the engine's end: what went on without it
			for _, in := range p.instances() {
				_ = in.Instance.Destroy(context.WithoutCancel(t.Context()))
			}
		})
		h := newHouse(t, func(all *engine.Options) {
			p.Provider = all.Provider
			all.Provider, all.Pool, all.Capacity, all.KeepRuns = p, o.Pool, o.Capacity, o.KeepRuns
			all.Screen, all.TypeScript = o.Screen, o.TypeScript
			if o.Bounds != (brig.Bounds{}) {
				all.Bounds = o.Bounds
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
		settled()
		f(t, h, p)
	})
}

// pass lets some time go by, and a little more: what a test does next is not
// to fall into the moment in which the pool looks what is missing.
func pass(d time.Duration) {
	time.Sleep(d + 37*time.Millisecond)
	synctest.Wait()
}

// settled lets the pool do what it does.
func settled() { pass(time.Second) }

func ofTenant(t *testing.T, name string) context.Context {
	return brig.WithActor(t.Context(), brig.Actor{Name: name, Tenant: name, Role: brig.Operator})
}

// shelves is what the pool says of itself.
func (h *house) shelves(t *testing.T) []brig.PoolShelf {
	t.Helper()
	list, err := h.Pool(as(t, brig.Operator))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// shelf is the pool's only shelf.
func (h *house) shelf(t *testing.T) brig.PoolShelf {
	t.Helper()
	list := h.shelves(t)
	if len(list) != 1 {
		t.Fatalf("the pool has %d shelves, want one: %+v", len(list), list)
	}
	return list[0]
}

// records counts what is on record.
func (h *house) records(t *testing.T) (n int) {
	t.Helper()
	if err := h.store.All(t.Context(), func(*brig.Record) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
