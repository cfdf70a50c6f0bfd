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

// newPoolOptions returns options with a pool that keeps n Python interpreters ready.
func newPoolOptions(n int) engine.Options {
	return engine.Options{Pool: engine.PoolOptions{
		Memory: brig.GiB, Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Count: n}},
	}}
}

// newPythonProgram returns a program for the fake interpreter, with its owner in an
// environment variable.
func newPythonProgram(ownerLabel string) brig.Program {
	return brig.Program{Language: brig.Python, Code: "env OWNER", Env: map[string]string{"OWNER": ownerLabel}}
}

func mustRun(t *testing.T, h *fixture, p brig.Program, want brig.PoolUse) *brig.Outcome {
	t.Helper()
	o, err := h.Run(withRole(t, brig.Operator), p, brig.IO{})
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

func TestPoolRefillsAfterHit(t *testing.T) {
	withFakeClock(t, newPoolOptions(3), func(t *testing.T, h *fixture, p *hookedProvider) {
		if s := h.poolClass(t); s.Target != 3 || s.Ready != 3 || s.Making != 0 || s.Language != brig.Python || s.Image != "sha256:host" {
			t.Fatalf("when all is quiet: %+v", s)
		}
		// The fake clock does not advance during these runs, so the pool creates no
		// instances.
		for i, want := range []brig.PoolUse{brig.PoolHit, brig.PoolHit, brig.PoolHit, brig.PoolMiss} {
			if o := mustRun(t, h, newPythonProgram(fmt.Sprint("ann", i)), want); !strings.HasPrefix(o.Sandbox, "py-") {
				t.Errorf("its sandbox is called %q", o.Sandbox)
			}
		}
		waitForRefill()
		if s := h.poolClass(t); s.Ready < 3 || s.Hits != 3 || s.Misses != 1 || s.Failed != 0 {
			t.Errorf("after a while: %+v", s)
		}
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)

		// Programs of another kind do not use the pool's instances.
		other := newPythonProgram("ann")
		other.Limits.Memory = 256 * brig.MiB
		mustRun(t, h, other, brig.PoolMiss)
		root := newPythonProgram("ann")
		for _, root.User = range []string{"root", "1234:1235"} {
			mustRun(t, h, root, brig.PoolMiss)
		}
		// The output limit does not prevent the use of a pooled instance.
		short := newPythonProgram("ann")
		short.Limits.Output = 2 * brig.KiB
		waitForRefill()
		mustRun(t, h, short, brig.PoolHit)
		named := newPythonProgram("ann")
		named.SandboxName = "mine"
		if o := mustRun(t, h, named, brig.PoolHit); o.Sandbox != "mine" {
			t.Errorf("it is called %q", o.Sandbox)
		}
		h.Close()
		p.assertClean(t)
	})
}

func TestRunWithoutPoolReportsNoPoolUse(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
		mustRun(t, h, newPythonProgram("ann"), "")
		if list := h.poolClasses(t); len(list) != 0 {
			t.Errorf("shelves %+v", list)
		}
		advance(time.Hour)
		if n, _, _ := p.counts(); n != 1 {
			t.Errorf("%d machines were made for one program", n)
		}
	})
}

// A created sandbox claims an instance with an interpreter, and its first
// context uses that interpreter.
func TestCreateClaimsPooledInterpreter(t *testing.T) {
	withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		s, err := h.Create(ctx, brig.Spec{Name: "mine", Env: map[string]string{"OWNER": "ann"}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if s.Pool != brig.PoolHit || s.Spec.Name != "mine" || s.State != brig.Running || s.Spec.Ephemeral || s.Spec.Blank {
			t.Errorf("created %+v", s)
		}
		_, _, before := p.counts()
		res, err := h.RunCode(ctx, "mine", brig.Code{Source: "env OWNER\nset x 1"}, nil)
		if err != nil || string(res.Stdout.Head) != "ann\n" {
			t.Errorf("in its first context: %+v, %v", res, err)
		}
		if _, _, now := p.counts(); now != before {
			t.Errorf("the first context started an interpreter of its own")
		}
		if err := h.Remove(ctx, "mine"); err != nil {
			t.Fatal(err)
		}
		// A sandbox with a main program does not use the pool.
		waitForRefill()
		s, err = h.Create(ctx, brig.Spec{Name: "main", Command: &brig.Command{Argv: []string{"sleep", "1"}}})
		if err != nil || s.Pool != "" {
			t.Errorf("with a main program: %+v, %v", s, err)
		}
		if err := h.Remove(ctx, "main"); err != nil {
			t.Fatal(err)
		}
		h.Close()
		p.assertClean(t)
	})
}

// findReused returns the instances that were bound to more than one program. A reused
// instance could leak one tenant's secrets to the next.
func findReused(p *hookedProvider) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, owners := range p.binds {
		if len(owners) > 1 {
			out = append(out, fmt.Sprintf("%s for %v", id, owners))
		}
	}
	return out
}

// runConcurrently runs programs and commands of five tenants concurrently.
func runConcurrently(t *testing.T, h *fixture, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			owner := fmt.Sprintf("t%d-%d", i%5, i)
			program := newPythonProgram(owner)
			if i%4 == 0 {
				program = brig.Program{Command: []string{"env", "OWNER"}, Env: program.Env}
			}
			o, err := h.Run(tenantContext(t, fmt.Sprint("t", i%5)), program, brig.IO{})
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

func newMixedPoolOptions() engine.Options {
	o := newPoolOptions(5)
	o.Pool.Warm = append(o.Pool.Warm, engine.WarmClass{Image: brig.HostImage, Count: 5})
	return o
}

// A pooled instance is claimed by one program and never returned to the pool.
func TestPooledInstancesAreUsedOnce(t *testing.T) {
	const n = 200
	withFakeClock(t, newMixedPoolOptions(), func(t *testing.T, h *fixture, p *hookedProvider) {
		runConcurrently(t, h, n)
		if list := findReused(p); len(list) > 0 {
			t.Errorf("machines were used again: %v", list)
		}
		hits := int64(0)
		for _, s := range h.poolClasses(t) {
			hits += s.Hits
		}
		if hits < n/4 {
			t.Errorf("only %d of %d came from the pool: this shows nothing", hits, n)
		}
		events, err := h.store.Events(t.Context(), 10*n)
		if err != nil {
			t.Fatal(err)
		}
		tenantOf := map[brig.ID]string{}
		for _, e := range events {
			if e.Phase != brig.Finish {
				continue
			}
			if other, again := tenantOf[e.Sandbox]; again || e.Sandbox == "" {
				t.Errorf("sandbox %q was %s's and is %s's", e.Sandbox, other, e.Tenant)
			}
			tenantOf[e.Sandbox] = e.Tenant
		}
		if len(tenantOf) != n {
			t.Errorf("%d runs are on record, want %d", len(tenantOf), n)
		}
		h.Close()
		p.assertClean(t)
	})
}

// This is the control for TestPooledInstancesAreUsedOnce: the test reports a pool
// that reuses instances.
func TestPooledInstanceReuseIsDetected(t *testing.T) {
	withFakeClock(t, newMixedPoolOptions(), func(t *testing.T, h *fixture, p *hookedProvider) {
		p.setHooks(hooks{
			bind: func(in *hookedInstance) error {
				h.ReturnToPool(in.id, in)
				return nil
			},
			destroy: func(*hookedInstance) error { return errors.New("it is still of use") },
		})
		for i := range 3 {
			// The result of a program in a reused instance does not matter.
			_, _ = h.Run(tenantContext(t, fmt.Sprint("t", i)), brig.Program{Command: []string{"env", "OWNER"}}, brig.IO{})
		}
		if len(findReused(p)) == 0 {
			t.Error("machines were put back, and nobody noticed")
		}
		p.setHooks(hooks{})
		advance(5 * time.Minute)
	})
}

// The pool replaces an instance that died while it waited, and never hands it out.
func TestDeadPooledInstanceIsReplaced(t *testing.T) {
	withFakeClock(t, newPoolOptions(3), func(t *testing.T, h *fixture, p *hookedProvider) {
		dead := p.instances()
		for _, in := range dead {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.Run(withRole(t, brig.Operator), newPythonProgram("ann"), brig.IO{}); err != nil { // before the pool detects the dead instances
			t.Error(err)
		}
		waitForRefill()
		now := p.instances()
		for id := range dead {
			if now[id] != nil || len(p.binds[id]) > 0 {
				t.Errorf("the dead machine %s is still there, or was bound for %q", id, p.binds[id])
			}
		}
		if s := h.poolClass(t); s.Ready != 3 || len(now) != 3 {
			t.Errorf("%d machines, and the shelf is %+v", len(now), s)
		}
		// Another instance dies shortly before the end of the test.
		for _, in := range now {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
			break
		}
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		h.Close()
		p.assertClean(t)
	})
}

func TestPoolMemoryIsLimited(t *testing.T) {
	o := newPoolOptions(10)
	o.Pool.InstanceMemory, o.Pool.Memory = 32*brig.MiB, 4*32*brig.MiB+1
	o.Pool.Warm = append(o.Pool.Warm, engine.WarmClass{Image: brig.HostImage, Language: brig.Bash, Count: 1})
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		advance(time.Minute)
		if _, maxInstances, _ := p.counts(); len(p.instances()) != 4 || maxInstances != 4 {
			t.Errorf("%d machines wait, at most %d did, want 4", len(p.instances()), maxInstances)
		}
		ready := map[brig.Language]int{}
		for _, s := range h.poolClasses(t) {
			ready[s.Language] = s.Ready
		}
		if ready[brig.Bash] != 1 || ready[brig.Python] != 3 {
			t.Errorf("ready are %v: the shelf that is the furthest behind comes first", ready)
		}
	})
}

// The pool follows the demand: it keeps enough instances for the largest recent
// burst of claims. After a while without claims, it ends all waiting instances and
// drops the class.
func TestPoolFollowsDemand(t *testing.T) {
	o := engine.Options{Pool: engine.PoolOptions{Memory: brig.GiB, MaxPerClass: 15}}
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		if list := h.poolClasses(t); len(list) != 0 {
			t.Fatalf("before anybody asked: %+v", list)
		}
		mustRun(t, h, newPythonProgram("ann"), brig.PoolMiss)
		advance(time.Minute)
		if s := h.poolClass(t); s.Target != 1 || s.Ready != 1 {
			t.Errorf("after one: %+v", s)
		}
		for i := range 9 {
			use := brig.PoolMiss
			if i == 0 {
				use = brig.PoolHit
			}
			mustRun(t, h, newPythonProgram("ann"), use)
		}
		advance(time.Minute)
		if s := h.poolClass(t); s.Target != 9 || s.Ready != 9 {
			t.Errorf("after a burst of 9: %+v", s)
		}
		// The next burst finds enough instances. A single claim does not change
		// the target.
		for range 9 {
			mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		}
		advance(5 * time.Minute)
		mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		waitForRefill()
		if s := h.poolClass(t); s.Target != 9 || s.Ready != 9 {
			t.Errorf("after one that came alone: %+v", s)
		}
		advance(6 * time.Minute) // 11 since the burst, 6 since the last
		if s := h.poolClass(t); s.Target != 1 || s.Ready != 1 || len(p.instances()) != 1 {
			t.Errorf("when the burst is forgotten: %+v, %d machines", s, len(p.instances()))
		}
		advance(5 * time.Minute)
		if list := h.poolClasses(t); len(list) != 0 || len(p.instances()) != 0 {
			t.Errorf("when all is forgotten: %+v, %d machines", list, len(p.instances()))
		}
		for range 40 {
			if _, err := h.Run(withRole(t, brig.Member), newPythonProgram("ann"), brig.IO{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // until the used instances have been destroyed
		}
		advance(time.Minute)
		if s := h.poolClass(t); s.Target != 15 || s.Ready != 15 {
			t.Errorf("more than the most of one kind: %+v", s)
		}
		if _, maxInstances, _ := p.counts(); maxInstances > 16 {
			t.Errorf("there were %d machines at once, want at most those that wait and the one in use", maxInstances)
		}
	})
}

// The removal of an image ends its waiting instances, including those that are
// still being created.
func TestRemoveImageEndsItsPooledInstances(t *testing.T) {
	withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
		ctx := withRole(t, brig.Operator)
		going, goOn := make(chan struct{}), make(chan struct{})
		p.setHooks(hooks{create: func(context.Context, brig.ID) error {
			going <- struct{}{}
			<-goOn
			return nil
		}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
		}()
		<-going // the refill that replaces the claimed one
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
		if list, n := h.poolClasses(t), len(p.instances()); n != 0 || len(list) != 0 {
			t.Errorf("what was being made: %d machines, shelves %+v", n, list)
		}
		h.Close()
		p.assertClean(t)
	})
}

// A failed refill is retried at increasing intervals, and succeeds when the
// provider works again.
func TestRefillBacksOff(t *testing.T) {
	o := newPoolOptions(2)
	withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
		p.setHooks(hooks{create: func(context.Context, brig.ID) error { return errors.New("no") }})
		for range 2 {
			mustRunHit(t, h)
		}
		before, _, _ := p.counts()
		advance(10 * time.Minute)
		after, _, _ := p.counts()
		p.setHooks(hooks{})
		tries := after - before
		if tries < 5 || tries > 30 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		if s := h.poolClass(t); s.Failed < int64(tries) || s.Ready != 0 || s.Making != 0 {
			t.Errorf("meanwhile the shelf is %+v", s)
		}
		advance(2 * time.Minute)
		if s := h.poolClass(t); s.Ready != 2 {
			t.Errorf("afterwards it is %+v", s)
		}
	})
}

func mustRunHit(t *testing.T, h *fixture) {
	t.Helper()
	mustRun(t, h, newPythonProgram("ann"), brig.PoolHit)
}

// An instance whose interpreter does not start is removed.
func TestInstanceWithoutInterpreterIsRemoved(t *testing.T) {
	withFakeClock(t, newPoolOptions(2), func(t *testing.T, h *fixture, p *hookedProvider) {
		for _, in := range p.instances() {
			if err := in.Stop(t.Context(), 0, brig.Crashed); err != nil {
				t.Fatal(err)
			}
		}
		p.setHooks(hooks{start: func(in *hookedInstance) error { return in.Stop(t.Context(), 0, brig.Crashed) }})
		advance(5 * time.Minute)
		h.Close()
		p.assertClean(t)
	})
}

// Close ends the waiting instances, and the pool creates no instances afterwards.
func TestCloseEmptiesThePool(t *testing.T) {
	withFakeClock(t, newMixedPoolOptions(), func(t *testing.T, h *fixture, p *hookedProvider) {
		mustRunHit(t, h)
		if len(p.instances()) < 9 {
			t.Fatalf("%d machines", len(p.instances()))
		}
		h.Close()
		advance(time.Minute)
		p.assertClean(t)
	})
	withFakeClock(t, newPoolOptions(3), func(t *testing.T, h *fixture, p *hookedProvider) {
		p.setHooks(hooks{create: func(ctx context.Context, _ brig.ID) error { // never finishes
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		mustRunHit(t, h)
		waitForRefill()
		h.Close()
		p.assertClean(t)
	})
}

// An instance that dies while it is bound, or that cannot be bound, is removed
// completely.
func TestFailedBindRemovesInstance(t *testing.T) {
	for what, f := range map[string]func(*hookedInstance) error{
		"an error":  func(*hookedInstance) error { return errors.New("no") },
		"its death": func(in *hookedInstance) error { return in.Stop(context.Background(), 0, brig.Crashed) },
	} {
		t.Run(what, func(t *testing.T) {
			withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
				p.setHooks(hooks{bind: f})
				ctx := withRole(t, brig.Operator)
				if _, err := h.Run(ctx, newPythonProgram("ann"), brig.IO{}); err == nil {
					t.Error("Run says nothing")
				}
				waitForRefill()
				if _, err := h.Create(ctx, brig.Spec{Name: "mine"}); err == nil {
					t.Error("Create says nothing")
				}
				if n := h.countRecords(t); n != 0 {
					t.Errorf("%d records are left", n)
				}
				waitForRefill()
				if s := h.poolClass(t); s.Ready == 0 || s.Ready != len(p.instances()) {
					t.Errorf("%d machines, want those that wait: %+v", len(p.instances()), s)
				}
				h.Close()
				p.assertClean(t)
			})
		})
	}
}

// If a server dies while it binds an instance, the next server removes the
// instance.
func TestHalfBoundInstanceIsRemoved(t *testing.T) {
	for what, call := range map[string]func(*testing.T, *fixture) error{
		"run": func(t *testing.T, h *fixture) error {
			_, err := h.Run(withRole(t, brig.Operator), newPythonProgram("ann"), brig.IO{})
			return err
		},
		"create": func(t *testing.T, h *fixture) error {
			_, err := h.Create(withRole(t, brig.Operator), brig.Spec{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			withFakeClock(t, newPoolOptions(1), func(t *testing.T, h *fixture, p *hookedProvider) {
				p.setHooks(hooks{bind: func(in *hookedInstance) error {
					synctest.Wait() // wait for concurrent writes, since a dead server cannot write later
					next := engine.New(t.Context(), engine.Options{Store: h.store, Provider: p, Images: images{}, LimitRange: brig.DefaultLimitRange()})
					defer next.Close()
					if err := next.Recover(t.Context()); err != nil {
						t.Errorf("Recover: %v", err)
					}
					if n := h.countRecords(t); n != 0 {
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

// If a write to the store fails during a claim, no record, instance or interpreter
// is left.
func TestClaimNeverLeaks(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for what, call := range map[string]func(*testing.T, *fixture) error{
			"run": func(t *testing.T, h *fixture) error {
				_, err := h.Run(withRole(t, brig.Operator), newPythonProgram("ann"), brig.IO{})
				return err
			},
			"create": func(t *testing.T, h *fixture) error {
				_, err := h.Create(withRole(t, brig.Operator), brig.Spec{})
				return err
			},
		} {
			t.Run(fmt.Sprintf("%s, put %d", what, n), func(t *testing.T) {
				store := &failNthPut{n: n}
				o := newPoolOptions(1)
				withFakeClock(t, o, func(t *testing.T, h *fixture, p *hookedProvider) {
					store.Store = h.store
					h.Engine.Options.Store = store
					err := call(t, h)
					if what == "run" && n == 2 {
						if err != nil { // without a second Put the call succeeds
							t.Error(err)
						}
					} else if err == nil {
						t.Error("no error")
					}
					if n := h.countRecords(t); n != 0 {
						t.Errorf("%d records are left", n)
					}
					h.Close()
					p.assertClean(t)
				})
			})
		}
	}
}

// The engine retries a failed Destroy until the instance is destroyed.
func TestFailedDestroyIsRetried(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, p *hookedProvider) {
		var tries atomic.Int64
		p.setHooks(hooks{destroy: func(*hookedInstance) error {
			if tries.Add(1) < 3 {
				return errors.New("busy")
			}
			return nil
		}})
		mustRun(t, h, newPythonProgram("ann"), "")
		advance(time.Second)
		if n := len(p.instances()); n != 1 || tries.Load() != 1 {
			t.Fatalf("%d machines after %d tries", n, tries.Load())
		}
		if n := h.countRecords(t); n != 0 {
			t.Errorf("%d records: the caller has been told that it is over", n)
		}
		advance(5 * time.Minute)
		if n := len(p.instances()); n != 0 || tries.Load() != 3 {
			t.Errorf("%d machines after %d tries", n, tries.Load())
		}
	})
}
