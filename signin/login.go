package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/brig-run/brig"
)

// CallbackPath is the path to which the provider redirects browsers. The
// operator registers it with the provider, prefixed by this server's URL.
const CallbackPath = "/v1/auth/callback"

const (
	// LoginTimeout is the time limit of a login.
	LoginTimeout = 10 * time.Minute
	// maxNext bounds the target path of a login, in bytes.
	maxNext = 1024
	// maxReplays bounds the number of remembered finished logins.
	maxReplays = 10_000
)

// LoginStart is a started login.
type LoginStart struct {
	// URL is the address to which the browser goes now.
	URL string
	// Cookie is the value that the browser must return. It must be kept secret.
	Cookie string
}

// Begin starts a login that leads to next, a path of this server.
func (p *Provider) Begin(ctx context.Context, next string) (*LoginStart, error) {
	if next == "" {
		next = "/"
	}
	if err := checkNext(next); err != nil {
		return nil, err
	}
	m, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	secret := rand.Text() + rand.Text()
	text := secret + "." + strconv.FormatInt(p.Clock.Now().Add(LoginTimeout).Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(next))
	l := login{secret: secret}
	return &LoginStart{
		URL:    p.oauthConfig(m).AuthCodeURL(l.part("state"), oidc.Nonce(l.part("nonce")), oauth2.S256ChallengeOption(l.part("verifier"))),
		Cookie: text + "." + p.seal(text),
	}, nil
}

// checkNext rejects a path that a browser could interpret as a URL of another site.
func checkNext(next string) error {
	u, err := url.Parse(next)
	odd := func(c rune) bool { return c <= ' ' || c == '\\' || c >= 0x7f }
	if err != nil || strings.ContainsFunc(next, odd) || strings.ContainsFunc(u.Path, odd) || len(next) > maxNext || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") {
		return brig.InvalidField("next", "it is not a path of this server").WithHint("for example /ui/")
	}
	return nil
}

// login holds the values that link the start and the end of a login. All values
// that the provider and the browser see are derived from one secret.
type login struct {
	secret, next string
	expires      time.Time
}

func (l login) part(name string) string {
	m := hmac.New(sha256.New, []byte(l.secret))
	m.Write([]byte(name))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func (p *Provider) seal(text string) string {
	m := hmac.New(sha256.New, p.Seed)
	m.Write([]byte("login:" + text))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// parseLogin verifies and parses a login cookie.
func (p *Provider) parseLogin(cookie string) (*login, error) {
	bad := brig.Errorf(brig.Unauthenticated, "this login did not start in this browser, or has expired").WithHint("start again at /v1/auth/login")
	i := strings.LastIndexByte(cookie, '.')
	if i < 0 || len(cookie) > 4096 || subtle.ConstantTimeCompare([]byte(p.seal(cookie[:i])), []byte(cookie[i+1:])) != 1 {
		return nil, bad
	}
	parts := strings.Split(cookie[:i], ".")
	if len(parts) != 3 {
		return nil, bad
	}
	end, err := strconv.ParseInt(parts[1], 10, 64)
	next, err2 := base64.RawURLEncoding.DecodeString(parts[2])
	l := &login{secret: parts[0], next: string(next), expires: time.Unix(end, 0)}
	if errors.Join(err, err2) != nil || p.Clock.HasPassed(l.expires) || checkNext(l.next) != nil {
		return nil, bad
	}
	return l, nil
}

// Callback holds the parameters with which a browser returns from the provider.
type Callback struct {
	Cookie, State, Code, Issuer string
	// Error is the provider's error, if it refused the login.
	Error string
	// Exchange is called before the code is exchanged with the provider. An error
	// ends the login. It may be nil.
	Exchange func() error
}

// Finish completes a login. It returns the person and the target path.
func (p *Provider) Finish(ctx context.Context, r Callback) (person *brig.Person, next string, err error) {
	l, err := p.parseLogin(r.Cookie)
	if err != nil {
		return nil, "", err
	}
	if subtle.ConstantTimeCompare([]byte(l.part("state")), []byte(r.State)) != 1 {
		return nil, "", brig.Errorf(brig.Unauthenticated, "this is the end of another login than the browser began").WithHint("start again at /v1/auth/login")
	}
	if p.used.isFinished(l.secret) {
		return nil, "", errEndedBefore()
	}
	m, err := p.discover(ctx)
	if err != nil {
		return nil, "", err
	}
	if r.Issuer != p.Issuer && (r.Issuer != "" || m.SendsIssuer) {
		return nil, "", brig.Errorf(brig.Unauthenticated, "the response is from another identity provider")
	}
	if r.Error != "" || r.Code == "" {
		return nil, "", brig.Errorf(brig.Unauthenticated, "the identity provider did not sign the person in").
			WithHint("start again at /v1/auth/login").Because(errors.New(brig.Clip(r.Error, 80)))
	}
	if r.Exchange != nil {
		if err := r.Exchange(); err != nil {
			return nil, "", err
		}
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.HTTP), requestTimeout)
	defer cancel()
	token, err := p.oauthConfig(m).Exchange(ctx, r.Code, oauth2.VerifierOption(l.part("verifier")))
	if err != nil {
		return nil, "", brig.Errorf(brig.Unauthenticated, "the identity provider does not stand by this login").
			WithHint("start again at /v1/auth/login").Because(err)
	}
	raw, _ := token.Extra("id_token").(string)
	person, _, s, err := p.verify(ctx, raw, []string{p.ClientID})
	if err != nil {
		return nil, "", err
	}
	if subtle.ConstantTimeCompare([]byte(l.part("nonce")), []byte(s.Nonce)) != 1 {
		return nil, "", errUntrusted("it is of another login")
	}
	// Remember only logins whose code the provider accepted: a request without
	// a valid code must not leave any state.
	if !p.used.claim(l.secret, l.expires, p.Clock.Now()) {
		return nil, "", errEndedBefore()
	}
	if person, err = p.fetchUserinfo(ctx, m, token, s.all, person); err != nil {
		return nil, "", err
	}
	return person, l.next, nil
}

func errEndedBefore() error {
	return brig.Errorf(brig.Unauthenticated, "this login has ended before").WithHint("start again at /v1/auth/login")
}

// fetchUserinfo fetches the claims that the token lacks from the userinfo endpoint.
// It ignores a response about another subject.
func (p *Provider) fetchUserinfo(ctx context.Context, m *metadata, token *oauth2.Token, all claims, person *brig.Person) (*brig.Person, error) {
	mapping, err := p.readMapping()
	if err != nil {
		return nil, err
	}
	missing := len(mapping.Domains) > 0 && person.Email == ""
	for _, name := range []string{mapping.Tenant.Claim, mapping.Role.Claim} {
		missing = missing || name != "" && len(person.Claims[name]) == 0
	}
	if !missing || m.UserInfoEndpoint() == "" || !isSecure(m.UserInfoEndpoint()) {
		return person, nil
	}
	info, err := m.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, brig.Errorf(brig.Unavailable, "the identity provider's response does not identify the person").WithHint("try again in a moment").Because(err)
	}
	if info.Subject != person.Subject {
		return nil, errUntrusted("the identity provider says that it is of somebody else")
	}
	var doc json.RawMessage
	more := claims{}
	err = info.Claims(&doc)
	if err == nil {
		err = more.read(doc)
	}
	if err != nil {
		return nil, errUntrusted("what the identity provider says of it cannot be read").Because(err)
	}
	all.fill(more)
	return p.person(person.Subject, all)
}

// replays holds finished logins until their expiry. A provider accepts a code
// only once, so this is a second check: above the limit, the oldest entry is
// dropped and no login is blocked.
type replays struct {
	mu       sync.Mutex // guards the fields below
	finished map[string]bool
	order    []replay // oldest first
}

type replay struct {
	secret string
	end    time.Time
}

// isFinished reports whether a login has finished.
func (r *replays) isFinished(secret string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finished[secret]
}

// claim remembers a login, and reports whether it is the first call with that secret.
func (r *replays) claim(secret string, expires, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished[secret] {
		return false
	}
	if r.finished == nil {
		r.finished = map[string]bool{}
	}
	for len(r.order) > 0 && (len(r.order) >= maxReplays || !now.Before(r.order[0].end)) {
		delete(r.finished, r.order[0].secret)
		r.order = r.order[1:]
	}
	r.finished[secret] = true
	r.order = append(r.order, replay{secret, expires})
	return true
}
