package door_test

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/internal/attack"
)

const aSession = brig.SessionPrefix + "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"

// browsers knows one session and no keys.
type browsers struct{ ended atomic.Bool }

func (*browsers) KeyActor(context.Context, [32]byte) (brig.Actor, error) {
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no key")
}

func (b *browsers) SessionActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash != sha256.Sum256([]byte(aSession)) || b.ended.Load() {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no session")
	}
	return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Session: "s1"}, nil
}

// A browser's cookie is as good as a key for looking; what changes something
// needs the token that only our own pages can send.
func TestCookies(t *testing.T) {
	ring := door.NewKeyring(&browsers{})
	served := 0
	h := door.Auth(ring, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if served++; brig.ActorFrom(r.Context()).Session != "s1" {
			t.Error("somebody else came in")
		}
	}))
	cookie, token := "brig_session="+aSession, door.CSRFToken(aSession)
	for _, c := range []struct {
		name, method string
		headers      []string
		status       int
	}{
		{"a look", "GET", []string{"Cookie", cookie}, 200},
		{"a change with the token", "POST", []string{"Cookie", cookie, door.CSRF, token}, 200},
		{"a change without it", "POST", []string{"Cookie", cookie}, 403},
		{"a change with another", "DELETE", []string{"Cookie", cookie, door.CSRF, token[:len(token)-1] + "_"}, 403},
		{"a change with an empty one", "PUT", []string{"Cookie", cookie, door.CSRF, ""}, 403},
		{"a change with two", "POST", []string{"Cookie", cookie, door.CSRF, token, door.CSRF, token}, 403},
		{"an unknown method", "BREW", []string{"Cookie", cookie}, 403},
		{"another's session", "GET", []string{"Cookie", "brig_session=" + aSession[:len(aSession)-1] + "z"}, 401},
		{"two cookies, of which a neighbour put one there", "GET", []string{"Cookie", cookie + "; " + cookie}, 401},
		{"two headers of cookies", "GET", []string{"Cookie", cookie, "Cookie", cookie}, 401},
		{"the cookie of https", "GET", []string{"Cookie", "__Host-" + cookie}, 401},
		{"the session as a key", "GET", []string{"Authorization", "Bearer " + aSession}, 401},
		{"a wrong key beside the cookie", "GET", []string{"Cookie", cookie, "Authorization", "Bearer brig_" + strings.Repeat("x", 52)}, 401},
		{"nothing", "GET", nil, 401},
		{"the token alone", "POST", []string{door.CSRF, token}, 401},
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
		// One that is no session is taken back: it would be shown again and again.
		if cleared := strings.HasPrefix(w.Header().Get("Set-Cookie"), "brig_session=;"); cleared != (c.name == "another's session") {
			t.Errorf("%s: Set-Cookie %q", c.name, w.Header().Get("Set-Cookie"))
		}
		if c.status != 200 {
			attack.Case(t, "API-03", "a browser's session: "+c.name)
		}
	}
	attack.Seen("API-03", "a change with the session's token", "the token in a header", served == 2)
	// Over https the other name counts alone.
	ring.Cookie.Secure = true
	for value, want := range map[string]int{"__Host-" + cookie: 200, cookie: 401} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", value)
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("over https, %.15s…: %d, want %d", value, w.Code, want)
		}
	}
}

// A session that ends takes with it what goes on, as a key does.
func TestSessionEndsWhatGoesOn(t *testing.T) {
	b := &browsers{}
	h := door.Auth(door.NewKeyring(b), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "brig_session="+aSession)
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
	case <-time.After(time.Second):
		t.Error("a second after the session's end something goes on with it")
	}
}

// What browsers are given cannot be read by pages, nor sent by other sites.
func TestCookiesAreBound(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w := httptest.NewRecorder()
		c := door.Cookie{Secure: secure}
		c.SetSession(w, aSession, time.Now().Add(time.Hour))
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

// Only a browser that leaves another site for the landing page itself comes
// from there.
func TestGuardLetsBrowsersLand(t *testing.T) {
	h := door.Guard(nil, "/landing", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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
	} {
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
