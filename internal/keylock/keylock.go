// Package keylock serializes work by name.
package keylock

import (
	"context"
	"sync"
)

// Mutex holds a lock for each name. The zero value is ready for use.
type Mutex struct {
	mu   sync.Mutex // guards held
	held map[string]chan struct{}
}

// Lock locks name. The returned function unlocks it. Lock returns an error if ctx ends first.
func (m *Mutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		m.mu.Lock()
		before := m.held[name]
		if before == nil {
			done := make(chan struct{})
			if m.held == nil {
				m.held = map[string]chan struct{}{}
			}
			m.held[name] = done
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.held, name)
				close(done)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
