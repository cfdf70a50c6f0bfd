package engine

import (
	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
)

// allocation holds the resources of an instance that no sandbox uses yet: a part of the
// tenant's quota, a place at the provider, and the quota of the processes that it brings
// along. The sandbox releases all of it when the instance ends. If the instance never gets
// that far, release does.
type allocation struct {
	env         *env
	backend     *placement.Backend
	reservation *quota.Reservation
	executions  []*quota.Reservation // of processes from a save
}

// allocate reserves a part of the quota and a place at a provider. maxUsers is the
// provider's limit of sandboxes; 0 is none.
func (e *env) allocate(backend *placement.Backend, maxUsers int, reserve func() (*quota.Reservation, error)) (*allocation, error) {
	reservation, err := reserve()
	if err != nil {
		return nil, err
	}
	if err := backend.Acquire(maxUsers); err != nil {
		reservation.Release()
		return nil, err
	}
	return &allocation{env: e, backend: backend, reservation: reservation}, nil
}

// allocateNew allocates a new sandbox for the tenant of a call.
func (e *env) allocateNew(v *call, backend *placement.Backend, maxUsers int, spec brig.Spec) (*allocation, error) {
	return e.allocate(backend, maxUsers, func() (*quota.Reservation, error) {
		p, err := v.account.Reserve(spec)
		if err != nil {
			err = withoutRetry(err) // every other provider would return the same error
		}
		return p, err
	})
}

// release releases everything. The executions have not begun.
func (a *allocation) release() {
	cancelAll(a.executions)
	a.reservation.Release()
	a.env.releaseBackend(a.backend)
}
