package engine

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// refusalsInterval is the interval at which the engine reads the kernel refusals of a sandbox. For
// each reading, including the last one at the sandbox's end, it writes at most one line of each
// kind.
const refusalsInterval = noteInterval

// refusals tracks the kernel refusals of a sandbox that the audit log has
// recorded.
type refusals struct {
	rec     *brig.Record
	in      brig.Instance
	counter brig.Refuser

	mu       sync.Mutex    // guards recorded, and is held while the counters are read
	recorded brig.Refusals // the counts in the audit lines of this server
}

// newRefusals returns nil for an instance that does not count refusals.
func newRefusals(rec *brig.Record, in brig.Instance) *refusals {
	counter, ok := in.(brig.Refuser)
	if !ok {
		return nil
	}
	return &refusals{rec: rec, in: in, counter: counter}
}

// countRefusals writes audit lines for all refusals since the last call.
func (nw *network) countRefusals() {
	var all []*refusals
	nw.sandboxes.updateEach(func(_ brig.ID, s *sandbox) {
		if s.refusals != nil {
			all = append(all, s.refusals)
		}
	})
	for _, r := range all {
		nw.recordRefusals(r)
	}
}

// recordLastRefusals writes the last refusals of a sandbox that is being dropped. The instance of a
// one-shot ends after the response, so its final counts are read after its end.
func (nw *network) recordLastRefusals(r *refusals) {
	if r == nil {
		return
	}
	if hasEnded(r.in) {
		nw.recordRefusals(r)
		return
	}
	nw.background.Go(func() {
		select {
		case <-r.in.Done():
		case <-time.After(cleanupTimeout):
		}
		nw.recordRefusals(r)
	})
}

// recordRefusals writes a line for each count that has grown. For a sandbox that this server took
// over, the counts start again from the start of the sandbox. Each line has the total.
func (nw *network) recordRefusals(r *refusals) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(nw.ctx), time.Second)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.counter.Refusals(ctx)
	if err != nil || now == nil {
		return // read the counts later; they outlast the instance
	}
	if added := now.Processes - r.recorded.Processes; added > 0 {
		r.recorded.Processes = now.Processes
		nw.queueRefusals(r.rec, brig.ForkOp, added, now.Processes, map[string]string{
			brig.DetailLimit: strconv.Itoa(r.rec.Spec.Limits.Processes),
			brig.DetailWhy:   "more processes and threads than limits.processes",
		})
	}
	if added := now.Connections - r.recorded.Connections; added > 0 {
		r.recorded.Connections = now.Connections
		nw.queueRefusals(r.rec, brig.NoRouteOp, added, now.Connections, map[string]string{
			brig.DetailRule: "-1",
			brig.DetailWhy:  "no route: a sandbox without egress rules has no network, one with rules no IPv6",
		})
	}
}

// queueRefusals queues a line, within the tenant's limit for such lines.
func (nw *network) queueRefusals(rec *brig.Record, op string, more, total int64, detail map[string]string) {
	detail[brig.DetailVerdict] = "denied"
	detail[brig.DetailCount], detail[brig.DetailTotal] = strconv.FormatInt(more, 10), strconv.FormatInt(total, 10)
	nw.Log.Info("refused by the sandbox's kernel", "sandbox", rec.ID, "tenant", rec.Tenant, "op", op, "count", more, "total", total)
	n := &nw.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.tenant(rec.Tenant, nw.Now()); t.rec == nil {
		t.rec = rec
	}
	n.pending = append(n.pending, nw.observedEvent(rec, op, detail))
	nw.startNotes()
}
