package workspace

import (
	"context"
	"sync"
	"time"
)

// sweepPrecedence is how long a caller that wants to use a tenant's objects
// waits for a sweep that waits itself. Short commits therefore cannot keep a
// sweep out, and a long one delays the others only by this time.
var sweepPrecedence = 2 * time.Second

// holds are the locks of the keys that this process has held.
type holds struct{ all sync.Map } // *holdLock by key

// take waits for a lock, and returns the function that releases it.
func (h *holds) take(ctx context.Context, key string, alone bool) (release func(), err error) {
	v, _ := h.all.LoadOrStore(key, &holdLock{changed: make(chan struct{})})
	l := v.(*holdLock)
	if err := l.take(ctx, alone); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { l.release(alone) }), nil
}

// holdLock is a lock that many share, or one has alone. Waiting ends with a
// context, which a sync.RWMutex does not support.
type holdLock struct {
	mu      sync.Mutex // guards the fields below
	shared  int
	alone   bool
	waiting int           // callers that wait to be alone
	changed chan struct{} // closed and replaced at every change
}

// wake wakes all waiting callers. The caller holds l.mu.
func (l *holdLock) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *holdLock) take(ctx context.Context, alone bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if alone {
		l.waiting++
		defer func() {
			l.waiting--
			l.wake()
		}()
	}
	var deadline <-chan time.Time
	yields := true
	for l.alone || alone && l.shared > 0 || !alone && yields && l.waiting > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if deadline == nil && !alone {
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
	if alone {
		l.alone = true
	} else {
		l.shared++
	}
	return nil
}

func (l *holdLock) release(alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if alone {
		l.alone = false
	} else {
		l.shared--
	}
	l.wake()
}
