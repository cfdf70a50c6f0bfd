package httpapi

import (
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// KeyPrefix is the prefix of every API key. It lets people and secret scanners
// recognize keys.
const KeyPrefix = "brig_"

// E2B clients require keys in another format: the prefix e2b_ and 40
// hexadecimal digits. Such keys are valid for every API.
const (
	e2bPrefix = "e2b_"
	e2bDigits = 40
)

// Lengths after the prefix: the minimum makes guessing infeasible, and the
// maximum limits the bytes that are hashed.
const (
	minKey = 40
	maxKey = 256
	// a grant is long because it contains all of its rights
	maxGrant = 16 << 10
)

// MaxSecret returns the maximum length of a key or grant with the prefix of s.
func MaxSecret(s string) int {
	if strings.HasPrefix(s, brig.GrantPrefix) {
		return maxGrant
	}
	return maxKey
}

// Authenticate returns the proof of r's credential. It returns Unauthenticated
// if the credential is missing or invalid.
func Authenticate(r *http.Request, keys *Keyring) (Proof, error) {
	if keys.Owner != nil && IsFromOwner(r) {
		return keys.verifyOwner(r)
	}
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return keys.verifySession(r)
	}
	scheme, key, _ := strings.Cut(headers[0], " ")
	key = strings.TrimSpace(key)
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") && isToken(key) {
		return keys.Verify(r, key)
	}
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || !isPlausible(key) {
		return Proof{}, unauthenticatedError("the Authorization header is not a Brig key")
	}
	proof, err := keys.Verify(r, key)
	if brig.KindOf(err) == brig.Unauthenticated {
		return Proof{}, unauthenticatedError("invalid API key").Because(err)
	}
	return proof, err
}

// isToken reports whether a key has the format of a JSON Web Token, which
// another server signed.
func isToken(key string) bool {
	return !strings.HasPrefix(key, KeyPrefix) && strings.HasPrefix(key, "eyJ") && strings.Count(key, ".") == 2 && len(key) <= maxGrant
}

// Auth returns a handler that calls next with the actor in the request's
// context. The context is canceled when the key becomes invalid. It responds
// with 401 to a request without a valid key.
func Auth(keys Keys, next http.Handler) http.Handler { return AuthOr(keys, fail, next) }

// AuthOr is like Auth, but writes error responses with fail.
func AuthOr(keys Keys, fail func(http.ResponseWriter, *http.Request, error), next http.Handler) http.Handler {
	ring := NewKeyring(keys)
	return ring.Keyed(func(r *http.Request) (Proof, error) {
		return Authenticate(r, ring)
	}, func(w http.ResponseWriter, r *http.Request) error {
		next.ServeHTTP(w, r)
		return nil
	}, func(w http.ResponseWriter, r *http.Request, err error) {
		if _, hasSession := ring.Cookie.Session(r); hasSession && r.Header.Get("Authorization") == "" && brig.KindOf(err) == brig.Unauthenticated {
			// Otherwise a page that polls with an ended session would count as
			// a guessing attack.
			ring.Cookie.ClearSession(w)
		}
		fail(w, r, err)
	})
}

// Keyed handles requests that need a key, for APIs with their own error format.
// authenticate returns the proof of a request, and fail responds with errors.
func (k *Keyring) Keyed(
	authenticate func(*http.Request) (Proof, error),
	handle func(http.ResponseWriter, *http.Request) error,
	fail func(http.ResponseWriter, *http.Request, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		proof, err := authenticate(r)
		if err == nil {
			err = LeaseOf(r.Context()).Begin(proof.Actor)
		}
		if err == nil {
			AllowBody(r)
			keyed, done := k.Bind(w, r, proof)
			defer done()
			err = handle(w, keyed)
		}
		if err != nil {
			fail(w, r, err)
		}
	}
}

// isPlausible reports whether key has the format of a key. Other strings are
// rejected without a lookup in the store.
func isPlausible(key string) bool {
	if digits, ok := strings.CutPrefix(key, e2bPrefix); ok {
		_, err := hex.DecodeString(digits)
		return err == nil && len(digits) == e2bDigits
	}
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	if !ok || len(rest) < minKey || len(rest) > MaxSecret(key) {
		return false
	}
	return strings.IndexFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

func unauthenticatedError(message string) *brig.Error {
	return brig.Errorf(brig.Unauthenticated, "%s", message).
		WithHint("send the header Authorization: Bearer %s…", KeyPrefix)
}
