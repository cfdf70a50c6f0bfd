package engine

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

const (
	// tapeSize is how much of a process's output is kept, in bytes.
	tapeSize = 256 << 10
	// chunkCost is what a chunk counts at least: many small ones are no less
	// of a burden than a few large ones.
	chunkCost = 512
	// chunkSize is up to where small outputs are put together.
	chunkSize = 32 << 10
	// holdTime is how long a process that was just started has somebody attach
	// to it before what it says may be forgotten.
	holdTime = 5 * time.Second
)

// tape keeps the end of a process's output for those who attach, now or later.
// When they are slower than the process, the process waits for them, and at first
// for the first of them: whoever starts a process attaches a moment later, and on
// a busy machine it may have said more by then than is kept.
type tape struct {
	mu        sync.Mutex // guards the fields below
	moved     sync.Cond  // anything below has changed
	chunks    []chunk
	size      int   // of all chunks
	total     int64 // ever written
	followers map[*follower]bool
	held      bool // the first follower is still to come
	end       *brig.Result
	err       error // instead of an end
	over      bool
}

// chunk is a part of the output. Its bytes never change; more may follow them.
type chunk struct {
	at   int64
	from brig.From
	data []byte
}

// end is the offset of what follows.
func (c chunk) end() int64 { return c.at + int64(len(c.data)) }

func (c chunk) cost() int { return max(len(c.data), chunkCost) }

// follower is somebody who is attached.
type follower struct{ at int64 }

func newTape() *tape {
	t := &tape{followers: map[*follower]bool{}}
	t.moved.L = &t.mu
	return t
}

// hold keeps everything until somebody attaches, or nobody has for holdTime.
func (t *tape) hold() *tape {
	t.held = true
	time.AfterFunc(holdTime, t.release)
	return t
}

func (t *tape) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = false
	t.moved.Broadcast()
}

// write appends output. It waits while there is no room that no follower needs.
func (t *tape) write(from brig.From, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.size+len(p) > tapeSize && len(t.chunks) > 0 && !t.over {
		if oldest := t.chunks[0]; !t.needed(oldest) {
			t.chunks = t.chunks[1:]
			t.size -= oldest.cost()
			continue
		}
		t.moved.Wait()
	}
	if n := len(t.chunks); n > 0 && t.chunks[n-1].from == from && len(t.chunks[n-1].data)+len(p) <= chunkSize {
		t.size -= t.chunks[n-1].cost()
		t.chunks[n-1].data = append(t.chunks[n-1].data, p...)
	} else {
		t.chunks = append(t.chunks, chunk{at: t.total, from: from, data: append([]byte(nil), p...)})
	}
	t.size += t.chunks[len(t.chunks)-1].cost()
	t.total += int64(len(p))
	t.moved.Broadcast()
}

// needed reports whether a follower has not had a chunk, or one that is still to
// come. The caller holds t.mu.
func (t *tape) needed(c chunk) bool {
	if t.held {
		return true
	}
	for f := range t.followers {
		if f.at < c.end() {
			return true
		}
	}
	return false
}

// finish says that there will be no more, and how the process ended.
func (t *tape) finish(end *brig.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over, t.end, t.err = true, end, err
	}
	t.moved.Broadcast()
}

// state returns how much there has been, and how it ended if it has.
func (t *tape) state() (total int64, end *brig.Result, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, t.end, t.over
}

// last is the newest of the output.
func (t *tape) last() (out brig.Output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.chunks {
		out.Head = append(out.Head, c.data...)
	}
	return out
}

// follow tells of the output from an offset on, -1 for what comes, and of the
// end.
func (t *tape) follow(ctx context.Context, from int64, tell func(brig.ProcessEvent) error) error {
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.moved.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{at: from}
	if from < 0 || from > t.total {
		f.at = t.total
	}
	t.followers[f], t.held = true, false
	defer func() {
		delete(t.followers, f)
		t.moved.Broadcast()
	}()
	for {
		switch ev, ok := t.next(f); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case ok:
			if err := t.unlocked(func() error { return tell(ev) }); err != nil {
				return err
			}
			f.at = ev.Offset + int64(len(ev.Output))
			t.moved.Broadcast()
		case t.over && t.err != nil:
			return t.err
		case t.over:
			return t.unlocked(func() error { return tell(brig.ProcessEvent{End: t.end}) })
		default:
			t.moved.Wait()
		}
	}
}

// next returns what a follower has not had. The caller holds t.mu.
func (t *tape) next(f *follower) (brig.ProcessEvent, bool) {
	i := sort.Search(len(t.chunks), func(i int) bool { return f.at < t.chunks[i].end() })
	if i == len(t.chunks) {
		return brig.ProcessEvent{}, false
	}
	c := t.chunks[i]
	skip := max(f.at-c.at, 0)
	return brig.ProcessEvent{Output: c.data[skip:len(c.data):len(c.data)], From: c.from, Offset: c.at + skip}, true
}

// unlocked calls f without t.mu, which the caller holds.
func (t *tape) unlocked(f func() error) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return f()
}
