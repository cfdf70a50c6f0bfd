package engine

import "github.com/brig-run/brig"

// countAllEgress counts the bytes that sandboxes have sent and received since the
// last count.
func (nw *network) countAllEgress() {
	ways := map[brig.ID]*egressSession{}
	nw.sandboxes.updateEach(func(id brig.ID, s *sandbox) {
		if s.egress != nil {
			ways[id] = s.egress
		}
	})
	for id, w := range ways {
		nw.countEgress(id, w)
	}
}

// endEgress closes the session of a sandbox, which gets no other one, and counts its
// remaining bytes. A write to the sandbox that has not ended is counted when the session
// ends it, so the session is closed first.
func (nw *network) endEgress(id brig.ID) {
	if w := nw.sandboxes.get(id).egress; w != nil {
		w.close()
		nw.countEgress(id, w)
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
	more := sent + received - w.countedBytes
	kind := brig.KindOf(nw.CountEgress(id, more))
	if kind == brig.FailedPrecondition {
		return // without a reservation; the next count includes the bytes
	}
	w.countedBytes += more
	spent := kind == brig.RateLimited
	if spent == w.quotaExhausted {
		return
	}
	w.quotaExhausted = spent
	rules := w.rules
	if spent {
		rules = brig.Egress{}
	}
	w.session.Update(rules)
}
