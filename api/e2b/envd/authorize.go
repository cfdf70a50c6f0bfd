package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Errors of requests that are not authorized, in E2B's wording.
var (
	errNoToken     = errors.New("unauthorized access, please provide a valid access token or method signing if supported")
	errNoSignature = errors.New("missing signature query parameter")
	errSignature   = errors.New("invalid signature")
	errExpired     = errors.New("signature is already expired")
)

// Signature returns the signature for the URL of a file. op is "read" or
// "write", path and user are the values in the query, and exp is a Unix time,
// or 0 for no expiry.
func Signature(path, op, user, token string, exp int64) string {
	signed := path + ":" + op + ":" + user + ":" + token
	if exp != 0 {
		signed += ":" + strconv.FormatInt(exp, 10)
	}
	sum := sha256.Sum256([]byte(signed))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// authorize returns an error if r is not authorized. If r has the header with
// the token, only the header is checked.
func authorize(r *http.Request, token string, clock brig.Clock) error {
	if token == "" || r.URL.Path == "/health" {
		return nil
	}
	if got := r.Header.Get("X-Access-Token"); got != "" {
		if !equalConstantTime(got, token) {
			return errNoToken
		}
		return nil
	}
	if r.URL.Path != "/files" {
		return errNoToken
	}
	q := r.URL.Query()
	if isAmbiguous(q) {
		return errSignature
	}
	op := "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	signature, exp := q.Get("signature"), int64(0)
	if signature == "" {
		return errNoSignature
	}
	if expiration := q.Get("signature_expiration"); expiration != "" {
		var err error
		if exp, err = strconv.ParseInt(expiration, 10, 64); err != nil || exp <= 0 || strconv.FormatInt(exp, 10) != expiration {
			return errSignature
		}
	}
	if !equalConstantTime(signature, Signature(q.Get("path"), op, q.Get("username"), token, exp)) {
		return errSignature
	}
	if exp != 0 && exp < clock.Now().Unix() && clock.HasPassed(time.Unix(exp+1, 0)) {
		return errExpired
	}
	return nil
}

// isAmbiguous reports whether the signed text of a query can be interpreted in
// two ways. Its parts are joined by colons. If the user contains a colon, the
// text `a:read:b` may also be the signed text of another path, operation and
// user. Otherwise the last three colons before the token end the path, even if
// the path contains colons. A repeated parameter is ambiguous because another
// parser may use the other value.
func isAmbiguous(q url.Values) bool {
	for _, name := range []string{"path", "username", "signature", "signature_expiration"} {
		if len(q[name]) > 1 {
			return true
		}
	}
	return strings.ContainsRune(q.Get("username"), ':')
}

// equalConstantTime compares two strings in constant time.
func equalConstantTime(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
