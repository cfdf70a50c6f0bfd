package door

import (
	"context"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// keyAge is for how long a key that was good is taken to be good still: a key
// that is revoked works that much longer at most.
const keyAge = time.Second

// RecentKeys remembers for a moment whose keys are, in front of a store.
type RecentKeys struct {
	Keys

	mu   sync.Mutex // guards the field below
	seen map[[32]byte]seenKey
}

type seenKey struct {
	actor brig.Actor
	at    time.Time
}

// KeyActor implements Keys. Keys that nobody has are not remembered.
func (k *RecentKeys) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	now := time.Now()
	k.mu.Lock()
	s, ok := k.seen[hash]
	k.mu.Unlock()
	if ok && now.Sub(s.at) < keyAge {
		return s.actor, nil
	}
	actor, err := k.Keys.KeyActor(ctx, hash)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.seen, hash)
		return actor, err
	}
	if k.seen == nil || len(k.seen) > 10_000 {
		k.seen = map[[32]byte]seenKey{}
	}
	k.seen[hash] = seenKey{actor, now}
	return actor, nil
}
