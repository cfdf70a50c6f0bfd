package engine

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestLastUseTimesOfIdleKeysAreEvicted checks that the times of the last use of keys are kept in
// memory only for a limited time, because an administrator can create and revoke any number of
// keys.
func TestLastUseTimesOfIdleKeysAreEvicted(t *testing.T) {
	e, now := newNotesEngine(t)
	e.Store = touchStore{}
	touch := func(key string) {
		e.identity.usedKeys[key], e.identity.touchedKeys[key] = *now, *now
		if err := e.flushUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		touch("k" + strconv.Itoa(i))
	}
	if n := len(e.identity.touchedKeys); n != 100 {
		t.Errorf("%d keys were used within a minute, want 100", n)
	}
	*now = now.Add(touchInterval)
	if touch("other"); len(e.identity.touchedKeys) != 1 {
		t.Errorf("%d keys are in memory, want 1", len(e.identity.touchedKeys))
	}
}

// touchStore is a store that only implements TouchKeys.
type touchStore struct{ brig.Store }

func (s touchStore) Soon() brig.Store                                    { return s }
func (touchStore) TouchKeys(context.Context, map[string]time.Time) error { return nil }
