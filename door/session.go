package door

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// CSRF is the header in which a page shows that it knows its session's token:
// a page of another site can have the cookie sent, but not this.
const CSRF = "X-Brig-CSRF"

// Cookie is how a browser brings what only it may have. Where this server is
// reached by https its cookies are for that alone, and bound to this very host
// by their names: no neighbour host can put one in their place.
type Cookie struct {
	Secure bool
}

// The names of cookies.
const (
	sessionCookie = "brig_session"
	loginCookie   = "brig_login"
	hostPrefix    = "__Host-"
)

func (c Cookie) name(base string) string {
	if c.Secure {
		return hostPrefix + base
	}
	return base
}

// SetSession gives a browser its session, until it ends.
func (c Cookie) SetSession(w http.ResponseWriter, secret string, expires time.Time) {
	c.set(w, sessionCookie, secret, expires, http.SameSiteStrictMode)
}

// ClearSession takes it back.
func (c Cookie) ClearSession(w http.ResponseWriter) {
	c.set(w, sessionCookie, "", time.Unix(1, 0), http.SameSiteStrictMode)
}

// SetLogin gives a browser what it has to bring back when it comes from the
// identity provider, which is another site.
func (c Cookie) SetLogin(w http.ResponseWriter, text string, expires time.Time) {
	c.set(w, loginCookie, text, expires, http.SameSiteLaxMode)
}

// ClearLogin takes it back.
func (c Cookie) ClearLogin(w http.ResponseWriter) {
	c.set(w, loginCookie, "", time.Unix(1, 0), http.SameSiteLaxMode)
}

func (c Cookie) set(w http.ResponseWriter, base, value string, expires time.Time, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{
		Name: c.name(base), Value: value, Path: "/", Expires: expires, Secure: c.Secure, HttpOnly: true, SameSite: site,
	})
}

// Session returns the session that r's browser brings, if it brings one. Two
// are none: one of them was put there by somebody else.
func (c Cookie) Session(r *http.Request) (secret string, ok bool) {
	secret, ok = c.of(r, sessionCookie)
	return secret, ok && strings.HasPrefix(secret, brig.SessionPrefix) && plausible(secret)
}

// Login returns what SetLogin gave to r's browser.
func (c Cookie) Login(r *http.Request) (text string, ok bool) { return c.of(r, loginCookie) }

func (c Cookie) of(r *http.Request, base string) (string, bool) {
	list := r.CookiesNamed(c.name(base))
	if len(list) != 1 {
		return "", false
	}
	return list[0].Value, true
}

// CSRFToken is what goes with a session in the header CSRF. It is made from
// the session's secret and tells nothing of it.
func CSRFToken(secret string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// session returns the proof of a browser. What may change something has to
// show that a page of ours asks for it, too.
func (k *Keyring) session(r *http.Request) (Proof, error) {
	secret, ok := k.Cookie.Session(r)
	sessions, takes := k.keys.(Sessions)
	if !ok || !takes {
		return Proof{}, unauthenticated("this needs a key")
	}
	hash := sha256.Sum256([]byte(secret))
	p, err := k.show(r, Proof{
		name:  sha256.Sum256([]byte("\x00session\x00" + secret)),
		check: func(ctx context.Context) (brig.Actor, error) { return sessions.SessionActor(ctx, hash) },
	})
	if err != nil {
		return p, err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return p, nil
	}
	shown := r.Header.Values(CSRF)
	if len(shown) != 1 || subtle.ConstantTimeCompare([]byte(shown[0]), []byte(CSRFToken(secret))) != 1 {
		return p, brig.Errorf(brig.PermissionDenied, "a browser's session needs its token with what changes something").
			WithHint("send the header %s with the csrf of GET /v1/auth/whoami", CSRF)
	}
	return p, nil
}

// SessionOf returns whose the session is that r's browser brings, if it is
// good, whatever else r shows.
func (k *Keyring) SessionOf(r *http.Request) (a brig.Actor, secret string, ok bool) {
	secret, ok = k.Cookie.Session(r)
	sessions, takes := k.keys.(Sessions)
	if !ok || !takes {
		return a, "", false
	}
	a, err := sessions.SessionActor(r.Context(), sha256.Sum256([]byte(secret)))
	return a, secret, err == nil
}
