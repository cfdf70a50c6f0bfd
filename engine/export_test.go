package engine

import (
	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// Brokered are the secrets of a sandbox that requests may carry.
func (e *Engine) Brokered(rec *brig.Record) []egress.Secret { return e.brokered(rec) }

// Reshelve puts a machine that was claimed back, as no pool may.
func (e *Engine) Reshelve(id brig.ID, in brig.Instance) {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	for _, s := range e.pool.shelves {
		if s.language == "" {
			s.ready = append(s.ready, &waiting{id: id, name: "again", in: in})
		}
	}
}
