package e2b

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// SandboxAccess is what the data plane needs to know of a sandbox.
type SandboxAccess struct {
	// ID names the sandbox for the Service.
	ID string
	// Token is what clients show as X-Access-Token, and sign URLs with.
	Token string
	// Env is the sandbox's environment, with its id.
	Env map[string]string
	// User and Dir are those of commands that do not say; empty for the usual
	// ones.
	User, Dir string
}

// headerToken and headerTraffic carry a sandbox's two tokens.
const (
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// mac returns the hex HMAC-SHA256 of s under the seed.
func (d *Door) mac(s string) string {
	m := hmac.New(sha256.New, d.Seed)
	m.Write([]byte(s))
	return hex.EncodeToString(m.Sum(nil))
}

// token is what proves that a client may use a sandbox: it was told so when it
// showed what the source names.
func (d *Door) token(id, source string) string { return d.bound(id, source) }

// trafficToken is what proves that a client may reach the ports of a sandbox
// that is closed to the public.
func (d *Door) trafficToken(id, source string) string { return d.bound("sandbox-traffic-"+id, source) }

// bound is a token that begins with its source, and can do no more than that. A
// dot ends the source: neither an id nor a source has one, so no two of them are
// signed as the same text. Without a source it is the sandbox's alone.
func (d *Door) bound(s, source string) string {
	if source == "" {
		return d.mac(s)
	}
	return source + "." + d.mac(s+"."+source)
}

// sourceOfToken is what a token was made of, as the token says itself.
func sourceOfToken(token string) string {
	source, _, ok := strings.Cut(token, ".")
	if !ok {
		return ""
	}
	return source
}

// equal compares secrets in constant time.
func equal(got, want string) bool { return hmac.Equal([]byte(got), []byte(want)) }

func (d *Door) access(s *brig.Sandbox, source string) SandboxAccess {
	env := maps.Clone(s.Spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[envID] = string(s.ID)
	return SandboxAccess{ID: string(s.ID), Token: d.token(string(s.ID), source), Env: env, User: s.Spec.User, Dir: s.Spec.Dir}
}

// isSigned reports whether r is for a signed URL that names no sandbox.
func isSigned(r *http.Request) bool {
	return r.URL.Path == "/files" && r.URL.Query().Get("signature") != ""
}

// signature makes what r's URL must have as its signature, of a token.
func signature(r *http.Request) func(token string) string {
	q, op := r.URL.Query(), "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	before, after := q.Get("path")+":"+op+":"+q.Get("username")+":", ""
	if exp := q.Get("signature_expiration"); exp != "" {
		after = ":" + exp
	}
	return func(token string) string { return sign(before + token + after) }
}

// mostSigned bounds the query of a signed URL, in bytes: it is looked at once
// for each sandbox, for somebody who has shown nothing yet.
const mostSigned = 8 << 10

func sign(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signed finds the sandbox whose token made the signature in r's URL, and
// passes r on to its data plane, which looks at the time as well.
func (d *Door) signed(w http.ResponseWriter, r *http.Request) {
	if allowPages(w, r) {
		return
	}
	got, want := r.URL.Query().Get("signature"), signature(r)
	for id := range d.candidates() {
		if len(r.URL.RawQuery) > mostSigned || r.Context().Err() != nil {
			break
		}
		for _, key := range d.mayHaveSigned(r.Context(), id) {
			if equal(got, want(d.token(id, key))) {
				d.inside(w, r, target{id: id, port: portEnvd})
				return
			}
		}
	}
	d.fail(w, r, brig.Errorf(brig.Unauthenticated, "invalid signature"))
}
