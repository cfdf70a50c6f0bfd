package e2b

import (
	"net/http"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// headerKey carries the key of whoever calls the control plane.
const headerKey = "X-Api-Key"

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

// authenticate returns what the sender of r has shown.
func (d *Door) authenticate(r *http.Request) (door.Proof, error) {
	key := keyOf(r)
	if key == "" {
		return door.Proof{}, brig.Errorf(brig.Unauthenticated, "the X-API-KEY header is missing")
	}
	if len(key) > door.MaxSecret(key) { // a bound on what is hashed
		return door.Proof{}, brig.Errorf(brig.Unauthenticated, "invalid API key")
	}
	proof, err := d.ring.Show(r, key)
	if brig.KindOf(err) == brig.Unauthenticated {
		return door.Proof{}, brig.Errorf(brig.Unauthenticated, "invalid API key").Because(err)
	}
	return proof, err
}
