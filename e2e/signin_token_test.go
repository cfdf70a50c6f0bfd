package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/signin"
)

// bearer calls whoami with a bearer token, and returns the status and the response.
func (s *oidcServer) bearer(t *testing.T, token string) (int, map[string]any) {
	t.Helper()
	return s.whoami(newBrowser(t), "Authorization", "Bearer "+token)
}

// TestUserTokensAreAccepted verifies that the server accepts a token of the provider as a key
// only if it was issued for this server, or to a program that the operator allows.
//
//suite:part hostile
func TestUserTokensAreAccepted(t *testing.T) {
	s := startSignIn(t)
	p := s.provider
	own := p.tokensOf(t, "ann", "brig", "a secret of the test's own", s.url+signin.CallbackPath)
	cli := p.tokensOf(t, "boss", "cli", "", "http://127.0.0.1:1/cb")
	for name, want := range map[string]struct{ token, who, role string }{
		"an ID token for this server":         {own.id, "ann@example.com", "member"},
		"an access token for this server":     {own.access, "ann@example.com", "member"},
		"an access token that a program has":  {cli.access, "boss@example.com", "operator"},
		"a token that the test made the same": {signToken(t, p.key, jose.RS256, map[string]any{"kid": "first"}, p.claims(nil)), "ann@example.com", "member"},
	} {
		status, me := s.bearer(t, want.token)
		if status != 200 || me["name"] != want.who || me["role"] != want.role || me["expires"] == "" || me["csrf"] != nil {
			t.Errorf("%s: %d %v", name, status, me)
		}
		attack.RecordMutant("API-08", name, "all that a token is held to", status == 200)
	}
	now := time.Now().Unix()
	public, err := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	kid := map[string]any{"kid": "first"}
	with := func(change map[string]any) string { return signToken(t, p.key, jose.RS256, kid, p.claims(change)) }
	good := with(nil)
	parts := strings.Split(good, ".")
	head := func(h string) string { return base64.RawURLEncoding.EncodeToString([]byte(h)) }
	forge := func(change map[string]any) string {
		b, err := json.Marshal(p.claims(change))
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	for name, token := range map[string]string{
		"an ID token for another program":          cli.id,
		"another issuer":                           with(map[string]any{"iss": "https://evil.test"}),
		"an issuer with a slash more":              with(map[string]any{"iss": p.issuer + "/"}),
		"another audience":                         with(map[string]any{"aud": "other"}),
		"no audience":                              with(map[string]any{"aud": nil}),
		"an audience that begins as ours":          with(map[string]any{"aud": "brigade"}),
		"several audiences and no party":           with(map[string]any{"aud": []string{"brig", "other"}}),
		"a party that is not known":                with(map[string]any{"aud": []string{"brig", "other"}, "azp": "other"}),
		"a program that is not known":              with(map[string]any{"aud": apiAudience, "client_id": "other"}),
		"expired":                                  with(map[string]any{"exp": now - 60}),
		"without an end":                           with(map[string]any{"exp": nil}),
		"an end that is text":                      with(map[string]any{"exp": "never"}),
		"not good yet":                             with(map[string]any{"nbf": now + 600}),
		"made in the future":                       with(map[string]any{"iat": now + 600}),
		"nobody":                                   with(map[string]any{"sub": ""}),
		"one that ends sessions":                   with(map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}),
		"an address that nobody verified":          with(map[string]any{"email_verified": false}),
		"an address of another domain":             with(map[string]any{"email": "ann@evil.test"}),
		"an address with two domains":              with(map[string]any{"email": "ann@evil.test@example.com"}),
		"no role":                                  with(map[string]any{"groups": []string{"others"}}),
		"alg none":                                 head(`{"alg":"none"}`) + "." + parts[1] + ".",
		"alg None":                                 head(`{"alg":"None","kid":"first"}`) + "." + parts[1] + ".",
		"alg none with a signature":                head(`{"alg":"none","kid":"first"}`) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key as PEM":         signToken(t, asPEM, jose.HS256, kid, p.claims(nil)),
		"HS256 with the public key as DER":         signToken(t, public, jose.HS256, kid, p.claims(nil)),
		"HS256 with nothing much":                  signToken(t, make([]byte, 32), jose.HS256, kid, p.claims(nil)),
		"another algorithm than the key's":         signToken(t, p.key, jose.PS256, kid, p.claims(nil)),
		"another's key under the name of ours":     signToken(t, other, jose.RS256, kid, p.claims(nil)),
		"another's key under its own name":         signToken(t, other, jose.RS256, map[string]any{"kid": "second"}, p.claims(nil)),
		"our key under another name":               signToken(t, p.key, jose.RS256, map[string]any{"kid": "second"}, p.claims(nil)),
		"another's key that the token brings":      signToken(t, other, jose.RS256, map[string]any{"jwk": jose.JSONWebKey{Key: &other.PublicKey}}, p.claims(nil)),
		"another's key that it says where to find": signToken(t, other, jose.RS256, map[string]any{"jku": p.issuer + "/jwks", "kid": "x"}, p.claims(nil)),
		"a header that must be understood":         signToken(t, p.key, jose.RS256, map[string]any{"kid": "first", "crit": []string{"b64"}, "b64": true}, p.claims(nil)),
		"a type that is not of people":             signToken(t, p.key, jose.RS256, map[string]any{"kid": "first", "typ": "logout+jwt"}, p.claims(nil)),
		"claims changed under the signature":       parts[0] + "." + forge(map[string]any{"groups": []string{"admins"}}) + "." + parts[2],
		"no signature":                             parts[0] + "." + parts[1] + ".",
		"half a signature":                         parts[0] + "." + parts[1] + "." + parts[2][:100],
		"a signature more":                         good + "." + parts[2],
		"an invalid header":                        "eyJ." + parts[1] + "." + parts[2],
		"a subject of a megabyte":                  with(map[string]any{"sub": strings.Repeat("x", 1<<20)})[:16<<10],
		"two tokens":                               good + "," + good,
	} {
		t.Run(name, func(t *testing.T) {
			attack.Case(t, "API-08", name)
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/auth/whoami", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			// Use different client addresses, because the server blocks an address after too many
			// wrong tokens.
			resp, err := newClientAddress(len(name) + int(name[0])<<7).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%d", resp.StatusCode)
			}
		})
	}
	if status, _ := s.bearer(t, good); status != 200 {
		t.Errorf("the good one, after all those: %d", status)
	}
}

// claims returns the provider's claims for ann, modified by change. A nil value removes a claim.
func (p *oidcProvider) claims(change map[string]any) map[string]any {
	now := time.Now().Unix()
	out := map[string]any{
		"iss": p.issuer, "aud": "brig", "sub": "ann", "iat": now, "exp": now + 600,
		"email": "ann@example.com", "email_verified": true, "groups": []string{"developers"},
	}
	maps.Copy(out, change)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

// TestRoleRemovalIsImmediate verifies that a user whose mapping was removed
// loses access within a second, including for requests in progress, and that a
// newly mapped user gains access.
//
//suite:part hostile
func TestRoleRemovalIsImmediate(t *testing.T) {
	s := startSignIn(t)
	token := signToken(t, s.provider.key, jose.RS256, map[string]any{"kid": "first"}, s.provider.claims(nil))
	b := newBrowser(t)
	s.signIn(t, b, "ann")
	if status, me := s.whoami(b); status != 200 || me["role"] != "member" {
		t.Fatal(status, me)
	}
	// Keep a request in progress by streaming the output of a command.
	if status, text := s.do("POST", "/v1/sandboxes", `{"name":"box"}`); status != 201 {
		t.Fatal(status, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/sandboxes/box/exec", strings.NewReader(`{"command":["sleep","50"],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	ended := make(chan time.Time, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := resp.Body.Read(buf); err != nil {
				ended <- time.Now()
				return
			}
		}
	}()
	time.Sleep(time.Second)
	attack.Case(t, "API-08", "somebody whom the mapping does not know any more")
	begin := time.Now()
	s.roles(t, s.url, "admins: operator")
	for name, headers := range map[string][]string{"the session": nil, "the token": {"Authorization", "Bearer " + token}} {
		b := b
		if headers != nil {
			b = newBrowser(t)
		}
		eventually(t, name+" is rejected", func() bool {
			status, _ := s.whoami(b, headers...)
			return status == http.StatusUnauthorized
		})
	}
	select { // the command would run for 50 s
	case at := <-ended:
		t.Logf("the stream ended after %v", at.Sub(begin))
	case <-time.After(promptTimeout):
		t.Error("what went on goes on")
	}
	s.roles(t, s.url, "developers: viewer")
	status, me := 0, map[string]any(nil)
	eventually(t, "known anew", func() bool {
		status, me = s.bearer(t, token)
		return status == 200 && me["role"] == "viewer"
	})
	attack.RecordMutant("API-08", "the same person, mapped again", "the mapping", status == 200)
	// No user can sign in while the file is invalid, and users can sign in again afterwards.
	s.roles(t, s.url, "developers: king")
	eventually(t, "nobody can sign in with a wrong file", func() bool {
		status, _ := s.bearer(t, token)
		return status == http.StatusServiceUnavailable
	})
	if status, text := s.do("GET", "/v1/auth/whoami", ""); status != 200 {
		t.Errorf("a key, with a wrong file: %d %s", status, text)
	}
	s.roles(t, s.url, "developers: member")
	eventually(t, "a user signs in with a good file again", func() bool {
		status, _ := s.bearer(t, token)
		return status == 200
	})
}
