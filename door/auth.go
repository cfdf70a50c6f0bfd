package door

import (
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// KeyPrefix begins every key, so that people and scanners know one when they
// see it.
const KeyPrefix = "brig_"

// What is behind the prefix: enough that guessing is hopeless, and a bound on
// what is hashed.
const (
	minKey = 40
	maxKey = 256
	// A grant says all that it grants.
	maxGrant = 16 << 10
)

// MaxSecret is how long a key or grant may be that begins as s does.
func MaxSecret(s string) int {
	if strings.HasPrefix(s, brig.GrantPrefix) {
		return maxGrant
	}
	return maxKey
}

// Authenticate returns what the sender of r has shown, or an error of kind
// Unauthenticated.
func Authenticate(r *http.Request, keys *Keyring) (Proof, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return keys.session(r)
	}
	scheme, key, _ := strings.Cut(headers[0], " ")
	key = strings.TrimSpace(key)
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") && isToken(key) {
		return keys.Show(r, key)
	}
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || !plausible(key) {
		return Proof{}, unauthenticated("the Authorization header is not a Brig key")
	}
	proof, err := keys.Show(r, key)
	if brig.KindOf(err) == brig.Unauthenticated {
		return Proof{}, unauthenticated("nobody has this key").Because(err)
	}
	return proof, err
}

// isToken reports whether a key is one that somebody else has signed.
func isToken(key string) bool {
	return !strings.HasPrefix(key, KeyPrefix) && strings.HasPrefix(key, "eyJ") && strings.Count(key, ".") == 2 && len(key) <= maxGrant
}

// Auth lets a request through with its actor in the context, for as long as
// the key is good, or answers 401.
func Auth(keys Keys, next http.Handler) http.Handler { return AuthOr(keys, fail, next) }

// AuthOr is Auth of a door that says no in its own words.
func AuthOr(keys Keys, no func(http.ResponseWriter, *http.Request, error), next http.Handler) http.Handler {
	ring := NewKeyring(keys)
	return ring.Keyed(func(r *http.Request) (Proof, error) {
		return Authenticate(r, ring)
	}, func(w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return nil
	}, func(w http.ResponseWriter, r *http.Request, err error) {
		if _, brought := ring.Cookie.Session(r); brought && r.Header.Get("Authorization") == "" && brig.KindOf(err) == brig.Unauthenticated {
			// Else a page that asks again and again, with a session that has
			// ended, would be taken for somebody who guesses.
			ring.Cookie.ClearSession(w)
		}
		no(w, r, err)
	})
}

// Keyed handles requests that need a key, for doors with a way of their own to
// say what is wrong: authenticate finds whose it is, fail answers what did not
// go well.
func (k *Keyring) Keyed(
	authenticate func(*http.Request) (Proof, error),
	handle func(http.ResponseWriter, *http.Request) error,
	fail func(http.ResponseWriter, *http.Request, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		proof, err := authenticate(r)
		if err == nil {
			AllowBody(w, r)
			keyed, done := k.Use(w, r, proof)
			defer done()
			err = handle(w, keyed)
		}
		if err != nil {
			fail(w, r, err)
		}
	}
}

// plausible spares the store what cannot be a key.
func plausible(key string) bool {
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	if !ok || len(rest) < minKey || len(rest) > MaxSecret(key) {
		return false
	}
	return strings.IndexFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

func unauthenticated(message string) *brig.Error {
	return brig.Errorf(brig.Unauthenticated, "%s", message).
		WithHint("send the header Authorization: Bearer %s…", KeyPrefix)
}
