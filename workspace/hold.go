package workspace

import (
	"context"
	"sync"
	"time"
)

// sweepPrecedence is the maximum time for which a waiting sweep blocks new
// users of a tenant's objects. It prevents short commits from starving a
// sweep, and limits how long a sweep that waits for a long commit delays
// others.
var sweepPrecedence = 2 * time.Second

// holds are the locks of the keys that this process has held.
type holds struct{ all sync.Map } // *holdLock by key

// take waits for a lock, and returns the function that releases it.
func (h *holds) take(ctx context.Context, key string, exclusive bool) (release func(), err error) {
	v, _ := h.all.LoadOrStore(key, &holdLock{changed: make(chan struct{})})
	l := v.(*holdLock)
	if err := l.take(ctx, exclusive); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { l.release(exclusive) }), nil
}

// holdLock is a shared or exclusive lock. In contrast to a sync.RWMutex, a
// wait for the lock ends with the caller's context.
type holdLock struct {
	mu        sync.Mutex // guards the fields below
	shared    int
	exclusive bool
	waiting   int           // callers that wait for exclusive access
	changed   chan struct{} // closed and replaced at every change
}

// wake wakes all waiting callers. The caller holds l.mu.
func (l *holdLock) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *holdLock) take(ctx context.Context, exclusive bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if exclusive {
		l.waiting++
		defer func() {
			l.waiting--
			l.wake()
		}()
	}
	var deadline <-chan time.Time
	yields := true
	for l.exclusive || exclusive && l.shared > 0 || !exclusive && yields && l.waiting > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if deadline == nil && !exclusive {
			timer := time.NewTimer(sweepPrecedence)
			defer timer.Stop()
			deadline = timer.C
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			yields = false
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	if exclusive {
		l.exclusive = true
	} else {
		l.shared++
	}
	return nil
}

func (l *holdLock) release(exclusive bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if exclusive {
		l.exclusive = false
	} else {
		l.shared--
	}
	l.wake()
}
