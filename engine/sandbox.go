package engine

import (
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/placement"
	"github.com/brig-run/brig/engine/quota"
)

// sandbox is the engine's in-memory state of one sandbox, whose record is in
// the store. The zero value is a sandbox without in-memory state.
//
// The table's mutex guards every field of every sandbox. It is held for
// assignments only; the engine does not call a provider, the store or a part
// while it holds the mutex. The parts that the pointers refer to (contexts,
// processes, idlePauser, egress, reservation) have their own mutexes, which are
// locked without holding the table's.
type sandbox struct {
	// instance is the live instance, and backend its provider. Both are set by adopt and removed by
	// takeInstance.
	instance brig.Instance
	backend  *placement.Backend
	// detached is closed when this server detaches the instance.
	detached chan struct{}
	// reservation is the sandbox's reservation in its tenant's quota.
	// endingOverQuota is true while the engine ends the sandbox because the
	// tenant has used up its time quota.
	reservation     *quota.Reservation
	endingOverQuota bool
	// carried holds the reservations of currently detached processes.
	carried *carriedExecs

	// The parts are created on first use.
	contexts   *contexts
	processes  *processes
	idlePauser *idlePauser
	egress     *egressSession
	refusals   *refusals

	// lease renews the lease while the sandbox is in use. leaseEnd is the end of the lease that a
	// caller has last set for instance, or zero.
	lease    *leaseHold
	leaseEnd time.Time
	// end notifies the holders of the sandbox's permanent end.
	end *endWatch
	// uses lets a pause or a resume replace the instance while no call uses it.
	uses *useGate
	// ending counts the calls that are ending the sandbox.
	ending int
	// commit serializes the commits of the sandbox's workspace.
	commit *commitLock
	// pendingDelete is a record that the store could not delete. It is hidden from callers until a
	// retry deletes it.
	pendingDelete *brig.Record
	// pendingDestroy is an instance whose Destroy failed; the engine retries
	// it.
	pendingDestroy brig.Instance
}

// sandboxes is the table of all sandboxes. A sandbox with the zero value has no entry.
type sandboxes struct {
	mu sync.Mutex
	by map[brig.ID]*sandbox
}

// update calls f with a sandbox, under the table's lock, and stores f's
// changes.
func (t *sandboxes) update(id brig.ID, f func(*sandbox)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.by[id]
	if s == nil {
		s = &sandbox{}
	}
	f(s)
	switch {
	case *s == (sandbox{}):
		delete(t.by, id)
	case t.by == nil:
		t.by = map[brig.ID]*sandbox{id: s}
	default:
		t.by[id] = s
	}
}

// get returns a copy of a sandbox's current state.
func (t *sandboxes) get(id brig.ID) sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.by[id]; s != nil {
		return *s
	}
	return sandbox{}
}

// updateEach calls f with every sandbox, under the table's lock, and stores f's
// changes.
func (t *sandboxes) updateEach(f func(brig.ID, *sandbox)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range t.by {
		if f(id, s); *s == (sandbox{}) {
			delete(t.by, id)
		}
	}
}

// takeInstance removes the live instance and its parts from a sandbox, and
// returns them.
func (t *sandboxes) takeInstance(id brig.ID) (was sandbox) {
	t.update(id, func(s *sandbox) {
		was = *s
		*s = sandbox{lease: s.lease, end: s.end, uses: s.uses, ending: s.ending, commit: s.commit, pendingDelete: s.pendingDelete, pendingDestroy: s.pendingDestroy}
	})
	return was
}
