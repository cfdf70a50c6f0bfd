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
	"github.com/brig-run/brig/api/httpapi"
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

// TestSignInLinkWorksOnce checks that a sign-in link works once, before it expires, and
// only for a GET request with its token and host name. After each rejected
// request, the same link still signs in (the control).
func TestSignInLinkWorksOnce(t *testing.T) {
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
	now = now.Add(signInTTL)
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

// TestOnlyOwnersRequestSignInLinks checks which programs may request a link. At the socket, it is
// the data folder's owner; over TCP, only a program with the admin key. A wrong key is rejected at
// the socket, too. The link signs in once.
func TestOnlyOwnersRequestSignInLinks(t *testing.T) {
	stub, key := &sessionStub{}, "admin-key"
	l := &signInLink{service: stub, key: func() string { return key }, clock: brig.WallClock(time.Now), actor: func(context.Context) (brig.Actor, error) {
		return brig.Actor{Name: "admin", Key: "k1"}, nil
	}}
	log := slog.New(slog.DiscardHandler)
	dir := folderServedAt(t, "", true)
	socket, err := listenSocket(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = httpapi.NewServer(l.handler(nil, log), log)
	srv.Start()
	defer srv.Close()
	go func() { _ = srv.Config.Serve(socket) }()
	transport := socketTransport(dir)
	defer transport.CloseIdleConnections()
	local := &http.Client{Transport: transport}
	post := func(c *http.Client, url, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+signInPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for key, want := range map[string]int{"": 401, "admin": 401, "another": 401, "admin-key": 200} {
		if got := post(http.DefaultClient, srv.URL, key); got != want {
			t.Errorf("the key %q gets %d over TCP, want %d", key, got, want)
		}
		if key == "" {
			want = 200 // the owner
		}
		if got := post(local, socketURL, key); got != want {
			t.Errorf("the key %q gets %d at the socket, want %d", key, got, want)
		}
	}
	link, err := newSignInLink(t.Context(), dir, srv.URL)
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
	if got := post(http.DefaultClient, srv.URL, ""); got != 401 {
		t.Errorf("without an admin key: %d", got)
	}
}
