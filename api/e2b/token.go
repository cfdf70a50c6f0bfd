package e2b

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// SandboxAccess describes a sandbox for the data plane.
type SandboxAccess struct {
	// ID is the sandbox's id in the Service.
	ID string
	// Token is the token that clients send as X-Access-Token and with which
	// they sign URLs.
	Token string
	// Env is the sandbox's environment, including its id.
	Env map[string]string
	// User and Dir are the default user and directory of commands. If they are
	// empty, the defaults of the Service apply.
	User, Dir string
}

// envPip lets pip install packages in images whose distribution manages
// Python's packages, because a plain `pip install` works in E2B's sandboxes.
// The egress rules still apply.
const envPip = "PIP_BREAK_SYSTEM_PACKAGES"

// headerToken and headerTraffic are the headers of a sandbox's two tokens.
const (
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// tokens derives the tokens of sandboxes, verifies them, and finds the key or
// grant from which a token was derived.
type tokens struct{ *env }

// mac returns the hex HMAC-SHA256 of s under the seed.
func (k *tokens) mac(s string) string {
	m := hmac.New(sha256.New, k.Seed)
	m.Write([]byte(s))
	return hex.EncodeToString(m.Sum(nil))
}

// token returns the access token of a sandbox for a source. The token proves
// that the client was authorized as that source.
func (k *tokens) token(id, source string) string { return k.restrictedToken(id, source) }

// trafficToken returns the token for the ports of a sandbox that is closed to
// the public.
func (k *tokens) trafficToken(id, source string) string {
	return k.restrictedToken("sandbox-traffic-"+id, source)
}

// restrictedToken returns a token that begins with its source and has only the
// rights of that source. A dot ends the source. Neither an id nor a source
// contains a dot, so different pairs of an id and a source are never signed as
// the same text. If source is empty, the token belongs to the sandbox.
func (k *tokens) restrictedToken(s, source string) string {
	if source == "" {
		return k.mac(s)
	}
	return source + "." + k.mac(s+"."+source)
}

// shield returns the filter of requests to ports of sandboxes.
func (k *tokens) shield() httpapi.Shield {
	s := httpapi.ShieldOf(k.Keys)
	if k.Options.KeyActor == nil {
		s.Own = k.isSandboxToken
	}
	return s
}

// isSandboxToken reports whether a token belongs to a sandbox and to no key.
func (k *tokens) isSandboxToken(token string) bool {
	for id := range k.candidates() {
		if equalSecrets(token, k.token(id, "")) || equalSecrets(token, k.trafficToken(id, "")) {
			return true
		}
	}
	return false
}

// sourceOfToken returns the source in a token, without verifying the token.
func sourceOfToken(token string) string {
	source, _, ok := strings.Cut(token, ".")
	if !ok {
		return ""
	}
	return source
}

// equalSecrets compares secrets in constant time.
func equalSecrets(got, want string) bool { return hmac.Equal([]byte(got), []byte(want)) }

func (k *tokens) access(s *brig.Sandbox, source string) SandboxAccess {
	env := maps.Clone(s.Spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[envID] = string(s.ID)
	if _, set := env[envPip]; !set {
		env[envPip] = "1"
	}
	return SandboxAccess{ID: string(s.ID), Token: k.token(string(s.ID), source), Env: env, User: s.Spec.User, Dir: s.Spec.Dir}
}
