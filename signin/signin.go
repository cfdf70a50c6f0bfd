// Package signin authenticates users through an OpenID Connect provider. It verifies the provider's
// tokens (token.go) with its published keys (keys.go), and handles a browser's login (login.go). It
// maps users to tenants and roles by the operator's mapping (mapping.go).
//
// The package stores no users. A token only proves that the provider signed its claims for this
// server. The mapping determines the bearer's role at each request.
package signin

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
	"github.com/brig-run/brig/internal/outbound"
)

// Options are the configuration of the provider and this server's registration with it.
type Options struct {
	// Issuer is the provider's URL: https, or http on a loopback address.
	Issuer string
	// ClientID is this server's client ID. Without a secret, this server is a public client, which
	// authenticates only by PKCE. Logins always use PKCE.
	ClientID, ClientSecret string
	// Audiences are the accepted audiences of tokens, in addition to ClientID. Clients are the
	// client IDs of other programs to which such tokens may have been issued.
	Audiences, Clients []string
	// Scopes are the scopes that a login requests. They include openid.
	Scopes []string
	// URL is the URL of this server for browsers.
	URL string
	// Mapping returns the current mapping. It is called for each request.
	Mapping func() (*Mapping, error)
	// Seed is the secret that authenticates the cookie of a login.
	Seed []byte
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// Clock determines whether tokens and logins have expired. The default is Now.
	Clock brig.Clock
	// AllowPrivate allows private addresses for the hosts in the provider's documents. The issuer's
	// own host may always have a private address.
	AllowPrivate bool
	// HTTP is the client for requests to the provider. The default is a client with limits.
	HTTP *http.Client
}

// Provider is an OpenID Connect provider. It is not contacted before the first
// token or login.
type Provider struct {
	Options
	keys *keySet
	used replays

	mu      sync.Mutex // guards the fields below
	meta    *metadata
	triedAt time.Time
}

// metadata is the provider's discovery document.
type metadata struct {
	*oidc.Provider
	JWKS        string `json:"jwks_uri"`
	SendsIssuer bool   `json:"authorization_response_iss_parameter_supported"`
}

const (
	// requestTimeout bounds one request to the provider.
	requestTimeout = 10 * time.Second
	// retryAfter is the minimum interval between requests to a provider that does
	// not respond.
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
	if o.Clock == nil {
		o.Clock = brig.WallClock(o.Now)
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{
			Timeout: requestTimeout,
			// The provider's documents must be at their published URL, so do
			// not follow redirects.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	transport := o.HTTP.Transport
	if transport == nil {
		transport = o.newTransport()
	}
	o.HTTP = &http.Client{Timeout: o.HTTP.Timeout, CheckRedirect: o.HTTP.CheckRedirect, Transport: boundedTransport{transport}}
	p := &Provider{Options: o}
	p.keys = &keySet{now: o.Now, http: o.HTTP}
	return p, nil
}

// newTransport returns a transport to the issuer and to the hosts in its
// documents. The provider chooses those hosts, so they must be public.
func (o Options) newTransport() http.RoundTripper {
	issuer := ""
	if u, err := url.Parse(o.Issuer); err == nil {
		issuer = u.Hostname()
	}
	return outbound.NewDefaultTransport(func(host string, addr netip.Addr) error {
		if o.AllowPrivate || host == issuer {
			return brig.CheckConfiguredAddr(host, addr)
		}
		if hostaddr.IsHost(addr) {
			return brig.Errorf(brig.PolicyBlocked, "the identity provider names a host at %s, which is this machine", addr).
				WithHint("set oidc.allow_private if that is meant")
		}
		return brig.CheckForeignAddr(addr)
	})
}

// configError returns an error about a field of the configuration.
func configError(field, format string, args ...any) *brig.Error {
	e := brig.Errorf(brig.InvalidConfig, format, args...)
	e.Field = field
	return e
}

func (o Options) check() error {
	if !isSecure(o.Issuer) {
		return configError("oidc.issuer", "%q is no issuer", brig.Clip(o.Issuer, 80)).
			WithHint("give its URL, with https (http on a loopback address alone), as its own documents have it")
	}
	if o.ClientID == "" {
		return configError("oidc.client_id", "it is missing").WithHint("give this server's name at the provider")
	}
	if !isSecure(o.URL) || strings.HasSuffix(o.URL, "/") {
		return configError("url", "%q is not where browsers find this server", brig.Clip(o.URL, 80)).
			WithHint("write it as https://brig.example.com; oidc needs it")
	}
	if len(o.Seed) < 16 || o.Mapping == nil {
		return configError("oidc", "the wiring is incomplete")
	}
	return nil
}

// isSecure reports whether a connection to a URL is protected against
// modification.
func isSecure(s string) bool {
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

// discover fetches the discovery document once.
func (p *Provider) discover(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meta != nil {
		return p.meta, nil
	}
	down := brig.Errorf(brig.Unavailable, "the identity provider cannot be asked").WithHint("try again in a moment; keys work meanwhile")
	if !p.triedAt.IsZero() && p.Now().Sub(p.triedAt) < retryAfter {
		return nil, down
	}
	p.triedAt = p.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.HTTP), p.Issuer)
	p.triedAt = p.Now() // waiting callers then send no further requests
	if err != nil {
		return nil, down.Because(err)
	}
	m := &metadata{Provider: found}
	if err := found.Claims(m); err != nil {
		return nil, down.Because(err)
	}
	if !isSecure(found.Endpoint().TokenURL) || !isSecure(m.JWKS) {
		return nil, brig.Errorf(brig.InvalidConfig, "the identity provider's endpoints are not secure")
	}
	p.keys.setURL(m.JWKS)
	p.meta = m
	return m, nil
}

// oauthConfig returns the OAuth 2.0 configuration of a login.
func (p *Provider) oauthConfig(m *metadata) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: m.Endpoint(),
		RedirectURL: p.URL + CallbackPath, Scopes: p.Scopes,
	}
}
