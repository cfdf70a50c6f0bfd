// Package signin lets people in by an OpenID Connect provider: it verifies the
// provider's tokens (token.go) by its published keys (keys.go), takes a browser
// there and back (login.go), and says by the operator's mapping who is whom
// here (mapping.go).
//
// It keeps nothing of anybody. What a token says is believed only as far as the
// provider signed it for this server; what the bearer may do is the mapping's to
// say, each time that it is asked.
package signin

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/brig-run/brig"
)

// Options say which provider it is, and what this server is to it.
type Options struct {
	// Issuer is the provider's URL: https, or http on a loopback address.
	Issuer string
	// ClientID is this server's name there. Without a secret it is a public
	// client, which proves itself by PKCE alone; PKCE is used in any case.
	ClientID, ClientSecret string
	// Audiences are those whose tokens are taken, beside ClientID. Clients are
	// other programs, by their names at the provider, to which such tokens may
	// have been given.
	Audiences, Clients []string
	// Scopes are what is asked for at a login, openid among them.
	Scopes []string
	// URL is where browsers find this server.
	URL string
	// Mapping says who is whom. It is asked each time.
	Mapping func() (*Mapping, error)
	// Seed is the secret by which a login's beginning is known again at its end.
	Seed []byte
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// HTTP asks the provider. Default: one with bounds.
	HTTP *http.Client
}

// Provider is an OpenID Connect provider. It is asked for nothing before
// somebody comes with a token or wants to log in.
type Provider struct {
	Options
	keys *keySet
	used replays

	mu    sync.Mutex // guards the fields below
	meta  *metadata
	tried time.Time
}

// metadata is what the provider says of itself.
type metadata struct {
	*oidc.Provider
	JWKS        string `json:"jwks_uri"`
	SendsIssuer bool   `json:"authorization_response_iss_parameter_supported"`
}

const (
	// askTime bounds one question to the provider.
	askTime = 10 * time.Second
	// retryAfter is how soon a provider that did not answer is asked again.
	retryAfter = 5 * time.Second
)

// New returns a provider.
func New(o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{
			Timeout: askTime,
			// What it publishes is where it says.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	o.HTTP = &http.Client{Timeout: o.HTTP.Timeout, CheckRedirect: o.HTTP.CheckRedirect, Transport: bounded{o.HTTP.Transport}}
	p := &Provider{Options: o}
	p.keys = &keySet{now: o.Now, http: o.HTTP}
	return p, nil
}

// wrong is an error about a field of the configuration.
func wrong(field, format string, args ...any) *brig.Error {
	e := brig.Errorf(brig.InvalidConfig, format, args...)
	e.Field = field
	return e
}

func (o Options) check() error {
	if !secure(o.Issuer) {
		return wrong("oidc.issuer", "%q is no issuer", brig.Clip(o.Issuer, 80)).
			WithHint("give its URL, with https (http on a loopback address alone), as its own documents have it")
	}
	if o.ClientID == "" {
		return wrong("oidc.client_id", "it is missing").WithHint("give this server's name at the provider")
	}
	if !secure(o.URL) || strings.HasSuffix(o.URL, "/") {
		return wrong("url", "%q is not where browsers find this server", brig.Clip(o.URL, 80)).
			WithHint("write it as https://brig.example.com; oidc needs it")
	}
	if len(o.Seed) < 16 || o.Mapping == nil {
		return wrong("oidc", "the wiring is incomplete")
	}
	return nil
}

// secure reports whether nobody on the way to a URL can change what it says.
func secure(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	switch h := u.Hostname(); u.Scheme {
	case "https":
		return true
	case "http":
		return h == "localhost" || h == "127.0.0.1" || h == "::1"
	}
	return false
}

// discover asks the provider what there is to know, once.
func (p *Provider) discover(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meta != nil {
		return p.meta, nil
	}
	down := brig.Errorf(brig.Unavailable, "the identity provider cannot be asked").WithHint("try again in a moment; keys work meanwhile")
	if !p.tried.IsZero() && p.Now().Sub(p.tried) < retryAfter {
		return nil, down
	}
	p.tried = p.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.HTTP), p.Issuer)
	p.tried = p.Now() // whoever waited for this answer does not ask again
	if err != nil {
		return nil, down.Because(err)
	}
	m := &metadata{Provider: found}
	if err := found.Claims(m); err != nil {
		return nil, down.Because(err)
	}
	if !secure(found.Endpoint().TokenURL) || !secure(m.JWKS) {
		return nil, brig.Errorf(brig.InvalidConfig, "the identity provider's endpoints are not secure")
	}
	p.keys.at(m.JWKS)
	p.meta = m
	return m, nil
}

// flow is the exchange with the provider by which people log in.
func (p *Provider) flow(m *metadata) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: m.Endpoint(),
		RedirectURL: p.URL + CallbackPath, Scopes: p.Scopes,
	}
}
