package e2b

import (
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// headerKey carries the key of whoever calls the control plane.
const headerKey = "X-Api-Key"

// maxKey bounds what is hashed.
const maxKey = 256

// keyOf returns the key that r shows. The command line sends it as a bearer
// token when it looks for teams.
func keyOf(r *http.Request) string {
	if key := r.Header.Get(headerKey); key != "" {
		return key
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

// authenticate returns r with its actor in the context.
func (d *Door) authenticate(r *http.Request) (*http.Request, error) {
	key := keyOf(r)
	if key == "" {
		return nil, brig.Errorf(brig.Unauthenticated, "the X-API-KEY header is missing")
	}
	if len(key) > maxKey {
		return nil, brig.Errorf(brig.Unauthenticated, "invalid API key")
	}
	actor, err := d.Keys.KeyActor(r.Context(), sha256.Sum256([]byte(key)))
	if brig.KindOf(err) == brig.Unauthenticated {
		return nil, brig.Errorf(brig.Unauthenticated, "invalid API key").Because(err)
	}
	if err != nil {
		return nil, err
	}
	return r.WithContext(brig.WithActor(r.Context(), actor)), nil
}
