package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// TestSignIn verifies that a user can sign in with a browser at a real provider, use the server,
// and sign out, and that the audit log records the actions under the user's name.
//
//suite:part hostile
func TestSignIn(t *testing.T) {
	s := startSignIn(t)
	b := newBrowser(t)
	resp, page := s.signIn(t, b, "ann")
	if resp.StatusCode != 200 || !strings.Contains(page, `content="0;url=/ui/"`) || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("the callback: %d %s", resp.StatusCode, page)
	}
	var session *http.Cookie
	for _, c := range resp.Cookies() {
		if c.Name == "brig_session" {
			session = c
		}
	}
	if session == nil || !session.HttpOnly || session.SameSite != http.SameSiteStrictMode || session.Secure {
		t.Fatalf("the session's cookie: %v", session)
	}
	status, me := s.whoami(b)
	if status != 200 || me["name"] != "ann@example.com" || me["subject"] != "ann" || me["role"] != "member" || me["tenant"] != "default" || me["csrf"] != nil || b.token == "" {
		t.Fatalf("whoami: %d %v", status, me)
	}
	// Only a page with the CSRF token may make changes.
	make := func(headers ...string) int {
		resp, _ := b.do("POST", s.url+"/v1/workspaces", fmt.Sprintf(`{"name":"w%d"}`, time.Now().UnixNano()), headers...)
		return resp.StatusCode
	}
	for name, headers := range map[string][]string{
		"no token": {}, "another token": {"X-Brig-CSRF", "x"},
		"the token from another site":       {"X-Brig-CSRF", b.token, "Origin", "http://evil.test"},
		"the token from a neighbour's page": {"X-Brig-CSRF", b.token, "Sec-Fetch-Site", "same-site"},
	} {
		attack.Case(t, "API-03", "a change with a person's cookie and "+name)
		if got := make(headers...); got != http.StatusForbidden {
			t.Errorf("%s: %d", name, got)
		}
	}
	b.csrf = b.token
	got := make("Origin", s.url, "Sec-Fetch-Site", "same-origin")
	if got != http.StatusCreated {
		t.Errorf("our own page: %d", got)
	}
	attack.RecordMutant("API-03", "a change with the cookie and its token", "the token in a header", got == http.StatusCreated)
	if resp, _ := b.do("GET", s.url+"/v1/tenants", ""); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a member lists tenants: %d", resp.StatusCode)
	}
	status, log := s.do("GET", "/v1/audit?limit=1000", "")
	if status != 200 || !strings.Contains(log, `"ann@example.com"`) || !strings.Contains(log, s.provider.issuer+"#ann") || !strings.Contains(log, `"session.create"`) {
		t.Errorf("the audit log: %d %s", status, log)
	}
	if strings.Contains(log, session.Value) {
		t.Error("the audit log has the session's secret")
	}
	if resp, text := b.do("POST", s.url+"/v1/auth/logout", ""); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("logout: %d %s", resp.StatusCode, text)
	}
	// The server caches the validity of a key for half a second.
	eventually(t, "the session ends with the logout", func() bool {
		status, _ := s.whoami(b, "Cookie", "brig_session="+session.Value)
		return status == http.StatusUnauthorized
	})
}

// TestSessionsAreRevoked verifies that sessions can be listed, and ended by their owner, by an
// administrator, and by the revocation of their key. Revoked sessions, including their open
// streams, end within a short time.
//
//suite:part hostile
func TestSessionsAreRevoked(t *testing.T) {
	s := startSignIn(t)
	status, text := s.do("POST", "/v1/keys", `{"name":"console","role":"member"}`)
	var key struct{ ID, Key string }
	if err := json.Unmarshal([]byte(text), &key); err != nil {
		t.Fatal(err)
	}
	if status != 201 {
		t.Fatal(status, text)
	}
	withKey := func() *browser {
		b := newBrowser(t)
		resp, text := b.do("POST", s.url+"/v1/auth/session", "", "Authorization", "Bearer "+key.Key)
		if resp.StatusCode != 201 {
			t.Fatal(resp.StatusCode, text)
		}
		return b
	}
	gone := func(what string, b *browser) {
		t.Helper()
		for deadline := time.Now().Add(revokeTimeout + promptTimeout); ; time.Sleep(20 * time.Millisecond) {
			if status, _ := s.whoami(b); status == http.StatusUnauthorized {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: the session is still good", what)
				return
			}
		}
	}
	person, first, second := newBrowser(t), withKey(), withKey()
	s.signIn(t, person, "ann")
	idOf := func(b *browser) string {
		status, me := s.whoami(b)
		if status != 200 {
			t.Fatal(status, me)
		}
		id, _ := me["session_id"].(string)
		return id
	}
	// A key can list only its own sessions; an operator can list all.
	for b, want := range map[*browser]int{first: 2, person: 1} {
		if _, list := b.do("GET", s.url+"/v1/auth/sessions", ""); strings.Count(list, `"id"`) != want || strings.Contains(list, "brig_session_") {
			t.Errorf("want %d sessions: %s", want, list)
		}
	}
	if _, list := s.do("GET", "/v1/auth/sessions", ""); strings.Count(list, `"id"`) != 3 {
		t.Errorf("an operator is shown %s", list)
	}
	attack.Case(t, "API-09", "ending somebody else's session")
	resp, _ := first.do("DELETE", s.url+"/v1/auth/sessions/"+idOf(person), "", "X-Brig-CSRF", first.token)
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("a key ends a person's session: %d", resp.StatusCode)
	}
	if status, text := s.do("DELETE", "/v1/auth/sessions/"+idOf(person), ""); status != http.StatusNoContent {
		t.Error(status, text)
	}
	gone("ended by an operator", person)
	attack.RecordMutant("API-09", "an operator ends the same", "whose it is", true)
	resp, _ = first.do("DELETE", s.url+"/v1/auth/sessions/"+idOf(second), "", "X-Brig-CSRF", first.token)
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("its own other session: %d", resp.StatusCode)
	}
	gone("ended by its owner", second)
	if status, text := s.do("DELETE", "/v1/keys/"+key.ID, ""); status != http.StatusNoContent {
		t.Error(status, text)
	}
	gone("with its key", first)
}

// TestLoginAttacks verifies that every known method of signing in with another user's login, or
// without a login, fails.
//
//suite:part hostile
func TestLoginAttacks(t *testing.T) {
	s := startSignIn(t)
	refused := func(what string, b *browser, at string, want int) {
		t.Helper()
		attack.Case(t, "API-09", what)
		resp, text := b.do("GET", at, "", redirectHeaders...)
		if resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", what, resp.StatusCode, text, want)
		}
		for _, c := range resp.Cookies() {
			if c.Name == "brig_session" && c.Value != "" {
				t.Errorf("%s: there is a session", what)
			}
		}
		if status, _ := s.whoami(b); status != http.StatusUnauthorized {
			t.Errorf("%s: somebody is in: %d", what, status)
		}
	}
	back := func(b *browser, who string) *url.URL {
		s.provider.setUser(t, who)
		return b.followLogin(s.url + "/v1/auth/login")
	}
	change := func(u *url.URL, k, v string) string {
		q := u.Query()
		q.Set(k, v)
		if v == "" {
			q.Del(k)
		}
		out := *u
		out.RawQuery = q.Encode()
		return out.String()
	}
	b := newBrowser(t)
	refused("another state", b, change(back(b, "ann"), "state", "x"), 401)
	b = newBrowser(t)
	refused("no state", b, change(back(b, "ann"), "state", ""), 401)
	refused("a browser that did not begin it", newBrowser(t), back(newBrowser(t), "ann").String(), 401)
	b = newBrowser(t)
	refused("another provider's answer", b, change(back(b, "ann"), "iss", "https://evil.test"), 401)
	b = newBrowser(t)
	refused("no issuer, from one that always says it", b, change(back(b, "ann"), "iss", ""), 401)
	b = newBrowser(t)
	refused("a code that was made up", b, change(back(b, "ann"), "code", "x"), 401)
	// PKCE and the nonce detect a code that was issued for another login.
	b = newBrowser(t)
	refused("the code of another's login", b, change(back(b, "ann"), "code", back(newBrowser(t), "boss").Query().Get("code")), 401)
	b = newBrowser(t)
	refused("nobody at the provider", b, back(b, "stranger").String(), 401)
	b = newBrowser(t)
	refused("somebody without a role", b, back(b, "nobody").String(), 403)
	b = newBrowser(t)
	refused("an address of another domain", b, back(b, "foreign").String(), 403)
	b = newBrowser(t)
	refused("an address that nobody verified", b, back(b, "claimed").String(), 403)
	// The control is a valid login; replays of it must fail.
	b = newBrowser(t)
	at := back(b, "ann")
	kept, _ := url.Parse(s.url)
	login := b.http.Jar.Cookies(kept)
	resp, text := b.do("GET", at.String(), "", redirectHeaders...)
	if resp.StatusCode != 200 {
		t.Fatalf("a good login: %d %s", resp.StatusCode, text)
	}
	attack.RecordMutant("API-09", "a login that is one's own", "state, nonce and PKCE", true)
	replay := newBrowser(t)
	replay.http.Jar.SetCookies(kept, login)
	refused("the same end of the same login again", replay, at.String(), 401)
	fresh := newBrowser(t)
	refused("its code in another login of the same person", fresh, change(back(fresh, "ann"), "code", at.Query().Get("code")), 401)

	for _, next := range []string{
		"https://evil.test/", "//evil.test", `/\evil.test`, `\\evil.test`, "/%5cevil.test", "/%09/evil.test", "javascript:alert(1)", "evil.test", "/\n/evil.test", "http:evil.test",
		"//evil.test/%2f..", "/%2f/evil.test", "https:///evil.test", " /", "/\t/evil.test",
	} {
		attack.Case(t, "API-09", "a login that leads to "+next)
		resp, text := newBrowser(t).do("GET", s.url+"/v1/auth/login?next="+url.QueryEscape(next), "")
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"field":"next"`) {
			t.Errorf("next=%q: %d %s", next, resp.StatusCode, text)
		}
	}

	// If an attacker has planted a session in a browser, the login starts a new session and ends
	// the planted session.
	attack.Case(t, "API-09", "a session that was there before the login")
	victim, planted := newBrowser(t), ""
	first, _ := victim.do("POST", s.url+"/v1/auth/session", "", "Authorization", "Bearer "+s.key)
	for _, c := range first.Cookies() {
		planted = c.Value
	}
	resp, _ = s.signIn(t, victim, "ann")
	for _, c := range resp.Cookies() {
		if c.Name == "brig_session" && c.Value == planted {
			t.Error("the login kept the session that was there")
		}
	}
	if _, me := s.whoami(victim); me["subject"] != "ann" {
		t.Errorf("after the login it is %v", me)
	}
	eventually(t, "the session that was there ends", func() bool {
		status, _ := s.whoami(newBrowser(t), "Cookie", "brig_session="+planted)
		return status == http.StatusUnauthorized
	})
}

// TestSignInRequestsClaims verifies that the server requests the claims separately if the
// provider's ID tokens do not contain them.
//
//suite:part hostile
func TestSignInRequestsClaims(t *testing.T) {
	s := startSignInWith(t, false)
	b := newBrowser(t)
	if resp, text := s.signIn(t, b, "boss"); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, text)
	}
	if status, me := s.whoami(b); status != 200 || me["role"] != "operator" || me["email"] != "boss@example.com" {
		t.Errorf("whoami: %d %v", status, me)
	}
	for _, who := range []string{"nobody", "claimed"} {
		if resp, text := s.signIn(t, newBrowser(t), who); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %s", who, resp.StatusCode, text)
		}
	}
}
