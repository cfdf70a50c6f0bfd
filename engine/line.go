package engine

import (
	"context"
	"sync"

	"github.com/brig-run/brig"
)

// maxLine is how many may wait in one line.
const maxLine = 64

// line lets one in at a time, in the order in which they came. Its zero value
// is empty.
type line struct {
	mu    sync.Mutex // guards the fields below
	taken bool
	queue []*place
}

// place is one who waits.
type place struct {
	turn chan struct{}
	err  error // why there is no turn; set before turn is closed
}

// join waits for one's turn and returns how to give it up.
func (l *line) join(ctx context.Context) (leave func(), err error) {
	l.mu.Lock()
	if !l.taken {
		l.taken = true
		l.mu.Unlock()
		return l.next, nil
	}
	if len(l.queue) >= maxLine {
		l.mu.Unlock()
		return nil, brig.Errorf(brig.RateLimited, "%d runs wait in this context already", maxLine).
			WithHint("wait for their results, or use several contexts")
	}
	p := &place{turn: make(chan struct{})}
	l.queue = append(l.queue, p)
	l.mu.Unlock()
	select {
	case <-p.turn:
		if p.err != nil {
			return nil, p.err
		}
		return l.next, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.queue {
		if other == p {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			return nil, context.Cause(ctx)
		}
	}
	if p.err == nil {
		go l.next() // the turn came at the same moment
	}
	return nil, context.Cause(ctx)
}

// next gives the turn to whoever came first.
func (l *line) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.taken = false
		return
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	close(p.turn)
}

// expel sends everybody who waits away.
func (l *line) expel(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.queue {
		p.err = err
		close(p.turn)
	}
	l.queue = nil
}

func (l *line) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}
