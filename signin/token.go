package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/exactjson"
)

const (
	// skew is the allowed difference between the clocks of the provider and this server.
	skew = 30 * time.Second
	// maxToken bounds a token, in bytes.
	maxToken = 16 << 10
	// maxSubject and maxClaim limit the lengths of the stored parts of a token.
	maxSubject = 255
	maxClaim   = 200
)

// tokenClaims holds the claims that go-oidc does not check.
type tokenClaims struct {
	Expires   *float64 `json:"exp"`
	NotBefore float64  `json:"nbf"`
	Issued    float64  `json:"iat"`
	// parties lists the clients to which the token was issued, under the various names that
	// providers use.
	parties []string
	Nonce   string          `json:"nonce"`
	Events  json.RawMessage `json:"events"` // present in tokens that end sessions
	all     claims          // all claims, including the ones above
}

func errUntrusted(reason string) *brig.Error {
	return brig.Errorf(brig.Unauthenticated, "the token is rejected: %s", reason).WithHint("sign in again")
}

// Person implements the engine's People. It returns the person that a token
// identifies and the token's expiry.
func (p *Provider) Person(ctx context.Context, token string) (*brig.Person, time.Time, error) {
	person, until, _, err := p.verify(ctx, token, p.TokenRule().Audiences)
	return person, until, err
}

// TokenRule returns the rule for tokens that Person accepts.
func (p *Provider) TokenRule() brig.TokenRule {
	return brig.TokenRule{Issuer: p.Issuer, Audiences: append([]string{p.ClientID}, p.Audiences...)}
}

// verify verifies a token for one of the audiences.
func (p *Provider) verify(ctx context.Context, token string, audiences []string) (*brig.Person, time.Time, *tokenClaims, error) {
	none := time.Time{}
	if len(token) > maxToken {
		return nil, none, nil, errUntrusted("it is too long")
	}
	if !isPlausible(token) {
		return nil, none, nil, errUntrusted("it is not a signed token") // rejected without a request to the provider
	}
	if _, err := p.discover(ctx); err != nil {
		return nil, none, nil, err
	}
	// The audience and the times are checked below, more strictly and with
	// skew.
	t, err := oidc.NewVerifier(p.Issuer, p.keys, &oidc.Config{
		SupportedSigningAlgs: algNames(), SkipClientIDCheck: true, SkipExpiryCheck: true, Now: p.Now,
	}).Verify(ctx, token)
	if err != nil && (ctx.Err() != nil || p.keys.isStale()) { // go-oidc does not report this case separately
		return nil, none, nil, brig.Errorf(brig.Unavailable, "the identity provider's keys cannot be had").WithHint("try again in a moment; keys of Brig's own work meanwhile").Because(err)
	}
	if err != nil {
		return nil, none, nil, errUntrusted("it is not one of the identity provider's").Because(err)
	}
	person, until, s, err := p.personOf(t, audiences)
	return person, until, s, brig.MarkGenuine(err)
}

// personOf returns the person of a token whose signature is valid.
func (p *Provider) personOf(t *oidc.IDToken, audiences []string) (*brig.Person, time.Time, *tokenClaims, error) {
	none := time.Time{}
	var payload json.RawMessage
	if err := t.Claims(&payload); err != nil {
		return nil, none, nil, errUntrusted("it cannot be read").Because(err)
	}
	s, err := readTokenClaims(payload)
	if err != nil {
		return nil, none, nil, errUntrusted("its claims are ambiguous").Because(err)
	}
	until, err := p.checkTime(s)
	if err != nil {
		return nil, none, nil, err
	}
	if err := p.checkAudience(t.Audience, s, audiences); err != nil {
		return nil, none, nil, err
	}
	if t.Subject == "" || len(t.Subject) > maxSubject || !isPlain(t.Subject) {
		return nil, none, nil, errUntrusted("it names nobody")
	}
	person, err := p.person(t.Subject, s.all)
	return person, until, s, err
}

// partyClaims are the claims in which providers identify the client of a token: the claims of
// OpenID Connect, of access tokens, of Microsoft and of Okta.
var partyClaims = []string{"azp", "client_id", "appid", "cid"}

// readTokenClaims reads a token's claims. It matches names exactly, and rejects
// a token with another name that could be mistaken for a claim name, because
// go-oidc and other libraries would accept it.
func readTokenClaims(payload []byte) (*tokenClaims, error) {
	var s tokenClaims
	s.all = claims{}
	if err := s.all.read(payload); err != nil {
		return nil, err
	}
	if err := exactjson.Unmarshal(payload, &s); err != nil {
		return nil, err
	}
	for _, name := range partyClaims {
		raw, ok := s.all[name]
		if !ok || string(raw) == "null" {
			continue
		}
		var party string
		if err := json.Unmarshal(raw, &party); err != nil {
			return nil, err
		}
		if party != "" {
			s.parties = append(s.parties, party)
		}
	}
	return &s, nil
}

// isPlausible reports whether a token's header has an accepted algorithm and a
// type that identifies a person.
func isPlausible(token string) bool {
	head, rest, ok := strings.Cut(token, ".")
	if !ok || strings.Count(rest, ".") != 1 {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(head)
	var h struct {
		Alg  string          `json:"alg"`
		Typ  string          `json:"typ"`
		Crit json.RawMessage `json:"crit"`
	}
	if err != nil || exactjson.Unmarshal(b, &h) != nil || h.Crit != nil {
		return false
	}
	typ := strings.TrimPrefix(toASCIILower(h.Typ), "application/")
	return (typ == "" || typ == "jwt" || typ == "at+jwt") && slices.ContainsFunc(algNames(), func(a string) bool { return a == h.Alg })
}

func algNames() (out []string) {
	for _, a := range algorithms {
		out = append(out, string(a))
	}
	return out
}

// checkTime returns the expiry of a token, or an error if it is not valid now.
func (p *Provider) checkTime(s *tokenClaims) (time.Time, error) {
	now := p.Now()
	at := func(n float64) time.Time { return time.Unix(int64(n), 0) }
	switch {
	case s.Expires == nil:
		return now, errUntrusted("it has no end")
	case p.Clock.HasPassed(at(*s.Expires).Add(skew)):
		return now, errUntrusted("it has expired")
	case now.Add(skew).Before(at(s.NotBefore)), now.Add(skew).Before(at(s.Issued)):
		return now, errUntrusted("it is not good yet")
	case s.Events != nil:
		return now, errUntrusted("it is not about who somebody is")
	}
	return at(*s.Expires).Add(skew), nil
}

// checkAudience returns an error if a token is not meant for this server. A
// token that was issued to another program is valid only if the operator has
// listed that program. Otherwise every program that people sign in to could
// impersonate them here.
func (p *Provider) checkAudience(audience []string, s *tokenClaims, ours []string) error {
	if !slices.ContainsFunc(audience, func(a string) bool { return slices.Contains(ours, a) }) {
		return errUntrusted("it is for somebody else")
	}
	if len(s.parties) == 0 && (len(audience) > 1 || audience[0] != p.ClientID) {
		return errUntrusted("it does not say to which program it was given")
	}
	for _, party := range s.parties {
		if party != p.ClientID && !slices.Contains(p.Clients, party) {
			return errUntrusted("it was given to another program")
		}
	}
	return nil
}

// person returns the person of a token, with the claims that the mapping uses.
func (p *Provider) person(subject string, all claims) (*brig.Person, error) {
	m, err := p.readMapping()
	if err != nil {
		return nil, err
	}
	out := &brig.Person{Issuer: p.Issuer, Subject: subject, Email: all.email()}
	for _, name := range []string{m.Tenant.Claim, m.Role.Claim} {
		if values := all.stringValues(name); len(values) > 0 {
			if out.Claims == nil {
				out.Claims = map[string][]string{}
			}
			out.Claims[name] = values
		}
	}
	return out, nil
}
