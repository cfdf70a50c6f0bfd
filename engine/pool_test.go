package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// warm asks for n interpreters of Python at all times.
func warm(n int) engine.Options {
	return engine.Options{Pool: engine.PoolOptions{
		Memory: brig.GiB, Warm: []engine.Warm{{Image: brig.HostImage, Language: brig.Python, Count: n}},
	}}
}

// python is a program in the fake's language, of which a variable says whose.
func python(owner string) brig.Program {
	return brig.Program{Language: brig.Python, Code: "env OWNER", Env: map[string]string{"OWNER": owner}}
}

func mustRun(t *testing.T, h *house, p brig.Program, want brig.PoolUse) *brig.Outcome {
	t.Helper()
	o, err := h.Run(as(t, brig.Operator), p, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Pool != want {
		t.Errorf("it was a %q, want a %q", o.Pool, want)
	}
	if want := p.Env["OWNER"] + "\n"; string(o.Stdout.Head) != want {
		t.Errorf("it wrote %q, want %q", o.Stdout.Head, want)
	}
	return o
}

func TestPoolHitAndRefill(t *testing.T) {
	bubble(t, warm(3), func(t *testing.T, h *house, p *tricky) {
		if s := h.shelf(t); s.Target != 3 || s.Ready != 3 || s.Making != 0 || s.Language != brig.Python || s.Image != "sha256:host" {
			t.Fatalf("when all is quiet: %+v", s)
		}
		// No time passes while they run, and so none is made meanwhile.
		for i, want := range []brig.PoolUse{brig.PoolHit, brig.PoolHit, brig.PoolHit, brig.PoolMiss} {
			if o := mustRun(t, h, python(fmt.Sprint("ann", i)), want); !strings.HasPrefix(o.Sandbox, "py-") {
				t.Errorf("its sandbox is called %q", o.Sandbox)
			}
		}
		settled()
		if s := h.shelf(t); s.Ready < 3 || s.Hits != 3 || s.Misses != 1 || s.Failed != 0 {
			t.Errorf("after a while: %+v", s)
		}
		mustRun(t, h, python("ann"), brig.PoolHit)

		// What is not of the kind that waits is none of the pool's.
		other := python("ann")
		other.Limits.Memory = 256 * brig.MiB
		mustRun(t, h, other, brig.PoolMiss)
		root := python("ann")
		root.User = "root"
		mustRun(t, h, root, brig.PoolMiss)
		// How much of the output is kept is nothing that a machine knows of.
		short := python("ann")
		short.Limits.Output = 2 * brig.KiB
		settled()
		mustRun(t, h, short, brig.PoolHit)
		named := python("ann")
		named.Name = "mine"
		if o := mustRun(t, h, named, brig.PoolHit); o.Sandbox != "mine" {
			t.Errorf("it is called %q", o.Sandbox)
		}
		h.Close()
		p.nothingLeft(t)
	})
}

func TestNoPoolSaysNeither(t *testing.T) {
	bubble(t, engine.Options{}, func(t *testing.T, h *house, p *tricky) {
		mustRun(t, h, python("ann"), "")
		if list := h.shelves(t); len(list) != 0 {
			t.Errorf("shelves %+v", list)
		}
		pass(time.Hour)
		if n, _, _ := p.counted(); n != 1 {
			t.Errorf("%d machines were made for one program", n)
		}
	})
}

// A sandbox that is created takes the machine of an interpreter, and its first
// context takes the interpreter.
func TestCreateFromPool(t *testing.T) {
	bubble(t, warm(1), func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Operator)
		s, err := h.Create(ctx, brig.Spec{Name: "mine", Env: map[string]string{"OWNER": "ann"}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if s.Pool != brig.PoolHit || s.Spec.Name != "mine" || s.State != brig.Running || s.Spec.Ephemeral || s.Spec.Blank {
			t.Errorf("created %+v", s)
		}
		_, _, before := p.counted()
		res, err := h.RunCode(ctx, "mine", brig.Code{Source: "env OWNER\nset x 1"}, nil)
		if err != nil || string(res.Stdout.Head) != "ann\n" {
			t.Errorf("in its first context: %+v, %v", res, err)
		}
		if _, _, now := p.counted(); now != before {
			t.Errorf("the first context started an interpreter of its own")
		}
		if err := h.Remove(ctx, "mine"); err != nil {
			t.Fatal(err)
		}
		// One whose program comes first has no use for it.
		settled()
		s, err = h.Create(ctx, brig.Spec{Name: "main", Command: &brig.Command{Argv: []string{"sleep", "1"}}})
		if err != nil || s.Pool != "" {
			t.Errorf("with a main program: %+v, %v", s, err)
		}
		if err := h.Remove(ctx, "main"); err != nil {
			t.Fatal(err)
		}
		h.Close()
		p.nothingLeft(t)
	})
}

// reused says which machines were bound to more than one program. That none
// ever is, is what keeps one tenant's secrets from the next.
func reused(p *tricky) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, owners := range p.binds {
		if len(owners) > 1 {
			out = append(out, fmt.Sprintf("%s for %v", id, owners))
		}
	}
	return out
}

// rush has five tenants run programs and commands, all at once.
func rush(t *testing.T, h *house, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			owner := fmt.Sprintf("t%d-%d", i%5, i)
			program := python(owner)
			if i%4 == 0 {
				program = brig.Program{Command: []string{"env", "OWNER"}, Env: program.Env}
			}
			o, err := h.Run(ofTenant(t, fmt.Sprint("t", i%5)), program, brig.IO{})
			if err != nil {
				t.Errorf("%s: %v", owner, err)
				return
			}
			if string(o.Stdout.Head) != owner+"\n" {
				t.Errorf("%s was told %q", owner, o.Stdout.Head)
			}
		})
		if i%10 == 9 {
			wg.Wait()
			time.Sleep(50 * time.Millisecond)
		}
	}
	wg.Wait()
}

func bothKinds() engine.Options {
	o := warm(5)
	o.Pool.Warm = append(o.Pool.Warm, engine.Warm{Image: brig.HostImage, Count: 5})
	return o
}

// A machine is claimed once and never comes back.
func TestMachinesAreUsedOnce(t *testing.T) {
	const n = 200
	bubble(t, bothKinds(), func(t *testing.T, h *house, p *tricky) {
		rush(t, h, n)
		if list := reused(p); len(list) > 0 {
			t.Errorf("machines were used again: %v", list)
		}
		hits := int64(0)
		for _, s := range h.shelves(t) {
			hits += s.Hits
		}
		if hits < n/4 {
			t.Errorf("only %d of %d came from the pool: this shows nothing", hits, n)
		}
		events, err := h.store.Events(t.Context(), 10*n)
		if err != nil {
			t.Fatal(err)
		}
		whose := map[brig.ID]string{}
		for _, e := range events {
			if e.Phase != brig.Finish {
				continue
			}
			if other, again := whose[e.Sandbox]; again || e.Sandbox == "" {
				t.Errorf("sandbox %q was %s's and is %s's", e.Sandbox, other, e.Tenant)
			}
			whose[e.Sandbox] = e.Tenant
		}
		if len(whose) != n {
			t.Errorf("%d runs are on record, want %d", len(whose), n)
		}
		h.Close()
		p.nothingLeft(t)
	})
}

// The test above must be able to fail: here a pool puts machines back.
func TestReuseIsSeen(t *testing.T) {
	bubble(t, bothKinds(), func(t *testing.T, h *house, p *tricky) {
		p.play(tricks{
			bind: func(in *trickyInstance) error {
				h.Reshelve(in.id, in)
				return nil
			},
			destroy: func(*trickyInstance) error { return errors.New("it is still of use") },
		})
		for i := range 3 {
			// What becomes of a program whose machine is another's is not the point.
			_, _ = h.Run(ofTenant(t, fmt.Sprint("t", i)), brig.Program{Command: []string{"env", "OWNER"}}, brig.IO{})
		}
		if len(reused(p)) == 0 {
			t.Error("machines were put back, and nobody noticed")
		}
		p.play(tricks{})
		pass(5 * time.Minute)
	})
}

// A machine that dies while it waits is handed to nobody, and another takes
// its place.
func TestDeathOnTheShelf(t *testing.T) {
	bubble(t, warm(3), func(t *testing.T, h *house, p *tricky) {
		dead := p.instances()
		for _, in := range dead {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.Run(as(t, brig.Operator), python("ann"), brig.IO{}); err != nil { // nobody had time to notice
			t.Error(err)
		}
		settled()
		now := p.instances()
		for id := range dead {
			if now[id] != nil || len(p.binds[id]) > 0 {
				t.Errorf("the dead machine %s is still there, or was bound for %q", id, p.binds[id])
			}
		}
		if s := h.shelf(t); s.Ready != 3 || len(now) != 3 {
			t.Errorf("%d machines, and the shelf is %+v", len(now), s)
		}
		// One that dies a moment before the end of all.
		for _, in := range now {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
			break
		}
		mustRun(t, h, python("ann"), brig.PoolHit)
		h.Close()
		p.nothingLeft(t)
	})
}

func TestPoolMemory(t *testing.T) {
	o := warm(10)
	o.Pool.Each, o.Pool.Memory = 32*brig.MiB, 4*32*brig.MiB+1
	o.Pool.Warm = append(o.Pool.Warm, engine.Warm{Image: brig.HostImage, Language: brig.Bash, Count: 1})
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		pass(time.Minute)
		if _, most, _ := p.counted(); len(p.instances()) != 4 || most != 4 {
			t.Errorf("%d machines wait, at most %d did, want 4", len(p.instances()), most)
		}
		ready := map[brig.Language]int{}
		for _, s := range h.shelves(t) {
			ready[s.Language] = s.Ready
		}
		if ready[brig.Bash] != 1 || ready[brig.Python] != 3 {
			t.Errorf("ready are %v: the shelf that is the furthest behind comes first", ready)
		}
	})
}

// The pool follows what is asked for: what came in a moment may come again,
// and after a while without it nothing waits and nothing is remembered.
func TestPoolFollowsDemand(t *testing.T) {
	o := engine.Options{Pool: engine.PoolOptions{Memory: brig.GiB, Most: 15}}
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		if list := h.shelves(t); len(list) != 0 {
			t.Fatalf("before anybody asked: %+v", list)
		}
		mustRun(t, h, python("ann"), brig.PoolMiss)
		pass(time.Minute)
		if s := h.shelf(t); s.Target != 1 || s.Ready != 1 {
			t.Errorf("after one: %+v", s)
		}
		for i := range 9 {
			use := brig.PoolMiss
			if i == 0 {
				use = brig.PoolHit
			}
			mustRun(t, h, python("ann"), use)
		}
		pass(time.Minute)
		if s := h.shelf(t); s.Target != 9 || s.Ready != 9 {
			t.Errorf("after a burst of 9: %+v", s)
		}
		// The next burst finds all it needs. One that comes alone changes nothing.
		for range 9 {
			mustRun(t, h, python("ann"), brig.PoolHit)
		}
		pass(5 * time.Minute)
		mustRun(t, h, python("ann"), brig.PoolHit)
		settled()
		if s := h.shelf(t); s.Target != 9 || s.Ready != 9 {
			t.Errorf("after one that came alone: %+v", s)
		}
		pass(6 * time.Minute) // 11 since the burst, 6 since the last
		if s := h.shelf(t); s.Target != 1 || s.Ready != 1 || len(p.instances()) != 1 {
			t.Errorf("when the burst is forgotten: %+v, %d machines", s, len(p.instances()))
		}
		pass(5 * time.Minute)
		if list := h.shelves(t); len(list) != 0 || len(p.instances()) != 0 {
			t.Errorf("when all is forgotten: %+v, %d machines", list, len(p.instances()))
		}
		for range 40 {
			if _, err := h.Run(as(t, brig.Member), python("ann"), brig.IO{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // until what was used is gone
		}
		pass(time.Minute)
		if s := h.shelf(t); s.Target != 15 || s.Ready != 15 {
			t.Errorf("more than the most of one kind: %+v", s)
		}
		if _, most, _ := p.counted(); most > 16 {
			t.Errorf("there were %d machines at once, want at most those that wait and the one in use", most)
		}
	})
}

// An image that goes takes what waits with it, what is being made included.
func TestRemoveImageEmptiesItsShelf(t *testing.T) {
	bubble(t, warm(2), func(t *testing.T, h *house, p *tricky) {
		ctx := as(t, brig.Operator)
		going, goOn := make(chan struct{}), make(chan struct{})
		p.play(tricks{create: func(context.Context, brig.ID) error {
			going <- struct{}{}
			<-goOn
			return nil
		}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustRun(t, h, python("ann"), brig.PoolHit)
		}()
		<-going // the one that takes its place
		<-done
		if err := h.RemoveImage(ctx, brig.HostImage); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(p.instances()); n != 0 {
			t.Errorf("%d machines of an image that was removed", n)
		}
		close(goOn)
		synctest.Wait()
		if list, n := h.shelves(t), len(p.instances()); n != 0 || len(list) != 0 {
			t.Errorf("what was being made: %d machines, shelves %+v", n, list)
		}
		h.Close()
		p.nothingLeft(t)
	})
}

// What cannot be made is tried again, less and less often, and what can be
// again is.
func TestRefillBacksOff(t *testing.T) {
	o := warm(2)
	bubble(t, o, func(t *testing.T, h *house, p *tricky) {
		p.play(tricks{create: func(context.Context, brig.ID) error { return errors.New("no") }})
		for range 2 {
			mustRunHit(t, h)
		}
		before, _, _ := p.counted()
		pass(10 * time.Minute)
		after, _, _ := p.counted()
		p.play(tricks{})
		tries := after - before
		if tries < 5 || tries > 30 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		if s := h.shelf(t); s.Failed < int64(tries) || s.Ready != 0 || s.Making != 0 {
			t.Errorf("meanwhile the shelf is %+v", s)
		}
		pass(2 * time.Minute)
		if s := h.shelf(t); s.Ready != 2 {
			t.Errorf("afterwards it is %+v", s)
		}
	})
}

func mustRunHit(t *testing.T, h *house) {
	t.Helper()
	mustRun(t, h, python("ann"), brig.PoolHit)
}

// An interpreter that does not start is a failure as well, and leaves nothing.
func TestRefillWithoutInterpreter(t *testing.T) {
	bubble(t, warm(2), func(t *testing.T, h *house, p *tricky) {
		for _, in := range p.instances() {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
		}
		p.play(tricks{start: func(in *trickyInstance) error { return in.Stop(t.Context(), 0, brig.Crashed) }})
		pass(5 * time.Minute)
		h.Close()
		p.nothingLeft(t)
	})
}

// Close ends what waits, and nothing is made after it.
func TestCloseEmptiesThePool(t *testing.T) {
	bubble(t, bothKinds(), func(t *testing.T, h *house, p *tricky) {
		mustRunHit(t, h)
		if len(p.instances()) < 9 {
			t.Fatalf("%d machines", len(p.instances()))
		}
		h.Close()
		pass(time.Minute)
		p.nothingLeft(t)
	})
	bubble(t, warm(3), func(t *testing.T, h *house, p *tricky) {
		p.play(tricks{create: func(ctx context.Context, _ brig.ID) error { // as slow as can be
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		mustRunHit(t, h)
		settled()
		h.Close()
		p.nothingLeft(t)
	})
}

// A machine that is bound when it dies, or cannot be bound, leaves nothing.
func TestBindFails(t *testing.T) {
	for what, f := range map[string]func(*trickyInstance) error{
		"an error":  func(*trickyInstance) error { return errors.New("no") },
		"its death": func(in *trickyInstance) error { return in.Stop(context.Background(), 0, brig.Crashed) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, warm(1), func(t *testing.T, h *house, p *tricky) {
				p.play(tricks{bind: f})
				ctx := as(t, brig.Operator)
				if _, err := h.Run(ctx, python("ann"), brig.IO{}); err == nil {
					t.Error("Run says nothing")
				}
				settled()
				if _, err := h.Create(ctx, brig.Spec{Name: "mine"}); err == nil {
					t.Error("Create says nothing")
				}
				if n := h.records(t); n != 0 {
					t.Errorf("%d records are left", n)
				}
				settled()
				if s := h.shelf(t); s.Ready == 0 || s.Ready != len(p.instances()) {
					t.Errorf("%d machines, want those that wait: %+v", len(p.instances()), s)
				}
				h.Close()
				p.nothingLeft(t)
			})
		})
	}
}

// A server that dies while it binds leaves nothing that the next does not end.
func TestServerDiesWhileBinding(t *testing.T) {
	for what, call := range map[string]func(*testing.T, *house) error{
		"run": func(t *testing.T, h *house) error {
			_, err := h.Run(as(t, brig.Operator), python("ann"), brig.IO{})
			return err
		},
		"create": func(t *testing.T, h *house) error { _, err := h.Create(as(t, brig.Operator), brig.Spec{}); return err },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, warm(1), func(t *testing.T, h *house, p *tricky) {
				p.play(tricks{bind: func(in *trickyInstance) error {
					synctest.Wait() // for what is written beside the call: the dead write nothing later
					next := engine.New(t.Context(), engine.Options{Store: h.store, Provider: p, Images: images{}, Bounds: brig.DefaultBounds()})
					defer next.Close()
					if err := next.Recover(t.Context()); err != nil {
						t.Errorf("Recover: %v", err)
					}
					if n := h.records(t); n != 0 {
						t.Errorf("%d records are left", n)
					}
					if m := h.provider.Machines(); len(m) != 0 {
						t.Errorf("machines %v are left", m)
					}
					return errors.New("the server died")
				}})
				if call(t, h) == nil {
					t.Error("no error")
				}
			})
		})
	}
}

// However the store fails, no machine from the pool and no interpreter
// outlives the call.
func TestClaimNeverLeaks(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for what, call := range map[string]func(*testing.T, *house) error{
			"run": func(t *testing.T, h *house) error {
				_, err := h.Run(as(t, brig.Operator), python("ann"), brig.IO{})
				return err
			},
			"create": func(t *testing.T, h *house) error { _, err := h.Create(as(t, brig.Operator), brig.Spec{}); return err },
		} {
			t.Run(fmt.Sprintf("%s, put %d", what, n), func(t *testing.T) {
				store := &faulty{n: n}
				o := warm(1)
				bubble(t, o, func(t *testing.T, h *house, p *tricky) {
					store.Store = h.store
					h.Engine.Options.Store = store
					err := call(t, h)
					if what == "run" && n == 2 {
						if err != nil { // there is no second Put
							t.Error(err)
						}
					} else if err == nil {
						t.Error("no error")
					}
					if n := h.records(t); n != 0 {
						t.Errorf("%d records are left", n)
					}
					h.Close()
					p.nothingLeft(t)
				})
			})
		}
	}
}

// A machine that does not go is told to again, until it does.
func TestDoomedMachines(t *testing.T) {
	bubble(t, engine.Options{}, func(t *testing.T, h *house, p *tricky) {
		var tries atomic.Int64
		p.play(tricks{destroy: func(*trickyInstance) error {
			if tries.Add(1) < 3 {
				return errors.New("busy")
			}
			return nil
		}})
		mustRun(t, h, python("ann"), "")
		pass(time.Second)
		if n := len(p.instances()); n != 1 || tries.Load() != 1 {
			t.Fatalf("%d machines after %d tries", n, tries.Load())
		}
		if n := h.records(t); n != 0 {
			t.Errorf("%d records: the caller has been told that it is over", n)
		}
		pass(5 * time.Minute)
		if n := len(p.instances()); n != 0 || tries.Load() != 3 {
			t.Errorf("%d machines after %d tries", n, tries.Load())
		}
	})
}
