package engine

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// The audit log is told of all that was let out. Of what was refused it is told
// that much for each sandbox, and then how much more there was: what nobody
// answers costs a guest nothing.
const (
	notePause   = 100 * time.Millisecond // between two writes
	noteDenials = 200                    // at once
	noteEvery   = 500 * time.Millisecond // one more
)

// egressNotes are decisions on their way to the audit log.
type egressNotes struct {
	mu      sync.Mutex // guards the fields below
	pending []brig.Event
	denials map[brig.ID]*denials
	due     bool
}

// denials are what a sandbox was refused.
type denials struct {
	rec  *brig.Record
	room int       // how many may be told
	at   time.Time // when room was last made
	more int       // that were not told
	over bool      // no more come: what is left is told, and then forgotten
}

// noteEgress tells the log what a sandbox asked of the network.
func (e *Engine) noteEgress(rec *brig.Record, ev egress.Event) {
	e.Log.Info("egress", "sandbox", rec.ID, "tenant", rec.Tenant, "what", ev.What, "host", ev.Host, "addr", ev.Addr,
		"port", ev.Port, "allowed", ev.Allowed, "rule", ev.Rule, "why", ev.Why)
	n := &e.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.room(rec, e.Now(), ev) {
		n.pending = append(n.pending, e.egressEvent(rec, ev))
	}
	if !n.due && e.ctx.Err() == nil {
		n.due = true
		e.work.Go(e.writeNotes)
	}
}

// endNotes tells the log what is left to tell of a way out that has ended, of
// which lost events never came. Who calls it is work of the engine's: what is
// pending when the engine ends is written, too.
func (e *Engine) endNotes(rec *brig.Record, lost int64) {
	n := &e.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if lost > 0 {
		n.of(rec, e.Now()).more += int(lost)
	}
	if d := n.denials[rec.ID]; d != nil {
		d.over = true
	}
	if !n.due && len(n.pending)+len(n.denials) > 0 {
		n.due = true
		e.work.Go(e.writeNotes)
	}
}

// of returns what a sandbox was refused.
func (n *egressNotes) of(rec *brig.Record, now time.Time) *denials {
	d := n.denials[rec.ID]
	if d == nil {
		d = &denials{rec: rec, room: noteDenials, at: now}
		if n.denials == nil {
			n.denials = map[brig.ID]*denials{}
		}
		n.denials[rec.ID] = d
	}
	return d
}

// room reports whether one more refusal may be told, and counts it otherwise,
// with those that were missed before.
func (n *egressNotes) room(rec *brig.Record, now time.Time, ev egress.Event) bool {
	d := n.of(rec, now)
	d.more += int(ev.Missed)
	if ev.Allowed {
		return true
	}
	if made := int(now.Sub(d.at) / noteEvery); made > 0 {
		d.room, d.at = min(d.room+made, noteDenials), now
	}
	if d.room == 0 {
		d.more++
		return false
	}
	d.room--
	return true
}

// writeNotes writes what has come, after a while in which more may come.
func (e *Engine) writeNotes() {
	select {
	case <-time.After(notePause):
	case <-e.ctx.Done():
	}
	n := &e.notes
	n.mu.Lock()
	events := n.pending
	n.pending, n.due = nil, false
	for id, d := range n.denials {
		if d.more > 0 && (d.room > 0 || d.over || e.ctx.Err() != nil) {
			events = append(events, e.observed(d.rec, "egress.more", map[string]string{
				brig.DetailVerdict: "denied", brig.DetailWhy: strconv.Itoa(d.more) + " more",
			}))
			d.more = 0
		}
		if d.more == 0 && (d.room == noteDenials || d.over) {
			delete(n.denials, id)
		}
	}
	n.mu.Unlock()
	if len(events) == 0 {
		return
	}
	ctx, cancel := cleanup(context.WithoutCancel(e.ctx))
	defer cancel()
	if err := e.Store.Soon().Append(ctx, events...); err != nil {
		e.Log.Error("write egress decisions to the audit log", "events", len(events), "err", err)
	}
}
