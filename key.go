package brig

import (
	"slices"
	"strings"
	"time"
)

// KeyKind is the form that a key has.
type KeyKind string

// The forms of keys.
const (
	NativeKey KeyKind = "brig" // brig_ and 256 random bits
	E2BKey    KeyKind = "e2b"  // e2b_ and 40 hexadecimal digits, on which E2B's clients insist
)

// Key proves who an actor is. Only its hash is stored.
type Key struct {
	ID   string   // names it for ever; no secret
	Hash [32]byte // SHA-256 of the key
	Kind KeyKind
	// Prefix is how the key begins, so that people know it again.
	Prefix string
	// Actor is whom it proves. Its Key is the ID, its Expires the key's.
	Actor   Actor
	Created time.Time
	// Used is when it was last used, within a minute; zero for never.
	Used time.Time
}

// KeySpec asks for a key.
type KeySpec struct {
	Name string // whose it is, or what for
	// Tenant is whose key it is. Default the caller's.
	Tenant string
	Role   Role
	// Scopes narrow what it may be used for; empty is all that the role may.
	Scopes []string
	// TTL is how long it is good for; zero is until it is revoked.
	TTL  time.Duration
	Kind KeyKind // default NativeKey
}

// NewKey is a key that was just made: nobody is ever told Secret again.
type NewKey struct {
	Key
	Secret string
}

// GrantSpec asks for a grant: a part of the caller's own rights, to be handed
// on. A zero field is as much as the caller has.
type GrantSpec struct {
	Role   Role
	Scopes []string
	// Sandboxes are the only ones, by name, that it is good for.
	Sandboxes []string
	// TTL is how long it is good for. Default an hour, at most a day.
	TTL time.Duration
}

// NewGrant is a grant, and what it lets its bearer do. It ends at the latest
// with the key from which it came.
type NewGrant struct {
	Actor  Actor
	Secret string
}

// GrantPrefix begins every grant.
const GrantPrefix = "brig_grant_"

// CheckScopes refuses scopes that are the beginning of no operation's name.
func CheckScopes(scopes []string) error {
	if len(scopes) > maxScopes {
		return InvalidField("scopes", "%d scopes are too many", len(scopes)).WithHint("give at most %d", maxScopes)
	}
	for _, s := range scopes {
		if s == "" || !slices.ContainsFunc(slices.Concat(Ops, DoorOps), func(op Op) bool { return strings.HasPrefix(op.Name, s) }) {
			return InvalidField("scopes", "%q is the beginning of no operation's name", Clip(s, 80)).
				WithHint(`for example "sandbox.", "file.read" or "run"`)
		}
	}
	return nil
}

// maxScopes bounds the scopes of a key, and the sandboxes of a grant.
const maxScopes = 64

// InScope reports whether scopes contain an operation. None contain all.
func InScope(scopes []string, op string) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, func(s string) bool { return strings.HasPrefix(op, s) })
}

// Narrowing is what is left of a key's rights to what was derived from it: a
// grant, or a token that was made of a grant. Whatever is derived carries all of
// it, under a signature.
type Narrowing struct {
	// Grant is the id of the grant that it is of.
	Grant     string    `json:"id"`
	Role      Role      `json:"role"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty"`
	Expires   time.Time `json:"expires"`
}

// Narrowing returns how a was narrowed.
func (a Actor) Narrowing() Narrowing {
	return Narrowing{Grant: a.Grant, Role: a.Role, Scopes: a.Scopes, Sandboxes: a.Sandboxes, Expires: a.Expires}
}

// Ended is Unauthenticated when what was derived is good no more.
func (n Narrowing) Ended(now time.Time) error {
	if now.Before(n.Expires) {
		return nil
	}
	return Errorf(Unauthenticated, "the grant has expired").WithHint("ask whoever gave it for a new one")
}

// Narrowed returns what a, whom a key proves, may do by something that was
// derived from the key: never more than the key allows now.
func (a Actor) Narrowed(by Narrowing) (Actor, error) {
	b := a
	b.Grant, b.Role, b.Scopes, b.Sandboxes, b.Expires = by.Grant, min(a.Role, by.Role), by.Scopes, by.Sandboxes, by.Expires
	if !a.Covers(b) {
		return Actor{}, Errorf(Unauthenticated, "the grant goes beyond what its key may").WithHint("ask whoever gave it for a new one")
	}
	return b, nil
}

// Covers reports whether whoever has the rights of a may hand on those of b:
// nothing that b may do is beyond a. Tenants and names do not matter.
func (a Actor) Covers(b Actor) bool {
	switch {
	case b.Role > a.Role:
		return false
	case !a.Expires.IsZero() && (b.Expires.IsZero() || b.Expires.After(a.Expires)):
		return false
	case len(a.Scopes) > 0 && len(b.Scopes) == 0, len(a.Sandboxes) > 0 && len(b.Sandboxes) == 0:
		return false
	}
	for _, s := range b.Scopes {
		if !InScope(a.Scopes, s) {
			return false
		}
	}
	for _, s := range b.Sandboxes {
		if len(a.Sandboxes) > 0 && !slices.Contains(a.Sandboxes, s) {
			return false
		}
	}
	return true
}
