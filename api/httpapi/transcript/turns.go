package transcript

import (
	"sync"
	"testing"
	"time"
)

// Held holds the calls of a service until they are released, and counts them.
type Held struct {
	released, full chan struct{}

	once              sync.Once
	mu                sync.Mutex // guards the fields below
	active, maxActive int
}

// turns is the number of large responses that a key gets at the same time.
const turns = 4

// NewHeldCalls returns a Held whose calls wait.
func NewHeldCalls() *Held { return &Held{released: make(chan struct{}), full: make(chan struct{})} }

// Wait counts a call and waits until calls are released.
func (h *Held) Wait() {
	h.mu.Lock()
	h.active++
	if h.maxActive = max(h.maxActive, h.active); h.active == turns {
		h.once.Do(func() { close(h.full) })
	}
	h.mu.Unlock()
	<-h.released
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active--
}

// CheckTurns sends many requests of one key, whose large responses h holds. It reports an error
// unless four of them are made at the same time and all are answered.
func CheckTurns(t *testing.T, h *Held, send func() error) {
	t.Helper()
	var all sync.WaitGroup
	for range 5 * turns {
		all.Go(func() {
			if err := send(); err != nil {
				t.Error(err)
			}
		})
	}
	select {
	case <-h.full:
		time.Sleep(100 * time.Millisecond) // further calls would arrive during this time
	case <-time.After(time.Minute):
		t.Error("no four answers are made at once")
	}
	close(h.released)
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.maxActive != turns {
		t.Errorf("%d answers are made at once, want %d", h.maxActive, turns)
	}
}
