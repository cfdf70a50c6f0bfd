package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/signin"
)

// apiAudience is the audience of the provider's access tokens.
const apiAudience = "https://api.brig.example"

// people lists the provider's users.
var people = map[string]any{
	"ann":     map[string]any{"claims": map[string]any{"email": "Ann@example.com", "email_verified": true, "groups": []string{"developers", "others"}}},
	"boss":    map[string]any{"claims": map[string]any{"email": "boss@example.com", "email_verified": true, "groups": []string{"developers", "admins"}}},
	"nobody":  map[string]any{"claims": map[string]any{"email": "nobody@example.com", "email_verified": true, "groups": []string{"others"}}},
	"foreign": map[string]any{"claims": map[string]any{"email": "ann@example.com.evil.test", "email_verified": true, "groups": []string{"admins"}}},
	"claimed": map[string]any{"claims": map[string]any{"email": "boss@example.com", "email_verified": false, "groups": []string{"admins"}}},
}

// oidcProvider is a real OpenID Connect provider on loopback, whose signing key is known to the
// test.
type oidcProvider struct {
	issuer string
	key    *rsa.PrivateKey
	log    *bytes.Buffer
}

// startProvider starts a provider for the server at a URL. If inToken is set, ID tokens contain
// the claims; otherwise clients must request them.
func startProvider(t *testing.T, server string, inToken bool) *oidcProvider {
	t.Helper()
	dir := npm(t, "oidc")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	port := testenv.Port(t)
	config, err := json.Marshal(map[string]any{
		"port": port, "people": people, "lifetime": 3600, "inToken": inToken,
		"jwks": jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: "first", Algorithm: "RS256", Use: "sig"}}},
		"clients": []map[string]any{
			{"client_id": "brig", "client_secret": "a secret of the test's own", "redirect_uris": []string{server + signin.CallbackPath}},
			{"client_id": "cli", "token_endpoint_auth_method": "none", "application_type": "native", "redirect_uris": []string{"http://127.0.0.1:1/cb"},
				"grant_types": []string{"authorization_code"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &oidcProvider{issuer: fmt.Sprintf("http://127.0.0.1:%d", port), key: key, log: &bytes.Buffer{}}
	cmd := exec.Command("node", "provider.mjs")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, p.log, p.log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OIDC=" + string(config)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(p.log)
		}
	})
	for deadline := time.Now().Add(2 * promptTimeout); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(p.issuer + "/.well-known/openid-configuration")
		if err == nil {
			resp.Body.Close()
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("the provider does not answer: %v", err)
		}
	}
}

// setUser sets the user that subsequent browsers sign in as.
func (p *oidcProvider) setUser(t *testing.T, name string) {
	t.Helper()
	resp, err := http.Get(p.issuer + "/who?is=" + name)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// signToken returns a token that is signed with the provider's key or another key.
func signToken(t *testing.T, key any, alg jose.SignatureAlgorithm, header map[string]any, claims map[string]any) string {
	t.Helper()
	o := &jose.SignerOptions{}
	for k, v := range header {
		o.WithHeader(jose.HeaderKey(k), v)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// browser simulates a browser: it stores cookies and, like a page, the CSRF token.
type browser struct {
	t    *testing.T
	http *http.Client
	csrf string // sent with every request, if it is set
	// token is the last CSRF token that the server returned; a page of this
	// origin would store it.
	token string
}

var csrfPattern = regexp.MustCompile(`"(?:brig_)?csrf"[:,]\s*"([^"]+)"`)

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, http: &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.Path, signin.CallbackPath) || r.URL.Path == "/cb" {
			return http.ErrUseLastResponse // stop before the final redirect, which the test follows itself
		}
		return nil
	}}}
}

// do sends a request, with headers as names and values.
func (b *browser) do(method, to, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.csrf != "" {
		req.Header.Set("X-Brig-CSRF", b.csrf)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if m := csrfPattern.FindSubmatch(text); m != nil {
		b.token = string(m[1])
	}
	return resp, string(text)
}

// redirectHeaders are the headers that a browser sends when the provider
// redirects it back.
var redirectHeaders = []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}

// followLogin logs in at the provider and returns the URL of the final redirect
// without following it.
func (b *browser) followLogin(login string) *url.URL {
	b.t.Helper()
	resp, text := b.do("GET", login, "")
	at, err := resp.Location()
	if err != nil {
		b.t.Fatalf("the provider did not send the browser back: %d %s", resp.StatusCode, text)
	}
	return at
}

// tokens holds the tokens of a user that a client program obtained from the provider.
type tokens struct{ id, access string }

// tokensOf signs a user in to a client program and returns the user's tokens.
func (p *oidcProvider) tokensOf(t *testing.T, who, client, secret, redirect string) tokens {
	t.Helper()
	p.setUser(t, who)
	provider, err := oidc.NewProvider(t.Context(), p.issuer)
	if err != nil {
		t.Fatal(err)
	}
	c := oauth2.Config{ClientID: client, ClientSecret: secret, Endpoint: provider.Endpoint(), RedirectURL: redirect, Scopes: []string{"openid", "email", "groups"}}
	verifier := oauth2.GenerateVerifier()
	at := newBrowser(t).followLogin(c.AuthCodeURL("x", oauth2.S256ChallengeOption(verifier)))
	token, err := c.Exchange(t.Context(), at.Query().Get("code"), oauth2.VerifierOption(verifier), oauth2.SetAuthURLParam("resource", apiAudience))
	if err != nil {
		t.Fatalf("%v: %s", err, at)
	}
	id, _ := token.Extra("id_token").(string)
	return tokens{id, token.AccessToken}
}

// oidcServer is a brig server with sign-in by OpenID Connect.
type oidcServer struct {
	*server
	provider *oidcProvider
	config   string
	mu       sync.Mutex
}

const oidcConfig = `
url: %[1]s
oidc:
  issuer: %[2]s
  client_id: brig
  client_secret: a secret of the test's own
  audiences: [` + apiAudience + `]
  clients: [cli]
  scopes: [openid, email, groups]
  domains: [example.com]
  tenant: {default: default}
  role: {claim: groups, values: {%[3]s}, default: none}
`

func startSignIn(t *testing.T) *oidcServer { return startSignInWith(t, true) }

func startSignInWith(t *testing.T, inToken bool) *oidcServer {
	t.Helper()
	needRoot(t)
	dir, port := dataDir(t), testenv.Port(t)
	at := fmt.Sprintf("http://127.0.0.1:%d", port)
	s := &oidcServer{provider: startProvider(t, at, inToken), config: filepath.Join(t.TempDir(), "brig.yaml")}
	s.roles(t, at, "developers: member, admins: operator")
	s.server = startServer(t, dir, "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--config", s.config, "--pool", "0")
	return s
}

// roles changes the mapping of users to roles.
func (s *oidcServer) roles(t *testing.T, at, values string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.config + ".new"
	if err := os.WriteFile(fresh, fmt.Appendf(nil, oidcConfig, at, s.provider.issuer, values), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, s.config); err != nil {
		t.Fatal(err)
	}
}

// signIn signs a user in with a browser and starts a session.
func (s *oidcServer) signIn(t *testing.T, b *browser, who string) (*http.Response, string) {
	t.Helper()
	s.provider.setUser(t, who)
	at := b.followLogin(s.url + "/v1/auth/login?next=/ui/")
	return b.do("GET", at.String(), "", redirectHeaders...)
}

// whoami returns the server's description of the caller.
func (s *oidcServer) whoami(b *browser, headers ...string) (int, map[string]any) {
	resp, text := b.do("GET", s.url+"/v1/auth/whoami", "", headers...)
	out := map[string]any{}
	_ = json.Unmarshal([]byte(text), &out)
	return resp.StatusCode, out
}
