package engine_test

import (
	"context"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/servicetest"
)

// The engine fulfills the contract of brig.Service. The tests in e2e check the same
// contract for the client with an API.
func TestEngineFulfillsServiceContract(t *testing.T) {
	tenant := func(name string) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: name, Role: brig.Operator, Key: "k" + name})
		}
	}
	h := newFixture(t, nil)
	servicetest.Run(t, servicetest.Harness{Service: h, Context: tenant("acme"), OtherContext: tenant("rival")})
	h.Close() // waits for the instance of the last Run, which may still exist
	if machines := h.provider.Machines(); len(machines) != 0 {
		t.Errorf("machines %v are left", machines)
	}
}
