package door

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// Keys finds whose a key is by the key's SHA-256. A key that nobody has is
// Unauthenticated. A brig.Store is one.
type Keys interface {
	KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error)
}

// KeyPrefix begins every key, so that people and scanners know one when they
// see it.
const KeyPrefix = "brig_"

// What is behind the prefix: enough that guessing is hopeless, and a bound on
// what is hashed.
const (
	minKey = 40
	maxKey = 256
)

// Authenticate returns who sent r, or an error of kind Unauthenticated.
func Authenticate(r *http.Request, keys Keys) (brig.Actor, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return brig.Actor{}, unauthenticated("this needs a key")
	}
	scheme, key, _ := strings.Cut(headers[0], " ")
	key = strings.TrimSpace(key)
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || !plausible(key) {
		return brig.Actor{}, unauthenticated("the Authorization header is not a Brig key")
	}
	actor, err := keys.KeyActor(r.Context(), sha256.Sum256([]byte(key)))
	if brig.KindOf(err) == brig.Unauthenticated {
		return brig.Actor{}, unauthenticated("nobody has this key").Because(err)
	}
	return actor, err
}

// Auth lets a request through with its actor in the context, or answers 401.
func Auth(keys Keys, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, err := Authenticate(r, keys)
		if err != nil {
			fail(w, r, err)
			return
		}
		AllowBody(w, r)
		next.ServeHTTP(w, r.WithContext(brig.WithActor(r.Context(), actor)))
	})
}

// plausible spares the store what cannot be a key.
func plausible(key string) bool {
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	if !ok || len(rest) < minKey || len(rest) > maxKey {
		return false
	}
	return strings.IndexFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

func unauthenticated(message string) *brig.Error {
	return brig.Errorf(brig.Unauthenticated, "%s", message).
		WithHint("send the header Authorization: Bearer %s…", KeyPrefix)
}
