package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// sessionStub creates sessions and records their actors.
type sessionStub struct {
	brig.SessionService
	actors []brig.Actor
}

func (s *sessionStub) CreateSession(ctx context.Context) (*brig.NewSession, error) {
	s.actors = append(s.actors, brig.ActorFrom(ctx))
	return &brig.NewSession{Session: brig.Session{Expires: time.Now().Add(time.Hour)}, Secret: "secret", CSRFToken: "csrf-token"}, nil
}

// TestSignInLink checks that a sign-in link works once, before it expires, and
// only for a GET request with its token and host name. After each rejected
// request, the same link still signs in (the control).
func TestSignInLink(t *testing.T) {
	now := time.Now()
	var stub *sessionStub
	open := func() (*signInLink, http.Handler, string) {
		stub = &sessionStub{}
		l := &signInLink{service: stub, key: func() string { return "admin-key" }, clock: brig.WallClock(func() time.Time { return now }), actor: func(context.Context) (brig.Actor, error) {
			return brig.Actor{Name: "admin", Key: "k1"}, nil
		}}
		return l, l.handler(nil, slog.New(slog.DiscardHandler)), signInPath + l.create()
	}
	ask := func(h http.Handler, method, host, url string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, url, nil)
		r.Host = host
		h.ServeHTTP(w, r)
		return w
	}
	signsIn := func(w *httptest.ResponseRecorder) bool {
		return w.Code == http.StatusOK && strings.HasPrefix(w.Header().Get("Set-Cookie"), "brig_session=secret.") &&
			strings.Contains(w.Body.String(), `"brig_csrf","csrf-token"`)
	}
	for _, c := range []struct{ name, method, host, suffix string }{
		{"another token", "GET", "127.0.0.1", "x"},
		{"no token", "GET", "127.0.0.1", "&token=no"},
		{"POST", "POST", "127.0.0.1", ""},
		{"HEAD, as link checkers send it", "HEAD", "127.0.0.1", ""},
		{"another host name", "GET", "evil.test", ""},
	} {
		_, h, url := open()
		bad := url + c.suffix
		if c.name == "no token" {
			bad = signInPath
		}
		if w := ask(h, c.method, c.host, bad); w.Code < 400 || w.Header().Get("Set-Cookie") != "" || len(stub.actors) > 0 {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if w := ask(h, "GET", "127.0.0.1", url); !signsIn(w) || len(stub.actors) != 1 || stub.actors[0].Key != "k1" {
			t.Errorf("the control of %s does not sign in: %d %s", c.name, w.Code, w.Body)
		}
		if w := ask(h, "GET", "127.0.0.1", url); w.Code != http.StatusUnauthorized || len(stub.actors) != 1 {
			t.Errorf("a link is used twice: %d", w.Code)
		}
	}
	_, h, url := open()
	now = now.Add(signInTime)
	if w := ask(h, "GET", "127.0.0.1", url); w.Code != http.StatusUnauthorized {
		t.Errorf("an expired link: %d", w.Code)
	}
	l, h, old := open()
	fresh := signInPath + l.create()
	if w := ask(h, "GET", "127.0.0.1", old); w.Code != http.StatusUnauthorized {
		t.Errorf("a replaced link: %d", w.Code)
	}
	if w := ask(h, "GET", "127.0.0.1", fresh); !signsIn(w) {
		t.Errorf("the new link: %d", w.Code)
	}
}

// TestSignInLinkForPrograms checks that only the admin key gets a link, and that
// the link then signs in once. Without a key in the data folder, there is no link.
func TestSignInLinkForPrograms(t *testing.T) {
	stub, key := &sessionStub{}, "admin-key"
	l := &signInLink{service: stub, key: func() string { return key }, clock: brig.WallClock(time.Now), actor: func(context.Context) (brig.Actor, error) {
		return brig.Actor{Name: "admin", Key: "k1"}, nil
	}}
	srv := httptest.NewServer(l.handler(nil, slog.New(slog.DiscardHandler)))
	defer srv.Close()
	for _, wrong := range []string{"", "admin", "another"} {
		if link, err := newSignInLink(t.Context(), srv.URL, wrong); err == nil {
			t.Errorf("the key %q gets %s", wrong, link)
		}
	}
	link, err := newSignInLink(t.Context(), srv.URL, key)
	if err != nil || !strings.HasPrefix(link, srv.URL+signInPath+"?token=") {
		t.Fatalf("%s, %v", link, err)
	}
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		resp, err := http.Get(link)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	key = ""
	if link, err := newSignInLink(t.Context(), srv.URL, ""); err == nil {
		t.Errorf("without an admin key: %s", link)
	}
}
