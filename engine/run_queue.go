package engine

import (
	"context"
	"sync"

	"github.com/brig-run/brig"
)

// maxQueuedRuns is the maximum number of runs in one queue.
const maxQueuedRuns = 64

// runQueue admits one run at a time, in order of arrival. Its zero value is
// empty.
type runQueue struct {
	mu      sync.Mutex // guards the fields below
	busyRun bool
	queue   []*queuedRun
}

// queuedRun is one waiting run.
type queuedRun struct {
	ready chan struct{}
	err   error // why the run may not start; set before ready is closed
}

// wait waits until the caller's run may start. The caller calls release after
// the run.
func (l *runQueue) wait(ctx context.Context) (release func(), err error) {
	l.mu.Lock()
	if !l.busyRun {
		l.busyRun = true
		l.mu.Unlock()
		return l.admitNext, nil
	}
	if len(l.queue) >= maxQueuedRuns {
		l.mu.Unlock()
		return nil, brig.Errorf(brig.RateLimited, "%d runs wait in this context already", maxQueuedRuns).
			WithHint("wait for their results, or use several contexts")
	}
	p := &queuedRun{ready: make(chan struct{})}
	l.queue = append(l.queue, p)
	l.mu.Unlock()
	select {
	case <-p.ready:
		if p.err != nil {
			return nil, p.err
		}
		return l.admitNext, nil
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
		go l.admitNext() // the turn came at the same time as the cancellation
	}
	return nil, context.Cause(ctx)
}

// admitNext passes the turn to the first waiting run.
func (l *runQueue) admitNext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.busyRun = false
		return
	}
	p := l.queue[0]
	l.queue = l.queue[1:]
	close(p.ready)
}

// failAll makes all waiting runs fail with err.
func (l *runQueue) failAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.queue {
		p.err = err
		close(p.ready)
	}
	l.queue = nil
}

func (l *runQueue) hasWaiters() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busyRun
}
