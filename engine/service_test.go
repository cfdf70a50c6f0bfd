package engine_test

import (
	"context"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/servicetest"
)

// The engine keeps the promises of brig.Service. The client keeps the same
// ones through the door, in e2e, which may wire rooms together.
func TestService(t *testing.T) {
	tenant := func(name string) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: name, Role: brig.Operator, Key: "k" + name})
		}
	}
	h := newHouse(t, nil)
	servicetest.Run(t, servicetest.Harness{Service: h, Context: tenant("acme"), OtherContext: tenant("rival")})
	h.Close() // who ran a program does not wait for its machine's end
	if left := h.provider.Machines(); len(left) != 0 {
		t.Errorf("machines %v are left", left)
	}
}
