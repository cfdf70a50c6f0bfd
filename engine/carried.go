package engine

import (
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/quota"
)

// carriedExecs holds the reservations for processes that keep running while this server is detached
// from their instance, or whose save is being restored. The next attachment takes the reservations.
// A nil *carriedExecs is empty.
type carriedExecs struct {
	mu   sync.Mutex // guards the field below
	list []*quota.Reservation
}

// reserveCarried takes reservations for the n processes of a save, if the quota permits them. The
// processes of a copy are separate executions, which count as usage.
func (pg *programs) reserveCarried(a *account, rec *brig.Record, n int, copied bool) ([]*quota.Reservation, error) {
	if n == 0 {
		return nil, nil
	}
	if pg.watchedProcesses.Load()+int64(n) > maxTotalProcesses {
		return nil, newTooManyProcessesError()
	}
	return a.ReserveExecs(rec.Spec.Labels, n, copied)
}

// holdCarried keeps reservations until the sandbox is attached, or has ended.
func (e *env) holdCarried(id brig.ID, list []*quota.Reservation) {
	if len(list) > 0 {
		e.sandboxes.update(id, func(s *sandbox) { s.carried = &carriedExecs{list: list} })
	}
}

// takeCarried removes and returns the reservations that holdCarried stored.
func (e *env) takeCarried(id brig.ID) (c *carriedExecs) {
	e.sandboxes.update(id, func(s *sandbox) { c, s.carried = s.carried, nil })
	return c
}

// next takes one reservation, or returns nil if there are no more.
func (c *carriedExecs) next() *quota.Reservation {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return nil
	}
	r := c.list[0]
	c.list = c.list[1:]
	return r
}

// release releases the reservations that were not taken, and returns their number.
func (c *carriedExecs) release() (n int) {
	for r := c.next(); r != nil; r = c.next() {
		r.Release()
		n++
	}
	return n
}

// number returns the number of reservations that were not taken.
func (c *carriedExecs) number() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

// cancelAll cancels reservations of executions that did not begin.
func cancelAll(list []*quota.Reservation) {
	for _, r := range list {
		r.Cancel()
	}
}
