package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/testenv"
)

// spinningSandboxes creates n sandboxes of a tenant whose programs use all CPUs, and returns
// their IDs.
func spinningSandboxes(t *testing.T, e *engine.Engine, tenant string, n int) (ids []brig.ID) {
	t.Helper()
	ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Operator})
	cpus := runtime.NumCPU()
	for range n {
		s, err := e.Create(ctx, brig.Spec{Limits: brig.Limits{CPUs: float64(cpus), Memory: 64 * brig.MiB}, Command: &brig.Command{Shell: strings.Repeat("(while :; do :; done) & ", cpus) + "wait"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	return ids
}

// TestTenantsShareCPUs verifies that a tenant with eight busy sandboxes and a tenant with
// one receive about the same CPU time, according to the kernel. In the control, each sandbox has
// its own share, so the single sandbox receives an eighth of the other tenant's CPU time.
//
//suite:part hostile alone
func TestTenantsShareCPUs(t *testing.T) {
	needRoot(t)
	for _, disabled := range []string{"", "shares"} {
		t.Run("without "+disabled, func(t *testing.T) {
			e, _ := newEngine(t, disabled)
			dir := dataDirOf(t, e)
			many, one := spinningSandboxes(t, e, "acme", 8), spinningSandboxes(t, e, "rival", 1)
			used := func(ids []brig.ID) (sum time.Duration) {
				for _, id := range ids {
					sum += cpuTime(t, dir, id)
				}
				return sum
			}
			beforeMany, beforeOne := used(many), used(one)
			var ofMany, ofOne time.Duration
			for end := time.Now().Add(8 * promptTimeout); ofMany+ofOne < time.Duration(testenv.Size(6, 10))*time.Second && time.Now().Before(end); {
				time.Sleep(time.Second)
				ofMany, ofOne = used(many)-beforeMany, used(one)-beforeOne
			}
			t.Logf("eight sandboxes of a tenant used %v, one of another %v", ofMany, ofOne)
			// The ratio is 1 if the tenants have equal shares, and 0.13 if the sandboxes have
			// equal shares. The tolerance is large, because a loaded kernel balances shares
			// across CPUs with a delay.
			if fair := 4*ofOne > ofMany; fair != (disabled == "") {
				t.Errorf("eight sandboxes of a tenant used %v, one of another %v", ofMany, ofOne)
			}
		})
	}
}

// TestBusyTenantYieldsToLightTenant verifies in the cgroup files that the weight of a tenant with busy
// sandboxes decreases while another tenant has a sandbox with low usage, and is restored when no
// other tenant has sandboxes. In the control, all sandboxes keep the same weight.
//
//suite:part hostile
func TestBusyTenantYieldsToLightTenant(t *testing.T) {
	needRoot(t)
	wait := promptTimeout // the control waits several times as long as the decrease took
	for _, disabled := range []string{"", "shares"} {
		t.Run("without "+disabled, func(t *testing.T) {
			e, _ := newEngine(t, disabled)
			dir := dataDirOf(t, e)
			ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "rival", Role: brig.Operator})
			light, err := e.Create(ctx, brig.Spec{Name: "light"})
			if err != nil {
				t.Fatal(err)
			}
			busy := spinningSandboxes(t, e, "acme", 2)
			weigher := func(id brig.ID) string { // returns the group whose weight applies
				if g := cgroupOf(t, dir, id); disabled != "" {
					return g
				} else {
					return filepath.Dir(g)
				}
			}
			normal := weightOf(t, groupOf(t, dir))
			falls := func(id brig.ID, below int) bool {
				for begin := time.Now(); time.Since(begin) < wait; time.Sleep(100 * time.Millisecond) {
					if weightOf(t, weigher(id)) < below {
						wait = min(wait, time.Second+4*time.Since(begin))
						return true
					}
				}
				return false
			}
			if got := falls(busy[0], normal/5); got != (disabled == "") {
				t.Errorf("the weight of the busy tenant is %d", weightOf(t, weigher(busy[0])))
			}
			if got := weightOf(t, weigher(light.ID)); got < normal/2 {
				t.Errorf("the weight of the other tenant is %d", got)
			}
			if disabled != "" {
				return
			}
			if err := e.Remove(ctx, "light"); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(4 * promptTimeout); weightOf(t, weigher(busy[0])) < normal; time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the weight of a tenant alone is %d", weightOf(t, weigher(busy[0])))
				}
			}
		})
	}
}

// TestPooledSandboxesShareWeight verifies that three pooled sandboxes of a tenant together have the
// weight of a single sandbox.
//
//suite:part hostile
func TestPooledSandboxesShareWeight(t *testing.T) {
	needRoot(t)
	e, ctx := engineWith(t, engine.Options{Pool: engine.PoolOptions{Memory: brig.GiB, Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Count: 3}}}})
	dir := dataDirOf(t, e)
	if err := e.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	var ids []brig.ID
	for i := range 3 {
		var s *brig.Sandbox
		for end := time.Now().Add(promptTimeout); ; time.Sleep(50 * time.Millisecond) {
			shelves, err := e.Pool(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(shelves) > 0 && shelves[0].Ready > 0 {
				break
			} else if time.Now().After(end) {
				t.Fatal("nothing waits in the pool")
			}
		}
		s, err := e.Create(ctx, brig.Spec{Name: fmt.Sprintf("box-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(cgroupOf(t, dir, s.ID)) != groupOf(t, dir) {
			t.Fatalf("sandbox %s did not come from the pool", s.ID)
		}
		ids = append(ids, s.ID)
	}
	whole := weightOf(t, filepath.Dir(cgroupOf(t, dir, ids[0])))
	for n := len(ids); n > 0; n-- {
		// The provider updates the weights when it detects the end of a sandbox, possibly after
		// Remove has returned.
		var sum int
		for end := time.Now().Add(promptTimeout); ; time.Sleep(20 * time.Millisecond) {
			sum = 0
			for _, id := range ids[:n] {
				sum += weightOf(t, cgroupOf(t, dir, id))
			}
			if whole*8/10 <= sum && sum <= whole || time.Now().After(end) {
				break
			}
		}
		if sum > whole || sum < whole*8/10 {
			t.Errorf("%d sandboxes of the pool weigh %d together, want about %d", n, sum, whole)
		}
		if err := e.Remove(ctx, fmt.Sprintf("box-%d", n-1)); err != nil {
			t.Error(err)
		}
	}
}

// TestOlderCgroupsAreManaged verifies that a server finds, measures, limits and removes sandboxes in a
// tenant's cgroup, and sandboxes that an older version created without a tenant's cgroup.
//
//suite:part crash
func TestOlderCgroupsAreManaged(t *testing.T) {
	needRoot(t)
	for _, disabled := range []string{"shares", ""} {
		t.Run("without "+disabled, func(t *testing.T) {
			dir := dataDir(t)
			older, _ := newProvider(t, dir, disabled)
			newer, images := newProvider(t, dir)
			img, err := images.Resolve(t.Context(), brig.HostImage)
			if err != nil {
				t.Fatal(err)
			}
			limits, err := brig.DefaultLimitRange().Fill(brig.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			spec := brig.Spec{Name: "box", Image: img.Digest, Limits: limits, TTL: time.Hour, Share: "acme"}
			live := map[brig.ID]bool{}
			var handles []brig.Handle
			ids := []brig.ID{"sbkept", "sbswept"}
			for _, id := range ids {
				in, err := older.Create(t.Context(), id, spec, time.Now().Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				if flat := filepath.Dir(cgroupOf(t, dir, id)) == groupOf(t, dir); flat != (disabled != "") {
					t.Fatalf("the cgroup is %s", cgroupOf(t, dir, id))
				}
				handles = append(handles, in.Handle())
			}
			live[ids[0]] = true
			if n, err := newer.Sweep(t.Context(), live); err != nil || n != 1 {
				t.Errorf("sweep: %d, %v", n, err)
			}
			in, err := newer.Recover(t.Context(), ids[0], handles[0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Usage(t.Context()); err != nil {
				t.Error(err)
			}
			has, err := in.Enforced(t.Context())
			if err != nil || has[brig.AreaMemory].Level != brig.LevelBoundary || has[brig.AreaCPUs].Level != brig.LevelBoundary {
				t.Errorf("%+v, %v", has, err)
			}
			if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			checkNoHostTraces(t, dir)
		})
	}
}
