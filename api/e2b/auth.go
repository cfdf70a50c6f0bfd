package e2b

import (
	"net/http"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// headerKey is the header with the API key of a control plane request.
const headerKey = "X-Api-Key"

// keyOf returns the API key of r. E2B's command line sends the key as a bearer
// token when it lists teams.
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

// authenticate checks the API key of r and returns the proof.
func (c *controlPlane) authenticate(r *http.Request) (httpapi.Proof, error) {
	key := keyOf(r)
	if key == "" {
		return httpapi.Proof{}, brig.Errorf(brig.Unauthenticated, "the X-API-KEY header is missing")
	}
	if len(key) > httpapi.MaxSecret(key) { // limits the bytes that are hashed
		return httpapi.Proof{}, brig.Errorf(brig.Unauthenticated, "invalid API key")
	}
	proof, err := c.keyring.Verify(r, key)
	if brig.KindOf(err) == brig.Unauthenticated {
		return httpapi.Proof{}, brig.Errorf(brig.Unauthenticated, "invalid API key").Because(err)
	}
	return proof, err
}
