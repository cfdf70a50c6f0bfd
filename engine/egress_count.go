package engine

import (
	"maps"

	"github.com/brig-run/brig"
)

// countWays counts what sandboxes have sent and received since it was last
// asked.
func (e *Engine) countWays() {
	e.mu.Lock()
	ways := maps.Clone(e.ways)
	e.mu.Unlock()
	for id, w := range ways {
		e.countWay(id, w)
	}
}

// countLast counts what a sandbox has left that is about to be dropped.
func (e *Engine) countLast(id brig.ID) {
	e.mu.Lock()
	w := e.ways[id]
	e.mu.Unlock()
	if w != nil {
		e.countWay(id, w)
	}
}

// countWay counts what one sandbox has sent and received. Where that is more
// than its tenant may have today, nothing is let through any more until it may.
func (e *Engine) countWay(id brig.ID, w *way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.countLocked(id, w)
}

// countLocked is countWay for who holds w.mu.
func (e *Engine) countLocked(id brig.ID, w *way) {
	if w.session == nil {
		return
	}
	sent, received := w.session.Usage()
	more := sent + received - w.counted
	w.counted += more
	spent := brig.KindOf(e.CountEgress(id, more)) == brig.RateLimited
	if spent == w.spent {
		return
	}
	w.spent = spent
	rules := w.rules
	if spent {
		rules = brig.Egress{}
	}
	w.session.Update(rules)
}
