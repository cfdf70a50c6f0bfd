package guest

import (
	"context"
	"sync"
	"time"
)

// Attempts makes a resource that several callers need, such as a connection. While one attempt is
// in progress, all callers wait for it, each until its own context ends. The zero value is ready
// to use.
type Attempts[T any] struct {
	mu   sync.Mutex  // guards the field below
	next *attempt[T] // in progress, or nil
}

type attempt[T any] struct {
	done  chan struct{} // closed when the fields below are set
	value T
	err   error
}

// Do returns the result of the attempt in progress, or of a new one that calls f. The attempt
// outlives the context of the caller that started it, because other callers wait for it. It keeps
// that caller's time limit.
func (a *Attempts[T]) Do(ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	a.mu.Lock()
	at := a.next
	if at == nil {
		at = &attempt[T]{done: make(chan struct{})}
		a.next = at
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			at.value, at.err = f(ctx)
			a.mu.Lock()
			a.next = nil
			a.mu.Unlock()
			close(at.done)
		}()
	}
	a.mu.Unlock()
	select {
	case <-at.done:
		return at.value, at.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
