package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// CSRF is the header with the session's CSRF token. A page of another site can
// make the browser send the cookie but cannot send this header.
const CSRF = "X-Brig-CSRF"

// Cookies reads and writes the cookies of browsers. On an https server, the
// cookies are sent only over https. Their name prefix binds them to this host,
// so that no other host of the domain can replace them.
type Cookies struct {
	Secure bool
}

// Names of cookies.
const (
	sessionCookie = "brig_session"
	loginCookie   = "brig_login"
	hostPrefix    = "__Host-"
)

func (c Cookies) cookieName(base string) string {
	if c.Secure {
		return hostPrefix + base
	}
	return base
}

// SetSession sets the session cookie in r's browser until the session ends. The
// session is valid at r's origin only.
func (c Cookies) SetSession(w http.ResponseWriter, r *http.Request, secret string, expires time.Time) {
	c.set(w, sessionCookie, secret+"."+originTag(secret, r), expires, http.SameSiteStrictMode)
}

// originTag binds a session to the host and port that its browser used.
// Browsers send a cookie to every port of a host, and to every address to which
// the host name resolves.
func originTag(secret string, r *http.Request) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("origin:" + strings.ToLower(r.Host)))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// ClearSession removes the session cookie.
func (c Cookies) ClearSession(w http.ResponseWriter) {
	c.set(w, sessionCookie, "", time.Unix(1, 0), http.SameSiteStrictMode)
}

// SetLogin sets the cookie that a browser must return when it comes back from
// the identity provider, which is another site.
func (c Cookies) SetLogin(w http.ResponseWriter, text string, expires time.Time) {
	c.set(w, loginCookie, text, expires, http.SameSiteLaxMode)
}

// ClearLogin removes the login cookie.
func (c Cookies) ClearLogin(w http.ResponseWriter) {
	c.set(w, loginCookie, "", time.Unix(1, 0), http.SameSiteLaxMode)
}

func (c Cookies) set(w http.ResponseWriter, base, value string, expires time.Time, site http.SameSite) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cookieName(base), Value: value, Path: "/", Expires: expires, Secure: c.Secure, HttpOnly: true, SameSite: site,
	})
}

// WriteSignedIn writes the page that a browser gets together with a new
// session's cookie. After a redirect, browsers would attribute the next request
// to the referring site and would not send the cookie. They do send the cookie
// from a page of this server. The page also stores the session's CSRF token in
// the storage of this origin, which, unlike a cookie, servers on other ports
// cannot read. next is the path to continue with.
func WriteSignedIn(w http.ResponseWriter, csrf, next string) error {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	_, err := fmt.Fprintf(w, `<!doctype html><title>Brig</title><script nonce="%s">localStorage.setItem("brig_csrf","%s")</script>`+
		`<meta http-equiv="refresh" content="0;url=%[3]s"><a href="%[3]s">Go on</a>`+"\n", nonce, csrf, html.EscapeString(next))
	return err
}

// Session returns the session in r's cookie if it was started at r's origin. It
// returns no session if r has two cookies, because another host may have set
// one of them.
func (c Cookies) Session(r *http.Request) (secret string, ok bool) {
	value, ok := c.value(r, sessionCookie)
	secret, tag, bound := strings.Cut(value, ".")
	ok = ok && bound && strings.HasPrefix(secret, brig.SessionPrefix) && isPlausible(secret)
	if !ok || subtle.ConstantTimeCompare([]byte(tag), []byte(originTag(secret, r))) != 1 {
		return "", false
	}
	return secret, true
}

// Login returns the value that SetLogin stored in r's browser.
func (c Cookies) Login(r *http.Request) (text string, ok bool) { return c.value(r, loginCookie) }

func (c Cookies) value(r *http.Request, base string) (string, bool) {
	list := r.CookiesNamed(c.cookieName(base))
	if len(list) != 1 {
		return "", false
	}
	return list[0].Value, true
}

// verifySession returns the proof of a browser session. For requests that may change
// state, it also checks the CSRF token.
func (k *Keyring) verifySession(r *http.Request) (Proof, error) {
	secret, ok := k.Cookie.Session(r)
	sessions, takes := k.keys.(Sessions)
	if !ok || !takes {
		return Proof{}, unauthenticatedError("this needs a key")
	}
	hash := sha256.Sum256([]byte(secret))
	p, err := k.verify(r, Proof{
		name:  sha256.Sum256([]byte("\x00session\x00" + secret)),
		check: func(ctx context.Context) (brig.Actor, error) { return sessions.SessionActor(ctx, hash) },
	})
	if err != nil {
		return p, err
	}
	if isReadOnly(r) {
		return p, nil
	}
	want, err := sessions.SessionCSRF(r.Context(), hash)
	if err != nil {
		return p, err
	}
	shown := r.Header.Values(CSRF)
	if len(shown) == 1 {
		got := sha256.Sum256([]byte(shown[0]))
		if want != [32]byte{} && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			return p, nil
		}
	}
	return p, brig.Errorf(brig.PermissionDenied, "a browser session must send its CSRF token with requests that change something or upgrade the connection").
		WithHint("send the header %s with the csrf that POST /v1/auth/session answered; sign in again if it is lost", CSRF)
}

// isReadOnly reports whether a request cannot change state. An upgraded
// connection can carry arbitrary data, for example to a port in a sandbox. The
// console does not upgrade connections.
func isReadOnly(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return len(r.Header.Values("Upgrade")) == 0
	}
	return false
}

// SessionOf returns the actor of the session in r's cookie if it is valid, and
// ignores other credentials in r.
func (k *Keyring) SessionOf(r *http.Request) (a brig.Actor, secret string, ok bool) {
	secret, ok = k.Cookie.Session(r)
	sessions, takes := k.keys.(Sessions)
	if !ok || !takes {
		return a, "", false
	}
	a, err := sessions.SessionActor(r.Context(), sha256.Sum256([]byte(secret)))
	return a, secret, err == nil
}
