package output

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

const (
	// bufferSize is how many bytes of a process's output are kept, and
	// minBufferSize how many are kept if the budget is exhausted.
	bufferSize    = 256 << 10
	minBufferSize = 32 << 10
	// maxBufferSize is how many bytes are kept for slow followers after the process has ended. At
	// that time, the connection to the agent of a pausable sandbox may contain 2 MiB of output.
	maxBufferSize = 4 << 20
	// chunkCost is the minimum cost of a chunk, because many small chunks use
	// as much memory as a few large ones.
	chunkCost = 512
	// chunkSize is the size up to which small outputs are merged.
	chunkSize = 32 << 10
	// firstFollowerWait is how long a new process keeps its output for the first
	// follower.
	firstFollowerWait = 5 * time.Second
)

// Buffer keeps the end of a process's output for current and later followers. If the followers are
// slower than the process, the process waits for them. A new process also waits for its first
// follower. The client that starts a process attaches a moment later, and on a busy host the
// process may have written more than the buffer holds by then. A process that has ended waits for
// no follower, because the engine reads its pipes and records its end. A follower that is too slow
// for the budget then receives an error.
type Buffer struct {
	budget *Relays
	tenant string // whose budget is charged

	mu             sync.Mutex // guards the fields below
	changed        sync.Cond  // signals every change below
	chunks         []chunk
	size           int   // cost of all chunks
	total          int64 // bytes ever written
	followers      map[*follower]bool
	awaitsFollower bool // the process waits for its first follower
	processEnded   bool // the process has ended
	charged        int  // bytes charged to the budget
	chargeReleased bool // no more bytes are charged
	end            *brig.Result
	err            error // set instead of end if the end is unknown
	finished       bool
}

// chunk is a part of the output. Its bytes never change, but more may be
// appended.
type chunk struct {
	at   int64
	from brig.From
	data []byte
}

// end returns the offset of the end of the chunk.
func (c chunk) end() int64 { return c.at + int64(len(c.data)) }

func (c chunk) cost() int { return max(len(c.data), chunkCost) }

// follower is an attached client.
type follower struct {
	at    int64
	begun bool // the follower has received output
}

// NewBuffer returns an empty buffer for a process of a tenant.
func (rs *Relays) NewBuffer(tenant string) *Buffer {
	t := &Buffer{budget: rs, tenant: tenant, followers: map[*follower]bool{}}
	t.changed.L = &t.mu
	return t
}

// HoldForFollower keeps all output until a client attaches or firstFollowerWait
// has passed.
func (t *Buffer) HoldForFollower() *Buffer {
	t.awaitsFollower = true
	time.AfterFunc(firstFollowerWait, t.release)
	return t
}

func (t *Buffer) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitsFollower = false
	t.changed.Broadcast()
}

// Write appends output. It blocks while followers still need all of the kept
// output.
func (t *Buffer) Write(from brig.From, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.reserve(len(p)) && len(t.chunks) > 0 && !t.finished {
		if oldest := t.chunks[0]; t.processEnded || !t.isPending(oldest) {
			t.chunks[0] = chunk{} // release the bytes to the garbage collector
			t.chunks = t.chunks[1:]
			t.size -= oldest.cost()
			continue
		}
		t.changed.Wait()
	}
	if n := len(t.chunks); n > 0 && t.chunks[n-1].from == from && len(t.chunks[n-1].data)+len(p) <= chunkSize {
		t.size -= t.chunks[n-1].cost()
		t.chunks[n-1].data = append(t.chunks[n-1].data, p...)
	} else {
		t.chunks = append(t.chunks, chunk{at: t.total, from: from, data: append([]byte(nil), p...)})
	}
	t.size += t.chunks[len(t.chunks)-1].cost()
	t.total += int64(len(p))
	t.refund(max(t.size-minBufferSize, 0))
	t.changed.Broadcast()
}

// reserve reports whether n more bytes fit, and charges the budget for them. The
// caller holds t.mu.
func (t *Buffer) reserve(n int) bool {
	limit := bufferSize
	if t.processEnded {
		limit = maxBufferSize
	}
	if t.size+n > limit {
		return false
	}
	needed := t.size + n - minBufferSize - t.charged
	if needed <= 0 {
		return true
	}
	if t.chargeReleased || !t.budget.charge(t.tenant, needed, ifFits) {
		return false
	}
	t.charged += needed
	return true
}

// refund returns all but n bytes of the buffer's charge to the budget. The
// caller holds t.mu.
func (t *Buffer) refund(n int) {
	if t.charged > n {
		t.budget.refund(t.tenant, t.charged-n)
		t.charged = n
	}
}

// MarkEnded records that the process has ended, so that it waits for no follower.
func (t *Buffer) MarkEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.processEnded = !t.budget.off
	t.changed.Broadcast()
}

// ReleaseCharge returns the buffer's charge to the budget, because clients can
// no longer find the buffer.
func (t *Buffer) ReleaseCharge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chargeReleased = true
	t.refund(0)
}

// isPending reports whether a current or expected follower has yet to receive a
// chunk. The caller holds t.mu.
func (t *Buffer) isPending(c chunk) bool {
	if t.awaitsFollower {
		return true
	}
	for f := range t.followers {
		if f.at < c.end() {
			return true
		}
	}
	return false
}

// Finish records the end of the output, with the result of the process or an
// error.
func (t *Buffer) Finish(end *brig.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished {
		t.finished, t.end, t.err = true, end, err
	}
	t.changed.Broadcast()
}

// State returns the size of the output so far, the result of the process, and
// whether the output has ended.
func (t *Buffer) State() (total int64, end *brig.Result, finished bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, t.end, t.finished
}

// NewestOutput returns the newest output.
func (t *Buffer) NewestOutput() (out brig.Output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.chunks {
		out.Head = append(out.Head, c.data...)
	}
	return out
}

// Follow calls send with all output after the offset from, or only with new output if from is
// negative, and finally with the end.
func (t *Buffer) Follow(ctx context.Context, from int64, send func(brig.ProcessEvent) error) error {
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{at: from}
	if from < 0 || from > t.total {
		f.at = t.total
	}
	t.followers[f], t.awaitsFollower = true, false
	defer func() {
		delete(t.followers, f)
		t.changed.Broadcast()
	}()
	for {
		switch ev, ok := t.next(f); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case ok && f.begun && ev.Offset > f.at:
			return errSlowReader()
		case ok:
			if err := t.withoutLock(func() error { return send(ev) }); err != nil {
				return err
			}
			f.at, f.begun = ev.Offset+int64(len(ev.Output)), true
			t.changed.Broadcast()
		case t.finished && t.err != nil:
			return t.err
		case t.finished:
			return t.withoutLock(func() error { return send(brig.ProcessEvent{End: t.end}) })
		default:
			t.changed.Wait()
		}
	}
}

// next returns the next event for a follower. The caller holds t.mu.
func (t *Buffer) next(f *follower) (brig.ProcessEvent, bool) {
	i := sort.Search(len(t.chunks), func(i int) bool { return f.at < t.chunks[i].end() })
	if i == len(t.chunks) {
		return brig.ProcessEvent{}, false
	}
	c := t.chunks[i]
	skip := max(f.at-c.at, 0)
	return brig.ProcessEvent{Output: c.data[skip:len(c.data):len(c.data)], From: c.from, Offset: c.at + skip}, true
}

// withoutLock releases t.mu, which the caller holds, while it calls f.
func (t *Buffer) withoutLock(f func() error) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return f()
}
