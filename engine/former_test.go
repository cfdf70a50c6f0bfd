package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A new tenant inherits no data from a removed tenant of the same name. Each row
// creates data for the tenant, and reports whether a tenant has it. As a control,
// it must report true for the former tenant.
func TestNewTenantInheritsNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(h *fixture, op, admin context.Context) error
		// has reports whether the tenant has the data, using the contexts of
		// the operator and of an administrator of the tenant.
		has func(h *fixture, op, admin context.Context) (bool, error)
	}{
		{"routing",
			func(h *fixture, op, _ context.Context) error {
				return h.SetRouting(op, "fresh", brig.Routing{Attempts: 1})
			},
			func(h *fixture, op, _ context.Context) (bool, error) {
				r, err := h.Routing(op, "fresh")
				return err == nil && r.Attempts == 1, err
			}},
		{"quota, ceilings and budget",
			func(h *fixture, op, _ context.Context) error {
				x, err := h.GetTenant(op, "fresh")
				if err != nil {
					return err
				}
				x.Quota.Sandboxes, x.Budget, x.Ceilings.Images = 7, 7, []string{"host"}
				_, err = h.UpdateTenant(op, *x)
				return err
			},
			func(h *fixture, op, _ context.Context) (bool, error) {
				x, err := h.GetTenant(op, "fresh")
				return err == nil && (x.Quota.Sandboxes == 7 || x.Budget == 7 || len(x.Ceilings.Images) > 0), err
			}},
		{"a secret",
			func(h *fixture, _, admin context.Context) error {
				_, err := h.PutSecret(admin, brig.SecretChange{Name: "s", Value: []byte("value")})
				return err
			},
			func(h *fixture, _, admin context.Context) (bool, error) {
				l, err := h.Secrets(admin)
				return len(l) > 0, err
			}},
		{"a session",
			func(h *fixture, _, admin context.Context) error { _, err := h.CreateSession(admin); return err },
			func(h *fixture, op, _ context.Context) (bool, error) {
				l, err := h.Sessions(op, "fresh")
				return len(l) > 0, err
			}},
		{"a key",
			func(h *fixture, op, _ context.Context) error {
				_, err := h.CreateKey(op, brig.KeySpec{Name: "other", Role: brig.Member, Tenant: "fresh"})
				return err
			},
			func(h *fixture, op, _ context.Context) (bool, error) {
				l, err := h.Keys(op, "fresh")
				for _, k := range l {
					if k.Actor.Name == "other" {
						return true, err
					}
				}
				return false, err
			}},
		{"a tool setup with a variable",
			func(h *fixture, _, admin context.Context) error {
				s, err := h.PutToolSetup(admin, brig.ToolSetup{Kind: brig.ToolLocal})
				if err == nil {
					_, err = h.PutToolVariable(admin, brig.ToolVariable{Setup: s.ID, Key: "K", Value: "v"})
				}
				return err
			},
			func(h *fixture, _, admin context.Context) (bool, error) {
				l, err := h.ToolSetups(admin)
				all, allErr := h.store.AllToolVariables(admin)
				if err == nil {
					err = allErr
				}
				return len(l)+len(all) > 0, err
			}},
		{"a workspace",
			func(h *fixture, _, admin context.Context) error { _, err := h.CreateWorkspace(admin, "w"); return err },
			func(h *fixture, _, admin context.Context) (bool, error) {
				l, err := h.Workspaces(admin)
				return len(l) > 0, err
			}},
		{"the outcome of a program",
			func(h *fixture, _, admin context.Context) error {
				_, err := h.Run(admin, brig.Program{SandboxName: "p", Command: []string{"echo"}}, brig.IO{})
				return err
			},
			func(h *fixture, _, admin context.Context) (bool, error) {
				_, err := h.GetRun(admin, "p")
				if brig.KindOf(err) == brig.NotFound {
					return false, nil
				}
				return err == nil, err
			}},
		{"usage",
			func(h *fixture, _, admin context.Context) error {
				_, err := h.Run(admin, brig.Program{Command: []string{"echo"}, Labels: map[string]string{"team": "x"}}, brig.IO{})
				return err
			},
			func(h *fixture, _, admin context.Context) (bool, error) {
				l, err := h.TenantUsage(admin, brig.UsageQuery{})
				for _, x := range l {
					if x.Executions > 0 {
						return true, err
					}
				}
				return false, err
			}},
		{"a sandbox's name and executions",
			func(h *fixture, _, admin context.Context) error {
				_, err := h.Create(admin, brig.Spec{Name: "box"})
				if err == nil {
					_, err = h.Exec(admin, "box", brig.Command{Argv: []string{"echo"}}, brig.IO{})
				}
				return err
			},
			func(h *fixture, _, admin context.Context) (bool, error) {
				l, err := h.ListExecs(admin, "box")
				if brig.KindOf(err) == brig.NotFound {
					return false, nil
				}
				return len(l) > 0, err
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newSeedFixture(t)
			op := withRole(t, brig.Operator)
			admin := h.createTenant(t, op)
			if err := c.make(h, op, admin); err != nil {
				t.Fatal(err)
			}
			if has, err := c.has(h, op, admin); err != nil || !has {
				t.Fatalf("the former tenant does not have it, %v", err)
			}
			h.removeTenant(t, op, admin)
			again := h.createTenant(t, op)
			if has, err := c.has(h, op, again); err != nil || has {
				t.Errorf("the new tenant has it, or %v", err)
			}
		})
	}
}

// createTenant creates the tenant "fresh" and returns the context of its
// administrator.
func (h *fixture) createTenant(t *testing.T, op context.Context) context.Context {
	t.Helper()
	if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"}); err != nil {
		t.Fatal(err)
	}
	admin, _ := h.newKeyHolder(t, op, brig.KeySpec{Name: "a", Role: brig.Admin, Tenant: "fresh"})
	return admin
}

// removeTenant removes the tenant "fresh" with its sandboxes.
func (h *fixture) removeTenant(t *testing.T, op, admin context.Context) {
	t.Helper()
	page, err := h.List(admin, brig.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range page.Sandboxes {
		if err := h.Remove(admin, string(s.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.RemoveTenant(op, "fresh"); err != nil {
		t.Fatal(err)
	}
}

// A tenant does not get the tool packages of a former tenant with the same
// name, because their installation ran the former tenant's code.
func TestFormerTenantPackagesAreNotReused(t *testing.T) {
	h := newFixture(t, withPackages(t))
	op := withRole(t, brig.Operator)
	installed := 0
	h.provider.OnInstall = func() { installed++ }
	use := func(ctx context.Context) {
		t.Helper()
		with := toolReturning("1")
		with.Python = []string{"cowsay"}
		if res, err := h.RunTool(ctx, with); err != nil || res.Error != nil {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	admin := h.createTenant(t, op)
	use(admin)
	first := installed
	h.removeTenant(t, op, admin)
	use(h.createTenant(t, op))
	if first == 0 || installed <= first {
		t.Errorf("packages were installed %d times for the former tenant and %d times in all", first, installed)
	}
}

// An actor that was authenticated for a former tenant is rejected after a new
// tenant with the same name was created, even if an API still uses the actor.
func TestFormerTenantActorIsRejected(t *testing.T) {
	h := newSeedFixture(t)
	op := withRole(t, brig.Operator)
	admin := h.createTenant(t, op)
	if _, err := h.Secrets(admin); err != nil {
		t.Fatal(err)
	}
	grant, err := h.CreateGrant(admin, brig.GrantSpec{Role: brig.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	h.removeTenant(t, op, admin)
	again := h.createTenant(t, op)
	if _, err := h.Secrets(admin); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("with a proof for the former tenant: %v", err)
	}
	if _, err := h.GrantActor(t.Context(), grant.Secret); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("with a grant of the former tenant: %v", err)
	}
	if _, err := h.Secrets(again); err != nil {
		t.Errorf("the control: with a key of the tenant there is now: %v", err)
	}
}

// The removal of a tenant during concurrent changes leaves no data of the tenant.
func TestTenantRemovalRacesWithChanges(t *testing.T) {
	countLeftovers := func(t *testing.T, maxTries int) (n int) {
		for i := 0; i < maxTries && n == 0; i++ {
			h, _, reached := newLimitedStore(t)
			op := withRole(t, brig.Operator)
			admin := h.createTenant(t, op)
			s, err := h.PutToolSetup(admin, brig.ToolSetup{Kind: brig.ToolLocal})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = h.PutSecret(admin, brig.SecretChange{Name: "s", Value: []byte("value")}) })
			wg.Go(func() { _, _ = h.CreateSession(admin) })
			wg.Go(func() { _, _ = h.CreateWorkspace(admin, fmt.Sprint("w", i)) })
			wg.Go(func() { _, _ = h.PutToolVariable(admin, brig.ToolVariable{Setup: s.ID, Key: "K", Value: "v"}) })
			wg.Go(func() { _ = h.SetRouting(op, "fresh", brig.Routing{Attempts: 1}) })
			<-reached // a change is in progress
			if err := h.RemoveTenant(op, "fresh"); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			ctx := t.Context()
			secrets, _ := h.store.Secrets(ctx, "fresh")
			sessions, _ := h.store.Sessions(ctx, "fresh")
			settings, _ := h.store.Settings(ctx)
			variables, _ := h.store.AllToolVariables(ctx)
			workspaces, err := h.Workspaces(h.createTenant(t, op))
			if err != nil {
				t.Fatal(err)
			}
			n += len(secrets) + len(sessions) + len(settings) + len(variables) + len(workspaces)
		}
		return n
	}
	if n := countLeftovers(t, 5); n > 0 {
		t.Errorf("%d things are left of tenants that are gone", n)
	}
	t.Run("without turns", func(t *testing.T) {
		engine.DisableLocks(t)
		if countLeftovers(t, 100) == 0 {
			t.Error("the control left nothing")
		}
	})
}
