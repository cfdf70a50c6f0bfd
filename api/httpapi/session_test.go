package httpapi_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/attack"
)

const testSession = brig.SessionPrefix + "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"

// sessionKeys has one session and no keys.
type sessionKeys struct{ ended atomic.Bool }

func (*sessionKeys) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no key")
}

func (b *sessionKeys) SessionActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash != sha256.Sum256([]byte(testSession)) || b.ended.Load() {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no session")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Session: "s1"}, nil
}

const testToken = "a token of the session's own"

func (b *sessionKeys) SessionCSRF(ctx context.Context, hash [32]byte) ([32]byte, error) {
	_, err := b.SessionActor(ctx, hash)
	return sha256.Sum256([]byte(testToken)), err
}

// sessionAt returns the cookie of a session that a browser started at a host.
func sessionAt(host, secret string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil)
	r.Host = host
	httpapi.Cookies{}.SetSession(w, r, secret, time.Now().Add(time.Hour))
	c := w.Result().Cookies()[0]
	return c.Name + "=" + c.Value
}

// For read requests a browser's cookie is sufficient. A request that changes
// state, or upgrades the connection, also needs the CSRF token, which only our own
// pages can send.
func TestCookieNeedsCSRFTokenForChanges(t *testing.T) {
	ring := httpapi.NewKeyring(&sessionKeys{})
	served := 0
	h := httpapi.Auth(ring, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if served++; brig.ActorFrom(r.Context()).Session != "s1" {
			t.Error("somebody else came in")
		}
	}))
	cookie, token := sessionAt("example.com", testSession), testToken
	derived := hmac.New(sha256.New, []byte(testSession))
	derived.Write([]byte("csrf"))
	for _, c := range []struct {
		name, method string
		headers      []string
		status       int
	}{
		{"a look", "GET", []string{"Cookie", cookie}, 200},
		{"a change with the token", "POST", []string{"Cookie", cookie, httpapi.CSRF, token}, 200},
		{"a change without it", "POST", []string{"Cookie", cookie}, 403},
		{"a change with another", "DELETE", []string{"Cookie", cookie, httpapi.CSRF, token[:len(token)-1] + "_"}, 403},
		{"a change with an empty one", "PUT", []string{"Cookie", cookie, httpapi.CSRF, ""}, 403},
		{"a change with two", "POST", []string{"Cookie", cookie, httpapi.CSRF, token, httpapi.CSRF, token}, 403},
		{"an unknown method", "BREW", []string{"Cookie", cookie}, 403},
		{"an upgrade with the token", "GET", []string{"Cookie", cookie, "Connection", "Upgrade", "Upgrade", "tcp", httpapi.CSRF, token}, 200},
		{"an upgrade without it", "GET", []string{"Cookie", cookie, "Connection", "Upgrade", "Upgrade", "tcp"}, 403},
		{"an upgrade to a WebSocket without it", "GET", []string{"Cookie", cookie, "Connection", "keep-alive, Upgrade", "Upgrade", "websocket"}, 403},
		{"an upgrade in a second header", "HEAD", []string{"Cookie", cookie, "Upgrade", "", "Upgrade", "tcp"}, 403},
		{"a change with a token made from the cookie", "POST", []string{"Cookie", cookie, httpapi.CSRF, base64.RawURLEncoding.EncodeToString(derived.Sum(nil))}, 403},
		{"another's session", "GET", []string{"Cookie", sessionAt("example.com", testSession[:len(testSession)-1]+"z")}, 401},
		{"a session that was begun at another port", "GET", []string{"Cookie", sessionAt("example.com:8080", testSession)}, 401},
		{"a session that was begun under another name", "GET", []string{"Cookie", sessionAt("example.net", testSession)}, 401},
		{"a session without its origin", "GET", []string{"Cookie", "brig_session=" + testSession}, 401},
		{"two cookies, of which a neighbour put one there", "GET", []string{"Cookie", cookie + "; " + cookie}, 401},
		{"two headers of cookies", "GET", []string{"Cookie", cookie, "Cookie", cookie}, 401},
		{"the cookie of https", "GET", []string{"Cookie", "__Host-" + cookie}, 401},
		{"the session as a key", "GET", []string{"Authorization", "Bearer " + testSession}, 401},
		{"a wrong key beside the cookie", "GET", []string{"Cookie", cookie, "Authorization", "Bearer brig_" + strings.Repeat("x", 52)}, 401},
		{"nothing", "GET", nil, 401},
		{"the token alone", "POST", []string{httpapi.CSRF, token}, 401},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, "/", nil)
		r.RemoteAddr = "127.0.0." + string(rune('1'+served)) + ":1"
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Add(c.headers[i], c.headers[i+1])
		}
		before := served
		if h.ServeHTTP(w, r); w.Code != c.status || served-before != map[bool]int{true: 1}[c.status == 200] {
			t.Errorf("%s: %d after %d, want %d: %s", c.name, w.Code, served-before, c.status, w.Body)
		}
		// The response removes an invalid session cookie, because the browser would otherwise
		// send it with every request.
		if cleared := strings.HasPrefix(w.Header().Get("Set-Cookie"), "brig_session=;"); cleared != (c.name == "another's session") {
			t.Errorf("%s: Set-Cookie %q", c.name, w.Header().Get("Set-Cookie"))
		}
		if c.status != 200 {
			attack.Case(t, "API-03", "a browser's session: "+c.name)
		}
	}
	attack.RecordMutant("API-03", "a change with the session's token", "the token in a header", served == 3)
	// Over HTTPS, only the cookie with the prefix is valid.
	ring.Cookie.Secure = true
	for value, want := range map[string]int{"__Host-" + cookie: 200, cookie: 401} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", value)
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("over https, %.15s…: %d, want %d", value, w.Code, want)
		}
	}
}

// The requests of a session end with the session, like the requests of a revoked key.
func TestSessionEndCancelsRequests(t *testing.T) {
	b := &sessionKeys{}
	h := httpapi.Auth(httpapi.NewKeyring(b), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", sessionAt("example.com", testSession))
	done := make(chan struct{})
	go func() {
		h.ServeHTTP(httptest.NewRecorder(), r)
		close(done)
	}()
	select {
	case <-done:
		t.Fatal("it ended while the session was good")
	case <-time.After(600 * time.Millisecond):
	}
	b.ended.Store(true)
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("long after the session's end something goes on with it")
	}
}

// Pages cannot read these cookies, and other sites cannot make browsers send
// them.
func TestCookiesAreHiddenFromPagesAndOtherSites(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w := httptest.NewRecorder()
		c := httpapi.Cookies{Secure: secure}
		c.SetSession(w, httptest.NewRequest("POST", "/", nil), testSession, time.Now().Add(time.Hour))
		c.SetLogin(w, "x", time.Now().Add(time.Hour))
		set := w.Result().Cookies()
		if len(set) != 2 {
			t.Fatal(set)
		}
		for i, want := range []http.SameSite{http.SameSiteStrictMode, http.SameSiteLaxMode} {
			x := set[i]
			if !x.HttpOnly || x.Secure != secure || x.SameSite != want || x.Path != "/" || x.Domain != "" || strings.HasPrefix(x.Name, "__Host-") != secure {
				t.Errorf("secure %v: %+v", secure, x)
			}
		}
	}
}

// Another site may navigate only to the landing page, or to a page below a landing page that
// ends in an asterisk.
func TestGuardAllowsNavigation(t *testing.T) {
	exact := httpapi.Guard(nil, "/landing", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	pages := httpapi.Guard(nil, "/docs/*", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	arrival := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	for _, c := range []struct {
		name, method, path string
		change             [2]string
		status             int
	}{
		{"the landing", "GET", "/landing", [2]string{}, 200},
		{"another page", "GET", "/", [2]string{}, 403},
		{"below the landing", "GET", "/landing/x", [2]string{}, 403},
		{"a form", "POST", "/landing", [2]string{}, 403},
		{"with an origin", "GET", "/landing", [2]string{"Origin", "http://evil.test"}, 403},
		{"in a frame", "GET", "/landing", [2]string{"Sec-Fetch-Dest", "iframe"}, 403},
		{"as an image", "GET", "/landing", [2]string{"Sec-Fetch-Dest", "image"}, 403},
		{"by a script", "GET", "/landing", [2]string{"Sec-Fetch-Mode", "cors"}, 403},
		{"under a strange name", "GET", "http://evil.test/landing", [2]string{}, 421},
		{"the documentation", "GET", "/docs/", [2]string{}, 200},
		{"the documentation without a slash", "GET", "/docs", [2]string{}, 200},
		{"a page of the documentation", "GET", "/docs/guides/user/", [2]string{}, 200},
		{"a page beside the documentation", "GET", "/docsx", [2]string{}, 403},
		{"a form to the documentation", "POST", "/docs/guides/user/", [2]string{}, 403},
		{"the documentation in a frame", "GET", "/docs/guides/user/", [2]string{"Sec-Fetch-Dest", "iframe"}, 403},
		{"the documentation by a script", "GET", "/docs/guides/user/", [2]string{"Sec-Fetch-Mode", "cors"}, 403},
		{"the documentation with an origin", "GET", "/docs/guides/user/", [2]string{"Origin", "http://evil.test"}, 403},
		{"the documentation under a strange name", "GET", "http://evil.test/docs/", [2]string{}, 421},
	} {
		h := exact
		if strings.Contains(c.path, "/docs") {
			h = pages
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil)
		if c.status != 421 {
			r.Host = "localhost"
		}
		for k, v := range arrival {
			r.Header.Set(k, v)
		}
		if c.change[0] != "" {
			r.Header.Set(c.change[0], c.change[1])
		}
		if h.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.status)
		}
	}
}
