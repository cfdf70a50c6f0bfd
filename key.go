package brig

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// KeyKind is the format of a key.
type KeyKind string

// The formats of keys.
const (
	NativeKey KeyKind = "brig" // brig_ and 256 random bits
	E2BKey    KeyKind = "e2b"  // e2b_ and 40 hexadecimal digits, which E2B's clients require
)

// Key is an API key, which authenticates an actor. The store has only the hash of
// the key's secret.
type Key struct {
	ID   string   // permanent and not secret
	Hash [32]byte // SHA-256 of the key
	Kind KeyKind
	// Prefix is the beginning of the key, so that users can recognize it.
	Prefix string
	// Actor is the actor that the key authenticates. Actor.Key is the ID, and
	// Actor.Expires the expiry of the key.
	Actor   Actor
	Created time.Time
	// Used is the time of the last use, with a precision of a minute; zero if the
	// key was never used.
	Used time.Time
}

// KeySpec is a request for a key.
type KeySpec struct {
	Name string // the holder or the purpose
	// Tenant is the tenant of the key. Default: the caller's.
	Tenant string
	Role   Role
	// Scopes limit the operations; empty allows all operations of the role.
	Scopes []string
	// TTL is the lifetime of the key; zero means until it is revoked.
	TTL  time.Duration
	Kind KeyKind // default NativeKey
}

// NewKey is a key that was just created. No other call returns Secret.
type NewKey struct {
	Key
	Secret string
}

// GrantSpec is a request for a grant: a delegable part of the caller's rights.
// A zero field means all of the caller's rights.
type GrantSpec struct {
	Role   Role
	Scopes []string
	// Sandboxes limits the grant to the sandboxes with these names.
	Sandboxes []string
	// TTL is the lifetime of the grant. Default: an hour, at most a day.
	TTL time.Duration
}

// NewGrant is a grant with its token and its rights. It expires with its key at
// the latest.
type NewGrant struct {
	Actor  Actor
	Secret string
}

// GrantPrefix is the prefix of every grant.
const GrantPrefix = "brig_grant_"

// CheckScopes returns an error if a scope is not a prefix of an operation's
// name.
func CheckScopes(scopes []string) error {
	if len(scopes) > maxScopes {
		return InvalidField("scopes", "%d scopes are too many", len(scopes)).WithHint("give at most %d", maxScopes)
	}
	for _, s := range scopes {
		if s == "" || !slices.ContainsFunc(slices.Concat(Ops, KernelOps, TemplateOps), func(op Op) bool { return strings.HasPrefix(op.Name, s) }) {
			return InvalidField("scopes", "no operation's name begins with %q", Clip(s, 80)).
				WithHint(`for example "sandbox.", "file.read" or "run"`)
		}
	}
	return nil
}

// maxScopes bounds the number of scopes of a key and of sandboxes of a grant.
const maxScopes = 64

// InScope reports whether scopes include an operation. An empty list includes all
// operations.
func InScope(scopes []string, op string) bool {
	return len(scopes) == 0 || slices.ContainsFunc(scopes, func(s string) bool { return strings.HasPrefix(op, s) })
}

// DerivedRights holds the rights of a credential that is derived from a key: a grant,
// or a token derived from a grant. Each derived credential contains them in signed
// form.
type DerivedRights struct {
	// Grant is the ID of the grant.
	Grant     string    `json:"id"`
	Role      Role      `json:"role"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty"`
	Expires   time.Time `json:"expires"`
}

// DerivedRights returns the rights of a's derived credential.
func (a Actor) DerivedRights() DerivedRights {
	return DerivedRights{Grant: a.Grant, Role: a.Role, Scopes: a.Scopes, Sandboxes: a.Sandboxes, Expires: a.Expires}
}

// ErrGenuine is the cause of Unauthenticated errors for credentials that this server issued but
// that are not currently valid, for example because they have expired. Such credentials do not
// count as guesses.
var ErrGenuine = errors.New("the credential is genuine, and not valid now")

// MarkGenuine adds the cause ErrGenuine to an Unauthenticated error. It returns other errors, and
// nil, unchanged.
func MarkGenuine(err error) error {
	if KindOf(err) != Unauthenticated || errors.Is(err, ErrGenuine) {
		return err
	}
	e := *AsError(err)
	e.Err = ErrGenuine
	if cause := AsError(err).Err; cause != nil {
		e.Err = errors.Join(cause, ErrGenuine)
	}
	return &e
}

// CheckExpiry returns Unauthenticated if the derived credential has expired.
func (r DerivedRights) CheckExpiry(clock Clock) error {
	if !r.Expires.IsZero() && !clock.HasPassed(r.Expires) {
		return nil
	}
	return Errorf(Unauthenticated, "the grant has expired").WithHint("ask its issuer for a new one")
}

// Derive returns the rights of a credential derived from the key that
// authenticates a. They never exceed the current rights of the key.
func (a Actor) Derive(by DerivedRights) (Actor, error) {
	b := a
	b.Grant, b.Role, b.Scopes, b.Sandboxes, b.Expires = by.Grant, min(a.Role, by.Role), by.Scopes, by.Sandboxes, by.Expires
	if !a.Covers(b) {
		return Actor{}, Errorf(Unauthenticated, "the grant has more rights than its key").WithHint("ask its issuer for a new one")
	}
	return b, nil
}

// Covers reports whether an actor with the rights of a may delegate those of b:
// b has no right that a lacks. It ignores tenants and names.
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

// Clock determines whether a credential has expired: a key, a grant, a session, a
// link or a token. Every such check uses a Clock, because the system's clock can be
// set back.
type Clock interface {
	// Now returns the current time, which is never before an earlier result. The
	// expiry of a new credential is computed from this time.
	Now() time.Time
	// HasPassed reports whether a time has passed. A time that has passed once
	// remains passed, even after a restart. The zero time never passes.
	HasPassed(end time.Time) bool
}

// WallClock is the system's clock as a Clock. It goes back if the system's clock is
// set back, so it is suitable only for tests and for programs that issue no
// credentials.
type WallClock func() time.Time

var _ Clock = WallClock(nil)

// Now implements Clock.
func (c WallClock) Now() time.Time { return c() }

// HasPassed implements Clock.
func (c WallClock) HasPassed(end time.Time) bool { return !end.IsZero() && !c().Before(end) }
