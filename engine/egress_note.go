package engine

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// In each interval, the audit log has full lines for the first egress decisions of each kind, and
// one line with the number of further decisions. Network accesses cost a guest nothing, so each
// access must not produce a log line. The full lines and the kinds per sandbox are limited, and so
// is the total of lines per tenant.
const (
	noteDelay        = 100 * time.Millisecond // between the first event and its line
	noteInterval     = time.Minute
	maxFullLines     = 10  // full lines of one kind in an interval
	fullLineBurst    = 200 // burst of full lines of a sandbox
	fullLineInterval = 500 * time.Millisecond
	maxNoteKinds     = 64 // kinds per sandbox and interval; further kinds share one count
	tenantLineBurst  = 1000
	tenantLineRate   = 5 // lines per second, on average
)

// noteKind is the key by which decisions are counted.
type noteKind struct {
	what       egress.Kind
	host, addr string
	port, rule int
	allowed    bool
	reason     string
	secrets    string
}

// egressNotes holds decisions until they are written to the audit log.
type egressNotes struct {
	// appendMu is held from the removal of notes from this object until they are in the audit log.
	appendMu  sync.Mutex
	mu        sync.Mutex // guards the fields below
	pending   []brig.Event
	sandboxes map[brig.ID]*sandboxNotes
	tenants   map[string]*tenantNotes
	writing   bool
	wake      chan struct{} // receives a value when events are pending
}

// sandboxNotes counts the decisions about one sandbox.
type sandboxNotes struct {
	rec          *brig.Record
	limiter      *rate.Limiter
	kinds        map[noteKind]*kindCount
	last         time.Time
	sessionEnded bool // the session has ended: the remaining counts are written and then dropped
}

type kindCount struct {
	since   time.Time
	logged  int // decisions that have a full line
	counted int // decisions that are only counted
}

// tenantNotes limits the lines of one tenant.
type tenantNotes struct {
	rec          *brig.Record // record of any sandbox of the tenant
	limiter      *rate.Limiter
	more         int
	at           time.Time // when the last line was written or counted
	summarizedAt time.Time // when the last line with the count was written
}

// noteEgress adds an egress decision about a sandbox to the log, as a line or
// as a count.
func (nw *network) noteEgress(rec *brig.Record, ev egress.Event) {
	n := &nw.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	now := nw.Now()
	b := n.box(rec, now)
	if ev.Suppressed > 0 {
		b.count(noteKind{what: egress.Drop, rule: -1}, now).counted += int(ev.Suppressed)
	}
	c := b.count(kindOf(ev), now)
	if c.logged < maxFullLines && b.limiter.AllowN(now, 1) {
		c.logged++
		n.pending = append(n.pending, nw.egressEvent(rec, ev))
		nw.Log.Info("egress", "sandbox", rec.ID, "tenant", rec.Tenant, "what", ev.Kind, "host", ev.Host, "addr", ev.Addr,
			"port", ev.Port, "allowed", ev.Allowed, "rule", ev.Rule, "why", ev.Why)
	} else {
		c.counted++
	}
	if nw.ctx.Err() == nil {
		nw.startNotes()
	}
}

// kindOf returns the key by which an event is counted. The key contains all attributes that events
// can share.
func kindOf(ev egress.Event) noteKind {
	return noteKind{ev.Kind, ev.Host, ev.Addr, ev.Port, ev.Rule, ev.Allowed, ev.Why, strings.Join(ev.Secrets, ",")}
}

// noteSuppressed adds events that a session could not report to the counts of its sandbox.
func (nw *network) noteSuppressed(rec *brig.Record, lost int64) {
	n := &nw.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	now := nw.Now()
	n.box(rec, now).count(noteKind{what: egress.Drop, rule: -1}, now).counted += int(lost)
	if nw.ctx.Err() == nil {
		nw.startNotes()
	}
}

// endNotes writes the remaining counts of a sandbox whose session has ended. The caller must be one
// of the engine's background goroutines, so that pending lines are also written when the engine
// ends.
func (nw *network) endNotes(id brig.ID) {
	n := &nw.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if b := n.sandboxes[id]; b != nil {
		b.sessionEnded = true
		nw.startNotes()
	}
}

// startNotes starts or wakes the goroutine that writes the notes. The caller
// holds notes.mu.
func (nw *network) startNotes() {
	n := &nw.notes
	if n.wake == nil {
		n.wake = make(chan struct{}, 1)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
	if !n.writing {
		n.writing = true
		nw.background.Go(nw.writeNotes)
	}
}

// box returns the notes of a sandbox.
func (n *egressNotes) box(rec *brig.Record, now time.Time) *sandboxNotes {
	b := n.sandboxes[rec.ID]
	if b == nil {
		b = &sandboxNotes{rec: rec, limiter: rate.NewLimiter(rate.Every(fullLineInterval), fullLineBurst), kinds: map[noteKind]*kindCount{}}
		if n.sandboxes == nil {
			n.sandboxes = map[brig.ID]*sandboxNotes{}
		}
		n.sandboxes[rec.ID] = b
	}
	b.last, b.sessionEnded = now, false
	return b
}

// count returns the count of a kind, or the shared count if the sandbox has too
// many kinds.
func (b *sandboxNotes) count(k noteKind, now time.Time) *kindCount {
	c := b.kinds[k]
	if c == nil && len(b.kinds) >= maxNoteKinds {
		k = noteKind{allowed: k.allowed, rule: -1}
		c = b.kinds[k]
	}
	if c == nil {
		c = &kindCount{since: now}
		b.kinds[k] = c
	}
	return c
}

// writeNotes writes the pending notes after a delay, during which further notes may arrive. It
// returns when all notes are written.
func (nw *network) writeNotes() {
	n := &nw.notes
	wait := noteDelay
	for {
		select {
		case <-time.After(wait):
		case <-n.wake:
			select {
			case <-time.After(noteDelay):
			case <-nw.ctx.Done():
			}
		case <-nw.ctx.Done():
		}
		if nw.flushNotes() {
			return
		}
		wait = noteInterval / 10
	}
}

// flushNotes writes the notes that are due, and reports whether no others remain.
func (nw *network) flushNotes() (done bool) {
	n := &nw.notes
	n.appendMu.Lock()
	defer n.appendMu.Unlock()
	ended := nw.ctx.Err() != nil
	n.mu.Lock()
	events := nw.takeNotes(nw.Now(), ended)
	done = ended || len(n.sandboxes)+len(n.tenants) == 0
	n.writing = !done
	n.mu.Unlock()
	nw.appendNotes(events)
	return done
}

// takeNotes returns the events that are due, or all pending events if end is
// true.
func (nw *network) takeNotes(now time.Time, end bool) []brig.Event {
	n := &nw.notes
	var events []brig.Event
	for _, ev := range n.pending {
		if t := n.tenant(ev.Tenant, now); t.limiter.AllowN(now, 1) {
			events = append(events, ev)
		} else {
			t.more++
		}
	}
	n.pending = nil
	for id, b := range n.sandboxes {
		all := end || b.sessionEnded
		t := n.tenant(b.rec.Tenant, now)
		t.rec = b.rec
		for k, c := range b.kinds {
			if !all && now.Sub(c.since) < noteInterval {
				continue
			}
			delete(b.kinds, k)
			switch {
			case c.counted == 0:
			case t.limiter.AllowN(now, 1):
				events = append(events, nw.summaryEvent(b.rec, k, c.counted))
			default:
				t.more += c.counted
			}
		}
		if all || len(b.kinds) == 0 && now.Sub(b.last) > noteInterval+fullLineBurst*fullLineInterval {
			delete(n.sandboxes, id)
		}
	}
	for name, t := range n.tenants {
		if t.more > 0 && t.rec != nil && (end || now.Sub(t.summarizedAt) >= noteInterval) {
			ev := nw.summaryEvent(t.rec, noteKind{rule: -1}, t.more)
			ev.Sandbox = ""
			ev.Detail = map[string]string{brig.DetailCount: strconv.Itoa(t.more), brig.DetailWhy: "too many lines of all sandboxes together"}
			events = append(events, ev)
			t.more, t.summarizedAt = 0, now
		}
		if t.more == 0 && now.Sub(t.at) > tenantLineBurst/tenantLineRate*time.Second {
			delete(n.tenants, name)
		}
	}
	return events
}

// closeNotes writes the pending notes of a tenant that is being removed. Otherwise, a later tenant
// of the same name would inherit them.
func (nw *network) closeNotes(tenant string) {
	n := &nw.notes
	n.appendMu.Lock() // waits for notes that are being written
	defer n.appendMu.Unlock()
	n.mu.Lock()
	for _, b := range n.sandboxes { // the tenant has no sandboxes anymore
		b.sessionEnded = b.sessionEnded || b.rec.Tenant == tenant
	}
	if t := n.tenants[tenant]; t != nil {
		t.summarizedAt = time.Time{} // flushes the remaining counts now
	}
	events := nw.takeNotes(nw.Now(), false)
	delete(n.tenants, tenant)
	n.mu.Unlock()
	nw.appendNotes(events)
}

// tenant returns the line limit of a tenant.
func (n *egressNotes) tenant(name string, now time.Time) *tenantNotes {
	t := n.tenants[name]
	if t == nil {
		t = &tenantNotes{limiter: rate.NewLimiter(tenantLineRate, tenantLineBurst)}
		if n.tenants == nil {
			n.tenants = map[string]*tenantNotes{}
		}
		n.tenants[name] = t
	}
	t.at = now
	return t
}

// summaryEvent returns an event with the number of further decisions of a kind.
func (nw *network) summaryEvent(rec *brig.Record, k noteKind, more int) brig.Event {
	ev := nw.egressEvent(rec, egress.Event{
		At: nw.Now(), Kind: "more", Host: k.host, Addr: k.addr, Port: k.port, Allowed: k.allowed, Rule: k.rule,
		Why: strconv.Itoa(more) + " more",
	})
	ev.Detail[brig.DetailCount] = strconv.Itoa(more)
	for name, value := range map[string]string{brig.DetailWhat: string(k.what), brig.DetailSecrets: k.secrets} {
		if value != "" {
			ev.Detail[name] = value
		}
	}
	return ev
}

func (nw *network) appendNotes(events []brig.Event) {
	if len(events) == 0 {
		return
	}
	ctx, cancel := detachedContext(context.WithoutCancel(nw.ctx))
	defer cancel()
	if err := nw.Store.Soon().Append(ctx, events...); err != nil {
		nw.Log.Error("failed to write egress decisions to the audit log", "events", len(events), "err", err)
	}
}
