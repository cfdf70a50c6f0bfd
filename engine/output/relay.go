// Package output carries the output of programs to their callers. It limits the memory that the
// server needs for slow callers and quiet programs, per stream, per tenant and in total.
package output

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Relay buffers the output of an execution for a caller who streams it. It buffers up to relaySize
// bytes, within a budget. When the buffer is full, the process waits for the caller. A process that
// has ended never waits: the pipes limit its remaining output, and the engine records its outcome
// immediately, even if the caller reads slowly. If the remaining output exceeds the budget, the
// relay ends the stream early, and the caller can read the recorded outcome.
type Relay struct {
	budget *Relays
	tenant string
	lost   func(error)

	mu           sync.Mutex // guards the fields below
	changed      *sync.Cond
	hasEnded     func() bool // reports whether the process has ended; nil if unknown
	parts        []relayItem
	size         int   // of parts
	closed       bool  // no more output will be written
	checkEndNext bool  // the next waiting write calls checkEnd
	processEnded bool  // the process has ended
	dropReason   error // why the remaining output is dropped
	err          error // from the caller
	done         chan struct{}
}

// relayItem is output for a writer, or a callback to the caller.
type relayItem struct {
	to          *relayWriter
	data        []byte
	deliverCall func() error // instead of to and data
	cost        int
}

const (
	// relaySize is the number of bytes that a stream buffers while its process
	// runs.
	relaySize = 128 << 10
	// maxRelaySize is the number of bytes that a stream buffers after its
	// process has ended.
	maxRelaySize = 4 << 20
	// relayMergeSize is the size up to which small outputs are merged.
	relayMergeSize = 32 << 10
	// relayCost is the cost of a part in addition to its bytes.
	relayCost = 256
	// endCheckInterval is the interval at which a waiting write checks whether
	// its process has ended.
	endCheckInterval = time.Second
)

// The budgets for the buffered bytes of all streams of one tenant and of the server. One part per
// stream of up to relaySize is exempt. A larger part, such as a chart, is accepted unless one of
// the budgets is used up.
const (
	TenantBudget = 32 << 20
	ServerBudget = 128 << 20
)

// Relays creates the relays and buffers of a server, which share one budget.
type Relays struct {
	*Budget
	off bool
}

// NewRelays returns Relays with the budgets in bytes for one tenant and for the server.
func NewRelays(tenant, server int) *Relays {
	return &Relays{Budget: NewBudget(tenant, server)}
}

// Disable makes executions wait for their callers, even after their end. It is only for negative
// controls in tests, which demonstrate the failures that relays prevent.
func (rs *Relays) Disable() { rs.off = true }

// new returns a relay for a stream of a tenant. If the caller does not accept
// the output, the relay calls lost with the error.
func (rs *Relays) new(tenant string, lost func(error)) *Relay {
	r := &Relay{budget: rs, tenant: tenant, lost: lost, done: make(chan struct{})}
	r.changed = sync.NewCond(&r.mu)
	go r.deliverAll()
	return r
}

// Wrap returns a relay, and sio with its writers replaced by the relay's. If
// sio has no writers, it returns nil and sio.
func (rs *Relays) Wrap(tenant string, sio brig.IO, lost func(error)) (*Relay, brig.IO) {
	if rs.off || sio.Stdout == nil && sio.Stderr == nil && sio.Result == nil {
		return nil, sio
	}
	r := rs.new(tenant, lost)
	for _, w := range []*io.Writer{&sio.Stdout, &sio.Stderr, &sio.Result} {
		if *w != nil {
			*w = &relayWriter{r, *w}
		}
	}
	if started := sio.Started; started != nil {
		// Started precedes all output, and the caller may also be slow to
		// handle it.
		sio.Started = func(id string) {
			_ = r.put(relayItem{deliverCall: func() error { started(id); return nil }}) // a later put returns the error
		}
	}
	return r, sio
}

// SetEndCheck sets the function that reports whether the process has ended.
// Only a waiting write calls it.
func (r *Relay) SetEndCheck(ended func() bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasEnded = ended
}

// relayWriter is one of the caller's writers behind a relay. Parts are compared by their
// *relayWriter, because two of the caller's own writers may not be comparable.
type relayWriter struct {
	r  *Relay
	to io.Writer
}

// Write implements io.Writer. It returns the error of an earlier write.
func (w *relayWriter) Write(p []byte) (int, error) {
	for n := 0; ; {
		end := min(n+relayMergeSize, len(p))
		if err := w.r.put(relayItem{to: w, data: p[n:end]}); err != nil {
			return n, err
		}
		if n = end; n == len(p) {
			return n, nil
		}
	}
}

// Events returns a relay, and a function that calls on through the relay. If on
// is nil, it returns nil for both.
func (rs *Relays) Events(tenant string, on func(brig.CodeEvent) error, lost func(error)) (*Relay, func(brig.CodeEvent) error) {
	if rs.off || on == nil {
		return nil, on
	}
	r := rs.new(tenant, lost)
	return r, func(ev brig.CodeEvent) error {
		ev.Stdout, ev.Stderr = bytes.Clone(ev.Stdout), bytes.Clone(ev.Stderr)
		return r.put(relayItem{deliverCall: func() error { return on(ev) }, cost: eventSize(ev)})
	}
}

// eventSize estimates the memory of an event.
func eventSize(ev brig.CodeEvent) int {
	n := len(ev.Stdout) + len(ev.Stderr)
	if ev.Output != nil {
		for _, docs := range []map[string]json.RawMessage{ev.Output.Data, ev.Output.Metadata} {
			for k, v := range docs {
				n += len(k) + len(v)
			}
		}
	}
	if ev.Error != nil {
		n += len(ev.Error.Value) + len(ev.Error.Traceback)
	}
	return n
}

// put buffers a part for the caller, and waits for space if necessary.
func (r *Relay) put(p relayItem) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.cost += len(p.data) + relayCost
	var stop chan struct{}
	for !r.tryReserve(p.cost) {
		if r.checkEndNext {
			r.checkEndNext = false
			r.checkEnd()
			continue
		}
		if stop == nil {
			stop = make(chan struct{})
			defer close(stop)
			go r.wake(stop)
		}
		r.changed.Wait()
	}
	switch last := len(r.parts) - 1; {
	case r.err != nil:
		return r.err
	case r.dropReason != nil:
		return nil // the execution continues to read output, so that it can end
	case p.deliverCall == nil && last > 0 && r.parts[last].deliverCall == nil && r.parts[last].to == p.to && len(r.parts[last].data)+len(p.data) <= relayMergeSize:
		// The first part is being written, so it cannot grow.
		r.parts[last].data = append(r.parts[last].data, p.data...)
		r.parts[last].cost += p.cost
	default:
		p.data = append([]byte(nil), p.data...)
		r.parts = append(r.parts, p)
	}
	r.size += p.cost
	r.changed.Broadcast()
	return nil
}

// wake makes a waiting write check periodically whether the process has ended.
func (r *Relay) wake(stop <-chan struct{}) {
	tick := time.NewTicker(endCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		r.checkEndNext = true
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// checkEnd checks whether the process has ended. A waiting write calls it, so
// that no other goroutine receives from the process at the same time. The
// caller holds r.mu.
func (r *Relay) checkEnd() {
	if r.hasEnded == nil || r.processEnded {
		return
	}
	ended := r.hasEnded
	r.mu.Unlock()
	isOver := ended()
	r.mu.Lock()
	r.processEnded = r.processEnded || isOver
}

// tryReserve reports whether put may proceed, because the part's cost is
// charged or the stream has ended. The caller holds r.mu.
func (r *Relay) tryReserve(cost int) bool {
	maxSize := relaySize
	if r.processEnded {
		maxSize = maxRelaySize
	}
	allow := ifFits
	switch {
	case r.size == 0 && cost <= relaySize:
		allow = forced // every stream makes progress
	case r.size == 0:
		allow = ifRoom
	}
	switch {
	case r.err != nil || r.dropReason != nil:
		return true
	case r.size < maxSize && r.budget.charge(r.tenant, cost, allow):
		return true
	case r.processEnded:
		r.dropReason = errSlowReader()
		return true
	}
	return false
}

// errSlowReader returns the error for a caller who read too slowly for the budget.
func errSlowReader() error {
	return brig.Errorf(brig.RateLimited, "the client did not read the output in time, and the limit for buffered output is reached").
		WithHint("it has ended, and its record has the result; read faster, or stream less at a time")
}

// deliverAll delivers parts to the caller until the stream ends or the caller
// fails.
func (r *Relay) deliverAll() {
	defer close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.parts) == 0 && !r.closed {
			r.changed.Wait()
		}
		if len(r.parts) == 0 || r.err != nil {
			return
		}
		p := r.parts[0]
		r.mu.Unlock()
		err := p.deliver()
		r.mu.Lock()
		r.drop(1)
		if err != nil {
			r.err = err
			r.drop(len(r.parts))
			r.lost(err)
		}
		r.changed.Broadcast()
	}
}

func (p *relayItem) deliver() error {
	if p.deliverCall != nil {
		return p.deliverCall()
	}
	_, err := p.to.to.Write(p.data)
	return err //nolint:wrapcheck // an error of the caller's writer
}

// drop removes the first n parts. The caller holds r.mu.
func (r *Relay) drop(n int) {
	cost := 0
	for i := range n {
		cost += r.parts[i].cost
		r.parts[i] = relayItem{}
	}
	r.parts = r.parts[n:]
	r.size -= cost
	r.budget.refund(r.tenant, cost)
}

// Flush waits until the caller has received all output, or returns the error
// that prevented it. The relay does not write to the caller afterwards.
func (r *Relay) Flush() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	r.changed.Broadcast()
	r.mu.Unlock()
	<-r.done
	switch {
	case r.err != nil:
		return brig.AsError(r.err)
	case r.dropReason != nil:
		return r.dropReason
	}
	return nil
}
