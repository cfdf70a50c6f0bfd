package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Keys looks up the actor of a key by the key's SHA-256. It returns
// Unauthenticated for an unknown or revoked key.
type Keys interface {
	KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error)
}

// Grants looks up the actor of a grant. An implementation of Keys that also
// implements Grants accepts grants.
type Grants interface {
	GrantActor(ctx context.Context, grant string) (brig.Actor, error)
}

// People looks up the person of an identity provider's token. An implementation
// of Keys that also implements People accepts such tokens.
type People interface {
	PersonActor(ctx context.Context, token string) (brig.Actor, error)
}

// Sessions looks up the actor of a session by the SHA-256 of its secret. An
// implementation of Keys that also implements Sessions accepts session cookies.
type Sessions interface {
	SessionActor(ctx context.Context, hash [32]byte) (brig.Actor, error)
	// SessionCSRF returns the SHA-256 of the session's CSRF token, which
	// requests that change state must send in the header CSRF.
	SessionCSRF(ctx context.Context, hash [32]byte) ([32]byte, error)
}

const (
	// keyCacheTTL is how long a valid key is cached. Together, keyCacheTTL
	// and recheck keep the time in which a revoked key still works below one
	// second.
	keyCacheTTL = 500 * time.Millisecond
	maxCached   = 10_000
)

// Keyring wraps Keys. It caches actors for a short time, ends requests whose
// key becomes invalid, and slows down addresses that send many wrong keys.
type Keyring struct {
	keys Keys
	// Cookie reads and writes the session cookies of browsers. Set it before
	// use.
	Cookie Cookies
	// Clock determines whether cached credentials have expired. Default:
	// time.Now. Set it before use.
	Clock brig.Clock
	// Owner returns the current actor of programs that connect over the
	// server's Unix socket (see IsFromOwner). Default: such programs need a
	// credential, like all other clients. Set it before use.
	Owner func(context.Context) (brig.Actor, error)

	mu            sync.Mutex // guards the fields below
	cache         map[[32]byte]cachedKey
	open          map[[32]byte]*openRequests
	watching      bool
	failedClients map[string]*failedClient
}

type cachedKey struct {
	actor     brig.Actor
	checkedAt time.Time
}

// NewKeyring returns a Keyring for keys. If keys is already a Keyring, it
// returns keys.
func NewKeyring(keys Keys) *Keyring {
	if k, ok := keys.(*Keyring); ok {
		return k
	}
	return &Keyring{keys: keys, Clock: brig.WallClock(time.Now), cache: map[[32]byte]cachedKey{}, open: map[[32]byte]*openRequests{}, failedClients: map[string]*failedClient{}}
}

// Proof is the result of a check of a valid credential.
type Proof struct {
	Actor brig.Actor
	name  [32]byte
	check func(context.Context) (brig.Actor, error)
}

// Verify returns the proof of the key in r.
func (k *Keyring) Verify(r *http.Request, key string) (Proof, error) {
	p := Proof{name: sha256.Sum256([]byte(key))}
	p.check = func(ctx context.Context) (brig.Actor, error) { return k.keys.KeyActor(ctx, p.name) }
	if strings.HasPrefix(key, brig.GrantPrefix) {
		grants, ok := k.keys.(Grants)
		if !ok {
			return p, brig.Errorf(brig.Unauthenticated, "this server does not accept grants")
		}
		p.check = func(ctx context.Context) (brig.Actor, error) { return grants.GrantActor(ctx, key) }
	}
	if isToken(key) {
		people, ok := k.keys.(People)
		if !ok {
			return p, brig.Errorf(brig.Unauthenticated, "this server does not accept tokens")
		}
		p.check = func(ctx context.Context) (brig.Actor, error) { return people.PersonActor(ctx, key) }
	}
	return k.verify(r, p)
}

// verify returns p with its actor, which comes from the cache or from p.check.
func (k *Keyring) verify(r *http.Request, p Proof) (Proof, error) {
	addr := clientAddress(r)
	now := time.Now()
	k.mu.Lock()
	s, known := k.cache[p.name]
	k.mu.Unlock()
	if known && now.Sub(s.checkedAt) < keyCacheTTL && !k.Clock.HasPassed(s.actor.Expires) {
		p.Actor = s.actor
		return p, nil
	}
	// The credential is checked before failures of its address are considered,
	// so wrong credentials from an address never delay a valid one from the
	// same address. A credential has at least 160 random bits, so guessing
	// cannot succeed. An expired credential does not count as a guess, because
	// its holder would otherwise delay the error responses of other clients at
	// the address.
	var err error
	p.Actor, err = p.check(r.Context())
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.cache, p.name)
		if brig.KindOf(err) == brig.Unauthenticated && !errors.Is(err, brig.ErrGenuine) {
			if wait := k.remainingWait(addr, now); wait > 0 {
				return p, tooManyError(wait)
			}
			k.recordFailure(addr, now)
		}
		return p, err
	}
	if len(k.cache) >= maxCached {
		clear(k.cache)
	}
	k.cache[p.name] = cachedKey{p.Actor, now}
	return p, nil
}

// NewProof returns a proof for a credential other than a key. It is valid while
// check succeeds. Equal credentials must have equal names.
func NewProof(ctx context.Context, name string, check func(context.Context) (brig.Actor, error)) (Proof, error) {
	a, err := check(ctx)
	return Proof{Actor: a, name: sha256.Sum256([]byte("\x00" + name)), check: check}, err
}

// KeyActor implements Keys, without the cache.
func (k *Keyring) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	return k.keys.KeyActor(ctx, hash)
}
