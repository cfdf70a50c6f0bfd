package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/brig-run/brig"
)

// CallbackPath is where the provider sends browsers back to. It has to be told
// to the provider, behind this server's URL.
const CallbackPath = "/v1/auth/callback"

const (
	// LoginTime is how long a login may take.
	LoginTime = 10 * time.Minute
	// maxNext bounds where a login leads, in bytes.
	maxNext = 1024
	// maxReplays bounds the logins that are remembered.
	maxReplays = 100_000
)

// Begun is the beginning of a login.
type Begun struct {
	// URL is where the browser goes now.
	URL string
	// Cookie is what it must bring back, and nobody else may know.
	Cookie string
}

// Begin begins a login that leads to next, a path of this server.
func (p *Provider) Begin(ctx context.Context, next string) (*Begun, error) {
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
	text := secret + "." + strconv.FormatInt(p.Now().Add(LoginTime).Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(next))
	l := login{secret: secret}
	return &Begun{
		URL:    p.flow(m).AuthCodeURL(l.part("state"), oidc.Nonce(l.part("nonce")), oauth2.S256ChallengeOption(l.part("verifier"))),
		Cookie: text + "." + p.seal(text),
	}, nil
}

// checkNext refuses what would lead to another site, however browsers read it.
func checkNext(next string) error {
	u, err := url.Parse(next)
	odd := func(c rune) bool { return c <= ' ' || c == '\\' || c >= 0x7f }
	if err != nil || strings.ContainsFunc(next, odd) || strings.ContainsFunc(u.Path, odd) || len(next) > maxNext || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") {
		return brig.InvalidField("next", "it is not a path of this server").WithHint("for example /ui/")
	}
	return nil
}

// login is what a login's beginning and its end have in common. All that the
// provider and the browser are shown of it is made from one secret.
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

// open reads a cookie of ours.
func (p *Provider) open(cookie string) (*login, error) {
	bad := brig.Errorf(brig.Unauthenticated, "this login was not begun here, or too long ago").WithHint("begin again at /v1/auth/login")
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
	if errors.Join(err, err2) != nil || !p.Now().Before(l.expires) || checkNext(l.next) != nil {
		return nil, bad
	}
	return l, nil
}

// Returned is with what a browser comes back from the provider.
type Returned struct {
	Cookie, State, Code, Issuer string
	// Error is the provider's, when it let nobody in.
	Error string
}

// Finish ends a login: who it is, and where it leads.
func (p *Provider) Finish(ctx context.Context, r Returned) (person *brig.Person, next string, err error) {
	l, err := p.open(r.Cookie)
	if err != nil {
		return nil, "", err
	}
	if subtle.ConstantTimeCompare([]byte(l.part("state")), []byte(r.State)) != 1 {
		return nil, "", brig.Errorf(brig.Unauthenticated, "this is the end of another login than the browser began").WithHint("begin again at /v1/auth/login")
	}
	if !p.used.once(l.secret, l.expires, p.Now()) {
		return nil, "", brig.Errorf(brig.Unauthenticated, "this login has ended before").WithHint("begin again at /v1/auth/login")
	}
	m, err := p.discover(ctx)
	if err != nil {
		return nil, "", err
	}
	if r.Issuer != p.Issuer && (r.Issuer != "" || m.SendsIssuer) {
		return nil, "", brig.Errorf(brig.Unauthenticated, "this is the answer of another identity provider")
	}
	if r.Error != "" || r.Code == "" {
		return nil, "", brig.Errorf(brig.Unauthenticated, "the identity provider let nobody in").
			WithHint("begin again at /v1/auth/login").Because(errors.New(brig.Clip(r.Error, 80)))
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.HTTP), askTime)
	defer cancel()
	token, err := p.flow(m).Exchange(ctx, r.Code, oauth2.VerifierOption(l.part("verifier")))
	if err != nil {
		return nil, "", brig.Errorf(brig.Unauthenticated, "the identity provider does not stand by this login").
			WithHint("begin again at /v1/auth/login").Because(err)
	}
	raw, _ := token.Extra("id_token").(string)
	person, _, s, err := p.verify(ctx, raw, []string{p.ClientID})
	if err != nil {
		return nil, "", err
	}
	if subtle.ConstantTimeCompare([]byte(l.part("nonce")), []byte(s.Nonce)) != 1 {
		return nil, "", untrusted("it is of another login")
	}
	if person, err = p.complete(ctx, m, token, s.all, person); err != nil {
		return nil, "", err
	}
	return person, l.next, nil
}

// complete asks the provider for claims that the token does not have. What it
// says of somebody else does not count.
func (p *Provider) complete(ctx context.Context, m *metadata, token *oauth2.Token, all claims, person *brig.Person) (*brig.Person, error) {
	mapping, err := p.mapping()
	if err != nil {
		return nil, err
	}
	missing := len(mapping.Domains) > 0 && person.Email == ""
	for _, name := range []string{mapping.Tenant.Claim, mapping.Role.Claim} {
		missing = missing || name != "" && len(person.Claims[name]) == 0
	}
	if !missing || m.UserInfoEndpoint() == "" || !secure(m.UserInfoEndpoint()) {
		return person, nil
	}
	info, err := m.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, brig.Errorf(brig.Unavailable, "the identity provider does not say who this is").WithHint("try again in a moment").Because(err)
	}
	if info.Subject != person.Subject {
		return nil, untrusted("the identity provider says that it is of somebody else")
	}
	more := claims{}
	if err := info.Claims(&more); err != nil {
		return nil, untrusted("it cannot be read").Because(err)
	}
	all.fill(more)
	return p.person(person.Subject, all)
}

// replays are logins that have ended, until they would have anyway.
type replays struct {
	mu   sync.Mutex // guards ends
	ends map[string]time.Time
}

// once reports whether it is asked about a secret for the first time.
func (r *replays) once(secret string, expires, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.ends[secret]; again {
		return false
	}
	if r.ends == nil {
		r.ends = map[string]time.Time{}
	}
	if len(r.ends) >= maxReplays {
		maps.DeleteFunc(r.ends, func(_ string, end time.Time) bool { return !now.Before(end) })
	}
	if len(r.ends) >= maxReplays {
		return false // rather nobody than somebody twice
	}
	r.ends[secret] = expires
	return true
}
