package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/ui"
)

const (
	// signInPath is the path of sign-in links.
	signInPath = ui.Prefix + "sign-in"
	// signInTTL is the time for which a sign-in link is valid.
	signInTTL = 10 * time.Minute
	// linkTimeout bounds a request for a sign-in link.
	linkTimeout = 10 * time.Second
)

// signInLink lets one browser sign in to the console once, with the admin key's
// rights. brig serve prints it only on a terminal, because more people can read
// logs. A program with the admin key, or at the data folder's socket, can request
// a link with POST.
type signInLink struct {
	service brig.SessionService
	actor   func(context.Context) (brig.Actor, error) // returns the key's current rights
	key     func() string                             // returns the admin key
	cookies httpapi.Cookies
	clock   brig.Clock

	mu      sync.Mutex // guards the fields below
	hash    [sha256.Size]byte
	expires time.Time // zero if there is no link
}

// create returns the query of a new link, and invalidates the previous one.
func (l *signInLink) create() string {
	token := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hash, l.expires = sha256.Sum256([]byte(token)), l.clock.Now().Add(signInTTL)
	return "?token=" + token
}

// redeem reports whether a token matches the current link, and if so invalidates the link.
func (l *signInLink) redeem(token string) bool {
	hash := sha256.Sum256([]byte(token))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expires.IsZero() || l.clock.HasPassed(l.expires) || subtle.ConstantTimeCompare(hash[:], l.hash[:]) == 0 {
		return false
	}
	l.expires = time.Time{}
	return true
}

// matches reports whether a request is for a sign-in link.
func (l *signInLink) matches(r *http.Request) bool { return r.URL.Path == signInPath }

// handler returns the handler of the link. The argument hosts lists the server's host names.
func (l *signInLink) handler(hosts []string, log *slog.Logger) http.Handler {
	return httpapi.Wrap(log, nil, httpapi.Guard(hosts, ui.Prefix, l))
}

// ServeHTTP implements http.Handler.
func (l *signInLink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := l.signIn(w, r); err != nil {
		httpapi.Fail(w, r, err)
	}
}

func (l *signInLink) signIn(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		return l.sendLink(w, r)
	}
	if r.Method != http.MethodGet || !l.redeem(r.URL.Query().Get("token")) {
		return brig.Errorf(brig.Unauthenticated, "the sign-in link is invalid, has expired or was used").
			WithHint("sign in with an API key at %s, or start brig serve again for a new link", ui.Prefix)
	}
	actor, err := l.actor(r.Context())
	if err != nil {
		return err
	}
	s, err := l.service.CreateSession(brig.WithActor(r.Context(), actor))
	if err != nil {
		return err
	}
	l.cookies.SetSession(w, r, s.Secret, s.Expires)
	return httpapi.WriteSignedIn(w, s.CSRFToken, ui.Prefix)
}

// linkJSON is the response to a request for a link.
type linkJSON struct {
	URL string `json:"url"` // the path of the link
}

// sendLink creates a link for a program that has the admin key or acts for the
// data folder's owner, which gives the same rights.
func (l *signInLink) sendLink(w http.ResponseWriter, r *http.Request) error {
	if !httpapi.IsFromOwner(r) && !l.hasKey(r) {
		return brig.Errorf(brig.Unauthenticated, "a sign-in link needs the admin key of the server's data folder").
			WithHint("sign in with an API key at %s", ui.Prefix)
	}
	return httpapi.WriteJSON(w, http.StatusOK, linkJSON{signInPath + l.create()})
}

// hasKey reports whether a request has the admin key.
func (l *signInLink) hasKey(r *http.Request) bool {
	key := l.key()
	got, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+key))
	return key != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// newSignInLink requests a sign-in link from the data folder's server, and combines it with the
// server's URL for browsers.
func newSignInLink(ctx context.Context, dir, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, socketURL+signInPath, nil)
	if err != nil {
		return "", err
	}
	t := socketTransport(dir)
	defer t.CloseIdleConnections()
	resp, err := (&http.Client{Transport: t}).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var link linkJSON
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4096)).Decode(&link); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(link.URL, signInPath+"?") {
		return "", brig.Errorf(brig.ConnectionFailed, "the server of %s sent no sign-in link", dir).WithHint("sign in with an API key at %s", ui.Prefix)
	}
	return url + link.URL, nil
}
