package keylock_test

import (
	"context"
	"testing"

	"github.com/brig-run/brig/internal/keylock"
)

// A name is locked once at a time, other names are free, and a waiter stops with its context.
func TestLock(t *testing.T) {
	var m keylock.Mutex
	unlock, err := m.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Lock(gone, "a"); err == nil {
		t.Error("a locked name is locked again")
	}
	locked := make(chan func())
	go func() {
		unlock, err := m.Lock(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		locked <- unlock
	}()
	unlock()
	(<-locked)()
}
