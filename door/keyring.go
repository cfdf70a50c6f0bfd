package door

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Keys finds whose a key is by the key's SHA-256. A key that nobody has, or has
// no more, is Unauthenticated.
type Keys interface {
	KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error)
}

// Grants finds what a grant lets its bearer do. Keys that implement it take
// grants as well.
type Grants interface {
	GrantActor(ctx context.Context, grant string) (brig.Actor, error)
}

// People finds who is whom by an identity provider's tokens. Keys that
// implement it take such tokens as well.
type People interface {
	PersonActor(ctx context.Context, token string) (brig.Actor, error)
}

// Sessions finds whose a session is by the SHA-256 of its secret. Keys that
// implement it take cookies as well.
type Sessions interface {
	SessionActor(ctx context.Context, hash [32]byte) (brig.Actor, error)
}

const (
	// keyAge is for how long a key that was good is taken to be good still.
	// With recheck it bounds for how long a revoked key works: under a second.
	keyAge = 500 * time.Millisecond
	// seenAge is for how long a key that was good is not taken for a guess.
	seenAge = 10 * time.Minute
	maxSeen = 10_000
)

// Keyring stands in front of Keys. It remembers for a moment whose keys are,
// ends what goes on with a key that is good no more, and makes those wait who
// try keys that are not.
type Keyring struct {
	keys Keys
	// Cookie is how browsers bring sessions. Set it before use.
	Cookie Cookie

	mu        sync.Mutex // guards the fields below
	seen      map[[32]byte]seenKey
	open      map[[32]byte]*uses
	watching  bool
	strangers map[string]*stranger
}

type seenKey struct {
	actor brig.Actor
	at    time.Time
}

// NewKeyring returns keys themselves if they are one.
func NewKeyring(keys Keys) *Keyring {
	if k, ok := keys.(*Keyring); ok {
		return k
	}
	return &Keyring{keys: keys, seen: map[[32]byte]seenKey{}, open: map[[32]byte]*uses{}, strangers: map[string]*stranger{}}
}

// Proof is a key that was good when it was shown.
type Proof struct {
	Actor brig.Actor
	name  [32]byte
	check func(context.Context) (brig.Actor, error)
}

// Show returns whose key r's sender has shown.
func (k *Keyring) Show(r *http.Request, key string) (Proof, error) {
	p := Proof{name: sha256.Sum256([]byte(key))}
	p.check = func(ctx context.Context) (brig.Actor, error) { return k.keys.KeyActor(ctx, p.name) }
	if strings.HasPrefix(key, brig.GrantPrefix) {
		grants, ok := k.keys.(Grants)
		if !ok {
			return p, brig.Errorf(brig.Unauthenticated, "this server takes no grants")
		}
		p.check = func(ctx context.Context) (brig.Actor, error) { return grants.GrantActor(ctx, key) }
	}
	if isToken(key) {
		people, ok := k.keys.(People)
		if !ok {
			return p, brig.Errorf(brig.Unauthenticated, "this server takes no tokens")
		}
		p.check = func(ctx context.Context) (brig.Actor, error) { return people.PersonActor(ctx, key) }
	}
	return k.show(r, p)
}

// show looks a proof up, or remembers it.
func (k *Keyring) show(r *http.Request, p Proof) (Proof, error) {
	addr := client(r)
	now := time.Now()
	k.mu.Lock()
	s, known := k.seen[p.name]
	wait := k.wait(addr, now)
	k.mu.Unlock()
	known = known && now.Sub(s.at) < seenAge
	if known && now.Sub(s.at) < keyAge && !hasEnded(s.actor, now) {
		p.Actor = s.actor
		return p, nil
	}
	if wait > 0 && !known {
		// Nothing is looked up for whoever guesses: not even a right guess
		// would be told from a wrong one.
		return p, tooMany(wait)
	}
	var err error
	p.Actor, err = p.check(r.Context())
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.seen, p.name)
		if brig.KindOf(err) == brig.Unauthenticated {
			k.missed(addr, now)
		}
		return p, err
	}
	if len(k.seen) >= maxSeen {
		clear(k.seen)
	}
	k.seen[p.name] = seenKey{p.Actor, now}
	return p, nil
}

// hasEnded reports whether an actor's own end has come.
func hasEnded(a brig.Actor, now time.Time) bool { return !a.Expires.IsZero() && !now.Before(a.Expires) }

// Vouch returns the proof of something else than a key that is good for as
// long as check says so. What proves the same has the same name.
func Vouch(ctx context.Context, name string, check func(context.Context) (brig.Actor, error)) (Proof, error) {
	a, err := check(ctx)
	return Proof{Actor: a, name: sha256.Sum256([]byte("\x00" + name)), check: check}, err
}

// KeyActor implements Keys, without remembering anything.
func (k *Keyring) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	return k.keys.KeyActor(ctx, hash)
}
