package engine

import (
	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// countAllEgress counts the bytes that sandboxes have sent and received since the
// last count.
func (nw *network) countAllEgress() {
	sessions := map[brig.ID]*egressSession{}
	nw.sandboxes.updateEach(func(id brig.ID, s *sandbox) {
		if s.egress != nil {
			sessions[id] = s.egress
		}
	})
	for id, w := range sessions {
		nw.countEgress(id, w)
	}
}

// endEgress closes the session of a sandbox for good, and then counts its remaining bytes and events.
// The close comes first because it ends pending writes, whose bytes must be counted. The tenant may
// be removed as soon as the reservation of the sandbox has been released, so the caller releases it
// afterwards.
func (nw *network) endEgress(id brig.ID) {
	if w := nw.sandboxes.get(id).egress; w != nil {
		w.close()
		nw.countLast(id, w)
	}
}

// countLast counts the remaining bytes and events of a closed session.
func (nw *network) countLast(id brig.ID, w *egressSession) {
	nw.countEgress(id, w)
	w.mu.Lock()
	rec, session := w.rec, w.session
	w.mu.Unlock()
	if session != nil {
		nw.countSuppressed(rec, w, session)
	}
}

// countSuppressed counts the events that a session could not report. It holds w.mu, so that a
// concurrent call returns only when they are counted.
func (nw *network) countSuppressed(rec *brig.Record, w *egressSession, session *egress.Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := session.TakeSuppressed(); n > 0 {
		nw.noteSuppressed(rec, n)
	}
}

// countEgress counts the bytes that one sandbox has sent and received. If the
// tenant's daily quota is used up, the session denies all traffic until the
// quota allows it again.
func (nw *network) countEgress(id brig.ID, w *egressSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session == nil {
		return
	}
	sent, received := w.session.Usage()
	added := sent + received - w.countedBytes
	kind := brig.KindOf(nw.CountEgress(id, added))
	if kind == brig.FailedPrecondition {
		return // no reservation now; the next count includes the bytes
	}
	w.countedBytes += added
	exhausted := kind == brig.RateLimited
	if exhausted == w.quotaExhausted {
		return
	}
	w.quotaExhausted = exhausted
	rules := w.rules
	if exhausted {
		rules = brig.Egress{}
	}
	w.session.Update(rules)
}
