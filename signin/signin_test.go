package signin_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/signin"
)

// idp is a fake provider that misbehaves as a test configures it. The
// end-to-end tests use a real provider.
type idp struct {
	*httptest.Server
	mu               sync.Mutex // guards the fields below
	keys             map[string]*ecdsa.PrivateKey
	fetched          int
	down             bool
	keysBlocked      chan struct{}  // requests for the keys wait until the channel is closed
	leaksPrivateKeys bool           // the key set contains private keys
	jwks             string         // the URL of the keys, if not at the issuer
	claims           map[string]any // of the token for a code
	info             map[string]any // the userinfo response
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	i := &idp{keys: map[string]*ecdsa.PrivateKey{}}
	i.rotate(t, "one")
	mux := http.NewServeMux()
	respond := func(w http.ResponseWriter, v any) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.down {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		jwks := cmp.Or(i.jwks, i.URL+"/jwks")
		i.mu.Unlock()
		respond(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
			"jwks_uri": jwks, "userinfo_endpoint": i.URL + "/me",
		})
	})
	mux.HandleFunc("/jwks", func(w http.ResponseWriter, _ *http.Request) {
		var set jose.JSONWebKeySet
		i.mu.Lock()
		i.fetched++
		if hangs := i.keysBlocked; hangs != nil {
			i.mu.Unlock()
			<-hangs
			i.mu.Lock()
		}
		for kid, k := range i.keys {
			var key any = &k.PublicKey
			if i.leaksPrivateKeys {
				key = k
			}
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: kid, Algorithm: "ES256", Use: "sig"})
		}
		i.mu.Unlock()
		respond(w, set)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		claims := i.claims
		i.mu.Unlock()
		respond(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": i.sign(t, "one", claims)})
	})
	mux.HandleFunc("/me", func(w http.ResponseWriter, _ *http.Request) { respond(w, i.info) })
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// rotate replaces all keys with a new one.
func (i *idp) rotate(t *testing.T, kid string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = map[string]*ecdsa.PrivateKey{kid: k}
}

func (i *idp) sign(t *testing.T, kid string, claims map[string]any) string {
	t.Helper()
	i.mu.Lock()
	key := i.keys[kid]
	i.mu.Unlock()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", kid))
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

func (i *idp) newClaims(sub string, now time.Time) map[string]any {
	return map[string]any{"iss": i.URL, "aud": "brig", "sub": sub, "iat": now.Unix(), "exp": now.Add(24 * time.Hour).Unix(), "groups": []string{"dev"}}
}

func (i *idp) newProvider(t *testing.T, now *time.Time, change func(*signin.Options)) *signin.Provider {
	t.Helper()
	m := &signin.Mapping{Tenant: signin.TenantRule{Default: "acme"}, Role: signin.RoleRule{Claim: "groups", Values: map[string]brig.Role{"dev": brig.Member}}}
	o := signin.Options{
		Issuer: i.URL, ClientID: "brig", Scopes: []string{"openid"}, URL: "https://brig.example.com", Seed: []byte("0123456789abcdef"),
		Mapping: func() (*signin.Mapping, error) { return m, nil }, Now: func() time.Time { return *now },
	}
	if change != nil {
		change(&o)
	}
	p, err := signin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPublishedPrivateKeyIsRejected checks that the server rejects a token that is signed with a
// key whose private part the provider publishes.
func TestPublishedPrivateKeyIsRejected(t *testing.T) {
	for _, leaks := range []bool{false, true} {
		i, now := newIDP(t), time.Now()
		i.leaksPrivateKeys = leaks
		_, _, err := i.newProvider(t, &now, nil).Person(t.Context(), i.sign(t, "one", i.newClaims("ann", now)))
		if (err != nil) != leaks {
			t.Errorf("published %v: %v", leaks, err)
		}
	}
}

// TestClockSkewAndNameLengthAreLimited checks that the provider's clock may differ by at most half a minute, and that
// the length of a person's name is limited.
func TestClockSkewAndNameLengthAreLimited(t *testing.T) {
	i, now := newIDP(t), time.Now().Truncate(time.Second)
	p := i.newProvider(t, &now, nil)
	for _, c := range []struct {
		what  string
		claim string
		value any
		ok    bool
	}{
		{"begins in 29 s", "nbf", now.Add(29 * time.Second).Unix(), true},
		{"begins in 31 s", "nbf", now.Add(31 * time.Second).Unix(), false},
		{"ended 29 s ago", "exp", now.Add(-29 * time.Second).Unix(), true},
		{"ended 31 s ago", "exp", now.Add(-31 * time.Second).Unix(), false},
		{"longest name", "sub", strings.Repeat("a", 255), true},
		{"name too long", "sub", strings.Repeat("a", 256), false},
	} {
		claims := i.newClaims("ann", now)
		claims[c.claim] = c.value
		if _, _, err := p.Person(t.Context(), i.sign(t, "one", claims)); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", c.what, err, c.ok)
		}
	}
}

// TestProviderKeysAreCachedAndRefreshed checks that the provider's keys are cached, follow its
// changes, are fetched no more often than allowed, and remain valid for a while
// when the provider is down.
func TestProviderKeysAreCachedAndRefreshed(t *testing.T) {
	i, now := newIDP(t), time.Now()
	p := i.newProvider(t, &now, nil)
	good := func(token string) brig.Kind {
		_, _, err := p.Person(t.Context(), token)
		return brig.KindOf(err)
	}
	first := i.sign(t, "one", i.newClaims("ann", now))
	for range 100 {
		if k := good(first); k != "" {
			t.Fatal(k)
		}
	}
	if i.fetched != 1 {
		t.Errorf("a hundred tokens cost %d questions", i.fetched)
	}
	now = now.Add(time.Minute)
	i.rotate(t, "two")
	second := i.sign(t, "two", i.newClaims("ann", now))
	if k := good(second); k != "" || i.fetched != 2 {
		t.Errorf("a new key: %q after %d questions", k, i.fetched)
	}
	if k := good(first); k != brig.Unauthenticated {
		t.Errorf("a key that was taken back: %q", k)
	}
	attack.Case(t, "API-08", "a key that the provider has taken back")
	// Unknown key IDs do not cause requests.
	now = now.Add(time.Minute)
	other := newIDP(t)
	other.rotate(t, "nobody's")
	strange := other.sign(t, "nobody's", i.newClaims("ann", now))
	before := i.fetched
	for range 50 {
		if k := good(strange); k != brig.Unauthenticated {
			t.Fatal(k)
		}
	}
	if n := i.fetched - before; n > 1 {
		t.Errorf("fifty strange tokens cost %d questions", n)
	}
	attack.Case(t, "API-08", "names of keys that make the server ask the provider")
	attack.RecordMutant("API-08", "a new key of the provider's own", "the provider's keys", good(second) == "")
	// The verifier also detects a withdrawn key if no other key has been used.
	i.rotate(t, "three")
	now = now.Add(6 * time.Minute)
	if k := good(second); k != brig.Unauthenticated {
		t.Errorf("six minutes after it was taken back: %q", k)
	}
	third := i.sign(t, "three", i.newClaims("ann", now))
	if k := good(third); k != "" {
		t.Errorf("the third: %q", k)
	}
	i.down = true
	now = now.Add(30 * time.Minute)
	if k := good(third); k != "" {
		t.Errorf("half an hour after the provider went down: %q", k)
	}
	now = now.Add(time.Hour)
	if k := good(third); k != brig.Unavailable {
		t.Errorf("an hour and a half after: %q", k)
	}
	i.down = false
	now = now.Add(time.Minute)
	if k := good(third); k != "" {
		t.Errorf("when it is up again: %q", k)
	}
}

// TestHangingProviderDoesNotBlockKnownKeys checks that a provider that does not respond does not delay tokens with a
// known key, and delays other tokens only as long as their callers wait.
func TestHangingProviderDoesNotBlockKnownKeys(t *testing.T) {
	i, now := newIDP(t), time.Now()
	p := i.newProvider(t, &now, nil)
	known, strange := i.sign(t, "one", i.newClaims("ann", now)), ""
	if _, _, err := p.Person(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	i.rotate(t, "two")
	strange = i.sign(t, "two", i.newClaims("bob", now))
	i.keysBlocked = make(chan struct{})
	now = now.Add(time.Minute)
	waiting := make(chan error, 1)
	go func() {
		_, _, err := p.Person(t.Context(), strange)
		waiting <- err
	}()
	for requests := 0; requests < 2; time.Sleep(time.Millisecond) {
		i.mu.Lock()
		requests = i.fetched
		i.mu.Unlock()
	}
	begin := time.Now()
	if _, _, err := p.Person(t.Context(), known); err != nil {
		t.Errorf("a token with a known key: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := p.Person(ctx, strange); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("a token that cannot be checked: %v", err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("the tokens waited for %s", d)
	}
	close(i.keysBlocked)
	if err := <-waiting; err != nil {
		t.Errorf("when the provider answers: %v", err)
	}
	if i.fetched != 2 {
		t.Errorf("the keys were fetched %d times, want 2", i.fetched)
	}
}

// TestLoginResponseIsAcceptedOnce checks that the response to a login is accepted only once, only in
// the browser that started the login, and only for that login. The state and
// the nonce are each tested separately.
func TestLoginResponseIsAcceptedOnce(t *testing.T) {
	i, now := newIDP(t), time.Now()
	p := i.newProvider(t, &now, nil)
	begin := func() (cookie, state, nonce string) {
		b, err := p.Begin(t.Context(), "/ui/?a=b#c")
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(b.URL)
		if err != nil || !strings.HasPrefix(b.URL, i.URL+"/auth?") {
			t.Fatal(b.URL, err)
		}
		q := u.Query()
		if q.Get("code_challenge_method") != "S256" || q.Get("redirect_uri") != "https://brig.example.com/v1/auth/callback" || strings.Contains(b.URL, b.Cookie[:20]) {
			t.Errorf("it leads to %s", b.URL)
		}
		return b.Cookie, q.Get("state"), q.Get("nonce")
	}
	finish := func(cookie, state string, claims map[string]any) error {
		i.mu.Lock()
		i.claims = claims
		i.mu.Unlock()
		person, next, err := p.Finish(t.Context(), signin.Callback{Cookie: cookie, State: state, Code: "c"})
		if err == nil && (person.Subject != "ann" || next != "/ui/?a=b#c") {
			t.Errorf("%+v goes to %s", person, next)
		}
		return err
	}
	with := func(k string, v any) map[string]any {
		c := i.newClaims("ann", now)
		c[k] = v
		return c
	}
	cookie, state, nonce := begin()
	if err := finish(cookie, state, with("nonce", nonce)); err != nil {
		t.Fatalf("a good login: %v", err)
	}
	attack.RecordMutant("API-09", "a login with its own nonce", "the nonce", true)
	if err := finish(cookie, state, with("nonce", nonce)); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("again: %v", err)
	}
	_, _, others := begin()
	for name, bad := range map[string]map[string]any{
		"the nonce of another login": with("nonce", others), "no nonce": i.newClaims("ann", now), "the nonce of the login before": with("nonce", nonce),
		"an audience that the API has": {"iss": i.URL, "aud": "api", "sub": "ann", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()},
	} {
		attack.Case(t, "API-09", "a token with "+name)
		cookie, state, _ := begin()
		if err := finish(cookie, state, bad); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	cookie, state, nonce = begin()
	for name, c := range map[string][2]string{
		"no cookie": {"", state}, "a cookie that was changed": {cookie[:len(cookie)-1] + "_", state}, "another's": {"x." + cookie, state},
		"no state": {cookie, ""}, "another state": {cookie, state[1:]},
	} {
		if err := finish(c[0], c[1], with("nonce", nonce)); brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(11 * time.Minute)
	if err := finish(cookie, state, with("nonce", nonce)); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("eleven minutes later: %v", err)
	}
	// A userinfo response about another subject is ignored.
	i.info = map[string]any{"sub": "boss", "groups": []string{"dev"}}
	cookie, state, nonce = begin()
	c := with("nonce", nonce)
	delete(c, "groups")
	if err := finish(cookie, state, c); brig.KindOf(err) != brig.Unauthenticated {
		t.Errorf("userinfo of somebody else: %v", err)
	}
}

// TestLoginWithoutCodeLeavesNoState checks that callbacks without a code, or with codes that the provider
// refuses, neither block other logins nor leave any state.
func TestLoginWithoutCodeLeavesNoState(t *testing.T) {
	i, now := newIDP(t), time.Now()
	p := i.newProvider(t, &now, nil)
	begin := func() (cookie string, q url.Values) {
		b, err := p.Begin(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		return b.Cookie, u.Query()
	}
	attack.Case(t, "API-09", "100,000 callbacks without a code")
	for range 100_000 {
		cookie, q := begin()
		if _, _, err := p.Finish(t.Context(), signin.Callback{Cookie: cookie, State: q.Get("state")}); brig.KindOf(err) != brig.Unauthenticated {
			t.Fatal(err)
		}
	}
	if n := signin.CountRemembered(p); n != 0 {
		t.Errorf("%d logins are remembered", n)
	}
	// A code that the provider refuses has no effect: the same login may still
	// succeed.
	cookie, q := begin()
	i.claims = i.newClaims("ann", now)
	i.claims["nonce"] = q.Get("nonce")
	i.down = true
	if _, _, err := p.Finish(t.Context(), signin.Callback{Cookie: cookie, State: q.Get("state"), Code: "c"}); brig.KindOf(err) != brig.Unauthenticated {
		t.Error(err)
	}
	i.down = false
	_, _, err := p.Finish(t.Context(), signin.Callback{Cookie: cookie, State: q.Get("state"), Code: "c"})
	if err != nil {
		t.Errorf("a login after them: %v", err)
	}
	attack.RecordMutant("API-09", "a login with a code, after 100,000 without", "what counts as a login", err == nil && signin.CountRemembered(p) == 1)
}

// TestOnlyNewestLoginsAreRemembered checks that only the newest of many logins are
// remembered and that none is refused.
func TestOnlyNewestLoginsAreRemembered(t *testing.T) {
	now := time.Now()
	if kept, refused := signin.ReplayLogins(30_000, now); kept != 10_000 || refused != 0 {
		t.Errorf("%d are remembered and %d were refused", kept, refused)
	}
}

// TestTokenOfConfiguredClientIsAccepted checks that a token is accepted if it was issued to a
// configured client, regardless of the claim that names the client. Claim names
// are compared exactly.
func TestTokenOfConfiguredClientIsAccepted(t *testing.T) {
	i, now := newIDP(t), time.Now()
	p := i.newProvider(t, &now, func(o *signin.Options) { o.Audiences, o.Clients = []string{"api"}, []string{"cli"} })
	for name, c := range map[string]struct {
		claims map[string]any
		ok     bool
	}{
		"ours":                            {nil, true},
		"the API's, of a program":         {map[string]any{"aud": "api", "azp": "cli"}, true},
		"the API's, of Microsoft's":       {map[string]any{"aud": "api", "appid": "cli"}, true},
		"the API's, of Okta's":            {map[string]any{"aud": "api", "cid": "cli"}, true},
		"the API's, of nobody":            {map[string]any{"aud": "api"}, false},
		"another program's, by azp":       {map[string]any{"azp": "evil"}, false},
		"another program's, by client_id": {map[string]any{"client_id": "evil"}, false},
		"another program's, by appid":     {map[string]any{"appid": "evil"}, false},
		"another program's, by cid":       {map[string]any{"cid": "evil"}, false},
		"two programs'":                   {map[string]any{"azp": "cli", "cid": "evil"}, false},
		"a program that is no text":       {map[string]any{"azp": []string{"cli"}}, false},
		"ISS beside iss":                  {map[string]any{"ISS": "https://evil.test"}, false},
		"EXP beside exp":                  {map[string]any{"EXP": now.Add(1000 * time.Hour).Unix()}, false},
		"Sub beside sub":                  {map[string]any{"Sub": "boss"}, false},
		"an invisible character":          {map[string]any{"sub": "ann\u200b"}, false},
		"a control character":             {map[string]any{"sub": "ann\u0007"}, false},
		"a mark of direction":             {map[string]any{"sub": "ann\u202e"}, false},
	} {
		claims := i.newClaims("ann", now)
		for k, v := range c.claims {
			claims[k] = v
		}
		_, _, err := p.Person(t.Context(), i.sign(t, "one", claims))
		if (err == nil) != c.ok || !c.ok && brig.KindOf(err) != brig.Unauthenticated {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
		if !c.ok && !errors.Is(err, brig.ErrGenuine) {
			t.Errorf("%s, which the identity provider signed, counts as a guess: %v", name, err)
		}
		if !c.ok {
			attack.Case(t, "API-08", "a token: "+name)
		}
	}
	forged := i.sign(t, "one", i.newClaims("ann", now))
	if _, _, err := p.Person(t.Context(), forged[:len(forged)-4]+"AAAA"); brig.KindOf(err) != brig.Unauthenticated || errors.Is(err, brig.ErrGenuine) {
		t.Errorf("a forged token: %v", err)
	}
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	for field, change := range map[string]func(*signin.Options){
		"oidc.issuer":    func(o *signin.Options) { o.Issuer = "http://login.example.com" },
		"oidc.client_id": func(o *signin.Options) { o.ClientID = "" },
		"url":            func(o *signin.Options) { o.URL = "http://brig.example.com" },
	} {
		o := signin.Options{
			Issuer: "https://login.example.com", ClientID: "brig", URL: "https://brig.example.com", Seed: make([]byte, 32),
			Mapping: func() (*signin.Mapping, error) { return &signin.Mapping{}, nil },
		}
		if _, err := signin.New(o); err != nil {
			t.Fatal(err)
		}
		change(&o)
		_, err := signin.New(o)
		if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidConfig || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A token that has expired by the server's clock is rejected even if the system's clock was set
// back. The control compares with the system's clock.
func TestTokenExpiresByServerClock(t *testing.T) {
	i, now := newIDP(t), time.Now()
	claims := i.newClaims("ann", now)
	later := brig.WallClock(func() time.Time { return now.Add(25 * time.Hour) })
	for name, clock := range map[string]brig.Clock{"the server's clock": later, "the control": nil} {
		p := i.newProvider(t, &now, func(o *signin.Options) { o.Clock = clock })
		if _, _, err := p.Person(t.Context(), i.sign(t, "one", claims)); (brig.KindOf(err) == brig.Unauthenticated) != (clock != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
