package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Why a request is not let in, in E2B's words.
var (
	errNoToken     = errors.New("unauthorized access, please provide a valid access token or method signing if supported")
	errNoSignature = errors.New("missing signature query parameter")
	errSignature   = errors.New("invalid signature")
	errExpired     = errors.New("signature is already expired")
)

// Signature signs the URL of a file: op is "read" or "write", path and user
// are as the query says them, and exp is a Unix time, or 0 for never.
func Signature(path, op, user, token string, exp int64) string {
	signed := path + ":" + op + ":" + user + ":" + token
	if exp != 0 {
		signed += ":" + strconv.FormatInt(exp, 10)
	}
	sum := sha256.Sum256([]byte(signed))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// authorize reports why r must not be answered. A token that is there counts,
// whatever else is.
func authorize(r *http.Request, token string, now time.Time) error {
	if token == "" || r.URL.Path == "/health" {
		return nil
	}
	if got := r.Header.Get("X-Access-Token"); got != "" {
		if !same(got, token) {
			return errNoToken
		}
		return nil
	}
	if r.URL.Path != "/files" {
		return errNoToken
	}
	q := r.URL.Query()
	op := "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	signature, exp := q.Get("signature"), int64(0)
	if signature == "" {
		return errNoSignature
	}
	if given := q.Get("signature_expiration"); given != "" {
		var err error
		if exp, err = strconv.ParseInt(given, 10, 64); err != nil || exp <= 0 {
			return errSignature
		}
	}
	if !same(signature, Signature(q.Get("path"), op, q.Get("username"), token, exp)) {
		return errSignature
	}
	if exp != 0 && exp < now.Unix() {
		return errExpired
	}
	return nil
}

// same compares without telling by its time how much is right.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
