package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// Authorize performs the same checks as all other calls. Before it calls the
// function, it rejects a role that is too low, a key with other scopes, and a grant
// that is limited to sandboxes. The audit log records the rejection.
func TestAuthorizeIsGated(t *testing.T) {
	for _, op := range slices.Concat(brig.KernelOps, brig.TemplateOps) {
		for who, actor := range map[string]brig.Actor{
			"a weak role":     {Name: "ann", Tenant: "acme", Role: op.Role - 1},
			"another scope":   {Name: "ann", Tenant: "acme", Role: brig.Admin, Scopes: []string{"sandbox.", "context."}},
			"a grant":         {Name: "ann", Tenant: "acme", Role: brig.Admin, Sandboxes: []string{"one"}},
			"nobody's tenant": {Name: "ann", Tenant: "never", Role: brig.Admin},
		} {
			h := newFixture(t, nil)
			err := h.Authorize(brig.WithActor(t.Context(), actor), op, "kernel-1", func(brig.Tenant) error {
				t.Errorf("%s by %s is done", op.Name, who)
				return nil
			})
			if kind := brig.KindOf(err); kind != brig.PermissionDenied && kind != brig.Unauthenticated {
				t.Errorf("%s by %s: %v", op.Name, who, err)
			}
			events, err := h.store.Events(t.Context(), 10)
			if err != nil || len(events) != 1 || events[0].Op != op.Name || events[0].Phase != brig.Refused {
				t.Errorf("%s by %s: events %+v, %v", op.Name, who, events, err)
			}
		}
		h := newFixture(t, nil)
		ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: op.Role, Scopes: []string{"run", "template"}})
		cause := errors.New("a path and a password")
		err := h.Authorize(ctx, op, "kernel-1", func(of brig.Tenant) error {
			if of.Name != "acme" {
				t.Errorf("%s is done for %q", op.Name, of.Name)
			}
			return cause
		})
		if e, ok := errors.AsType[*brig.Error](err); !ok || e.Kind != brig.Internal || strings.Contains(e.Message, "password") {
			t.Errorf("%s: %v", op.Name, err)
		}
		events, err := h.store.Events(t.Context(), 10)
		if want := map[bool]int{true: 2}[op.Changes]; err != nil || len(events) != want || want > 0 && events[0].Detail[brig.DetailName] != "kernel-1" {
			t.Errorf("%s: events %+v, %v", op.Name, events, err)
		}
	}
}

// Calls of Authorize count against the tenant's rate limit. The function receives
// the current tenant, not a removed tenant of the same name.
func TestAuthorizeCountsAgainstRate(t *testing.T) {
	h := newSeedFixture(t)
	op := withRole(t, brig.Operator)
	var since []time.Time
	for range 2 {
		if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh", Quota: brig.Quota{Rate: 5}}); err != nil {
			t.Fatal(err)
		}
		ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "fresh", Role: brig.Member})
		var err error
		for n := 0; err == nil && n < 1000; n++ {
			err = h.Authorize(ctx, brig.OpKernels, "", func(of brig.Tenant) error {
				if n == 0 {
					since = append(since, of.Created)
				}
				return nil
			})
		}
		if brig.KindOf(err) != brig.RateLimited {
			t.Errorf("calls are not counted: %v", err)
		}
		if err := h.RemoveTenant(op, "fresh"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if len(since) != 2 || since[0].Equal(since[1]) {
		t.Errorf("two tenants: %v", since)
	}
}
