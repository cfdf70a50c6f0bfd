package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/brig-run/brig"
)

const (
	// skew is how far the provider's clock may be from ours.
	skew = 30 * time.Second
	// maxToken bounds a token, in bytes.
	maxToken = 16 << 10
	// maxSubject and maxClaim bound what is kept of a token.
	maxSubject = 255
	maxClaim   = 200
)

// said is what a token says that go-oidc does not look at.
type said struct {
	Expires   *float64        `json:"exp"`
	NotBefore float64         `json:"nbf"`
	Issued    float64         `json:"iat"`
	Party     string          `json:"azp"`
	Client    string          `json:"client_id"` // as access tokens call it
	Nonce     string          `json:"nonce"`
	Events    json.RawMessage `json:"events"` // of tokens that end sessions
	all       claims          // these and what else it says
}

func untrusted(why string) *brig.Error {
	return brig.Errorf(brig.Unauthenticated, "the token is not taken: %s", why).WithHint("sign in again")
}

// Person implements what the engine asks of people: whom a token proves that
// was shown as a key is, and until when.
func (p *Provider) Person(ctx context.Context, token string) (*brig.Person, time.Time, error) {
	person, until, _, err := p.verify(ctx, token, append([]string{p.ClientID}, p.Audiences...))
	return person, until, err
}

// verify believes a token, for one of some audiences.
func (p *Provider) verify(ctx context.Context, token string, audiences []string) (*brig.Person, time.Time, *said, error) {
	none := time.Time{}
	if len(token) > maxToken {
		return nil, none, nil, untrusted("it is too long")
	}
	if !plausible(token) {
		return nil, none, nil, untrusted("it is not a signed token") // without asking anybody
	}
	if _, err := p.discover(ctx); err != nil {
		return nil, none, nil, err
	}
	// Whom it is for and when is looked at below: more strictly, and with skew.
	t, err := oidc.NewVerifier(p.Issuer, p.keys, &oidc.Config{
		SupportedSigningAlgs: algNames(), SkipClientIDCheck: true, SkipExpiryCheck: true, Now: p.Now,
	}).Verify(ctx, token)
	if err != nil && p.keys.stale() { // go-oidc does not tell
		return nil, none, nil, brig.Errorf(brig.Unavailable, "the identity provider's keys cannot be had").WithHint("try again in a moment; keys of Brig's own work meanwhile").Because(err)
	}
	if err != nil {
		return nil, none, nil, untrusted("it is not one of the identity provider's").Because(err)
	}
	var s said
	s.all = claims{}
	if err := errors.Join(t.Claims(&s), t.Claims(&s.all)); err != nil {
		return nil, none, nil, untrusted("it cannot be read").Because(err)
	}
	until, err := p.inTime(&s)
	if err != nil {
		return nil, none, nil, err
	}
	if err := p.forUs(t.Audience, &s, audiences); err != nil {
		return nil, none, nil, err
	}
	if t.Subject == "" || len(t.Subject) > maxSubject {
		return nil, none, nil, untrusted("it names nobody")
	}
	person, err := p.person(t.Subject, s.all)
	return person, until, &s, err
}

// plausible reports whether a token says that it is signed as tokens may be,
// and is of a type that says who somebody is.
func plausible(token string) bool {
	head, rest, ok := strings.Cut(token, ".")
	if !ok || strings.Count(rest, ".") != 1 {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(head)
	var h struct {
		Alg, Typ string
		Crit     json.RawMessage
	}
	if err != nil || json.Unmarshal(b, &h) != nil || h.Crit != nil {
		return false
	}
	typ := strings.TrimPrefix(strings.ToLower(h.Typ), "application/")
	return (typ == "" || typ == "jwt" || typ == "at+jwt") && slices.ContainsFunc(algNames(), func(a string) bool { return a == h.Alg })
}

func algNames() (out []string) {
	for _, a := range algorithms {
		out = append(out, string(a))
	}
	return out
}

// inTime reports until when a token is good, or why it is not now.
func (p *Provider) inTime(s *said) (time.Time, error) {
	now := p.Now()
	at := func(n float64) time.Time { return time.Unix(int64(n), 0) }
	switch {
	case s.Expires == nil:
		return now, untrusted("it has no end")
	case !now.Before(at(*s.Expires).Add(skew)):
		return now, untrusted("it has expired")
	case now.Add(skew).Before(at(s.NotBefore)), now.Add(skew).Before(at(s.Issued)):
		return now, untrusted("it is not good yet")
	case s.Events != nil:
		return now, untrusted("it is not about who somebody is")
	}
	return at(*s.Expires).Add(skew), nil
}

// forUs reports why a token is meant for others. One that was given to some
// other program must have been given to one that the operator named, or every
// program that people sign in to could be them here.
func (p *Provider) forUs(audience []string, s *said, ours []string) error {
	if !slices.ContainsFunc(audience, func(a string) bool { return slices.Contains(ours, a) }) {
		return untrusted("it is for somebody else")
	}
	if len(audience) > 1 && s.Party == "" && s.Client == "" {
		return untrusted("it is for several, and does not say who has it")
	}
	for _, party := range []string{s.Party, s.Client} {
		if party != "" && party != p.ClientID && !slices.Contains(p.Clients, party) {
			return untrusted("it was given to another program")
		}
	}
	return nil
}

// person keeps of claims what the mapping asks for.
func (p *Provider) person(subject string, all claims) (*brig.Person, error) {
	m, err := p.mapping()
	if err != nil {
		return nil, err
	}
	out := &brig.Person{Issuer: p.Issuer, Subject: subject, Email: all.email()}
	for _, name := range []string{m.Tenant.Claim, m.Role.Claim} {
		if values := all.strings(name); len(values) > 0 {
			if out.Claims == nil {
				out.Claims = map[string][]string{}
			}
			out.Claims[name] = values
		}
	}
	return out, nil
}
