package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd"
	"github.com/brig-run/brig/engine"
	endclock "github.com/brig-run/brig/internal/clock"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// hostImages is an image store that contains the host image.
type hostImages struct{ brig.ImageStore }

func (hostImages) Resolve(_ context.Context, ref string) (*brig.Image, error) {
	return &brig.Image{Digest: "sha256:host", Names: []string{brig.HostImage}}, nil
}

func (hostImages) List(context.Context) ([]*brig.Image, error) { return nil, nil }

// machineClocks simulates a machine: its clocks, which the test sets, and the state that outlives a
// server.
type machineClocks struct {
	wall     time.Time
	elapsed  time.Duration
	dir      string
	store    brig.Store
	provider fake.Provider
}

func (m *machineClocks) read() (time.Time, time.Duration) { return m.wall, m.elapsed }

func (m *machineClocks) now() time.Time { return m.wall }

// server starts the APIs of a server on a data folder, wired like those of brig serve, until stop
// is called. If monotonic is false, credentials expire by the system's clock (the control).
func (m *machineClocks) server(t *testing.T, monotonic bool) (all *apis, e *engine.Engine, stop func()) {
	t.Helper()
	dir, store := m.dir, m.store
	log := slog.New(slog.DiscardHandler)
	var ends brig.Clock = brig.WallClock(m.now)
	if monotonic {
		c, err := endclock.Open(filepath.Join(dir, clockFile), m.read, log)
		if err != nil {
			t.Fatal(err)
		}
		ends = c
	}
	seed, err := bootstrap(t.Context(), dir, store)
	if err != nil {
		t.Fatal(err)
	}
	templates := []brig.Template{{Name: "base", Image: "host"}}
	e = engine.New(t.Context(), engine.Options{
		Store: store, Provider: &m.provider, Images: hostImages{}, LimitRange: brig.DefaultLimitRange(), GrantSeed: seed, Templates: templates,
		Now: m.now, Clock: ends, SessionIdle: 90 * time.Minute, SessionLife: 2 * time.Hour,
	})
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg, err := readConfig(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	all, err = openAPIs(t.Context(), dir, cfg, e, store, prometheus.NewRegistry(), apiAccess{clock: ends}, log)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { all.close(); e.Close() })
	t.Cleanup(stop)
	return all, e, stop
}

func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A URL that was signed by a key, but does not contain the sandbox's name, is valid as long as the
// key and the sandbox exist, regardless of restarts and other clients. The controls are a wrong
// signature and a revoked key.
func TestSignedURLsSurviveRestart(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &machineClocks{wall: begin, dir: t.TempDir(), store: mem.New()}
	admin := brig.WithActor(t.Context(), brig.Actor{Name: "admin", Tenant: tenant, Role: brig.Operator})
	all, e, stop := m.server(t, true)
	newKey := func() *brig.NewKey {
		k, err := e.CreateKey(admin, brig.KeySpec{Name: "holder", Role: brig.Member})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	type box struct{ SandboxID, EnvdAccessToken string }
	call := func(secret, method, path, body string) (b box) {
		t.Helper()
		w := send(all, method, path, body, "X-Api-Key", secret)
		if w.Code/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		_ = json.Unmarshal(w.Body.Bytes(), &b) // some responses have no body
		return b
	}
	signer := newKey()
	first := call(signer.Secret, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":3600,"autoResume":{"enabled":true}}`)
	if _, err := e.Files(first.SandboxID).Write(admin, brig.Path{Name: "/workspace/a"}, brig.FileWrite{}, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	read := func(token string, headers ...string) int {
		q := url.Values{"path": {"/workspace/a"}, "username": {"user"}, "signature": {envd.Signature("/workspace/a", "read", "user", token, 0)}}
		return send(all, "GET", "/files?"+q.Encode(), "", headers...).Code
	}
	named := []string{"E2b-Sandbox-Id", first.SandboxID, "E2b-Sandbox-Port", "49983"}
	check := func(when string, want int) {
		t.Helper()
		if got := read(first.EnvdAccessToken); got != want {
			t.Errorf("%s, without the sandbox's name: %d, want %d", when, got, want)
		}
		if got := read(first.EnvdAccessToken, named...); got != want {
			t.Errorf("%s, with the sandbox's name: %d, want %d", when, got, want)
		}
		if got := read(first.EnvdAccessToken + "0"); got != http.StatusUnauthorized {
			t.Errorf("%s, a wrong signature: %d", when, got)
		}
	}
	restart := func() {
		stop()
		all, e, stop = m.server(t, true)
	}
	check("at first", http.StatusOK)
	restart()
	check("after a restart", http.StatusOK)
	restart()
	other := newKey()
	call(other.Secret, "GET", "/sandboxes/"+first.SandboxID, "")
	check("after another key has connected", http.StatusOK)
	restart()
	for range 150 {
		newKey()
	}
	call(other.Secret, "GET", "/sandboxes/"+first.SandboxID, "")
	check("beside many keys", http.StatusOK)
	call(other.Secret, "POST", "/sandboxes/"+first.SandboxID+"/pause", "")
	restart()
	call(other.Secret, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":3600}`)
	check("paused before a restart", http.StatusOK)
	restart()
	if err := e.RevokeKey(admin, signer.ID); err != nil {
		t.Fatal(err)
	}
	check("revoked", http.StatusUnauthorized)
}

// lastingURL is the only credential without an expiry time. Its request does not contain the
// sandbox's name.
const lastingURL = "a signed URL without an end"

// credentials returns requests with one credential of each kind. All but lastingURL expire after
// one to two hours.
func credentials(t *testing.T, all *apis, e *engine.Engine, end time.Time) map[string]func(*apis) *httptest.ResponseRecorder {
	t.Helper()
	admin := brig.WithActor(t.Context(), brig.Actor{Name: "admin", Tenant: tenant, Role: brig.Operator})
	held := func(spec brig.KeySpec) (string, context.Context) {
		spec.Name, spec.Role = "holder", brig.Member
		k, err := e.CreateKey(admin, spec)
		if err != nil {
			t.Fatal(err)
		}
		a, err := e.KeyActor(t.Context(), sha256.Sum256([]byte(k.Secret)))
		if err != nil {
			t.Fatal(err)
		}
		return k.Secret, brig.WithActor(t.Context(), a)
	}
	lasting, holder := held(brig.KeySpec{})
	short, _ := held(brig.KeySpec{TTL: time.Hour})
	g, err := e.CreateGrant(holder, brig.GrantSpec{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	native := func(secret string) func(*apis) *httptest.ResponseRecorder {
		return func(a *apis) *httptest.ResponseRecorder {
			return send(a, "GET", "/v1/sandboxes", "", "Authorization", "Bearer "+secret)
		}
	}
	begun := send(all, "POST", "/v1/auth/session", "", "Authorization", "Bearer "+lasting)
	if begun.Code != http.StatusOK && begun.Code != http.StatusCreated {
		t.Fatalf("a session: %d %s", begun.Code, begun.Body)
	}
	cookie, _, _ := strings.Cut(begun.Header().Get("Set-Cookie"), ";")
	link := signInPath + all.link.create()

	var box struct{ SandboxID, EnvdAccessToken string }
	connect := func(secret string) {
		w := send(all, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":3600}`, "X-Api-Key", secret)
		if box.SandboxID != "" {
			w = send(all, "GET", "/sandboxes/"+box.SandboxID, "", "X-Api-Key", secret)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &box); err != nil || w.Code/100 != 2 {
			t.Fatalf("connect: %d %s", w.Code, w.Body)
		}
	}
	connect(lasting)
	if _, err := e.Files(box.SandboxID).Write(holder, brig.Path{Name: "/workspace/a"}, brig.FileWrite{}, bytes.NewReader([]byte("a"))); err != nil {
		t.Fatal(err)
	}
	until := end.Unix() - 1
	q := url.Values{
		"path": {"/workspace/a"}, "username": {"user"}, "signature_expiration": {fmt.Sprint(until)},
		"signature": {envd.Signature("/workspace/a", "read", "user", box.EnvdAccessToken, until)},
	}
	id := box.SandboxID
	forever := url.Values{
		"path": {"/workspace/a"}, "username": {"user"}, "signature": {envd.Signature("/workspace/a", "read", "user", box.EnvdAccessToken, 0)},
	}
	connect(g.Secret)
	token := box.EnvdAccessToken
	return map[string]func(*apis) *httptest.ResponseRecorder{
		"a key": native(short), "a grant": native(g.Secret),
		"a session": func(a *apis) *httptest.ResponseRecorder {
			return send(a, "GET", "/v1/auth/whoami", "", "Cookie", cookie)
		},
		"an access token of a grant": func(a *apis) *httptest.ResponseRecorder {
			return send(a, "GET", "/files?path=/workspace/a", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983", "X-Access-Token", token)
		},
		"a signed URL": func(a *apis) *httptest.ResponseRecorder {
			return send(a, "GET", "/files?"+q.Encode(), "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983")
		},
		lastingURL:       func(a *apis) *httptest.ResponseRecorder { return send(a, "GET", "/files?"+forever.Encode(), "") },
		"a sign-in link": func(a *apis) *httptest.ResponseRecorder { return send(a, "GET", link, "") },
	}
}

// A credential that has expired does not become valid again when the system's clock is set back,
// either in the same server or in the next one. Before it expires, each credential is accepted. The
// control compares expiry times with the system's clock, and accepts all credentials again.
func TestEndedCredentialsStayEnded(t *testing.T) {
	for name, monotonic := range map[string]bool{"by the highest time": true, "the control": false} {
		t.Run(name, func(t *testing.T) {
			begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			m := &machineClocks{wall: begin}
			m.dir, m.store = t.TempDir(), mem.New()
			all, e, stop := m.server(t, monotonic)
			requests := credentials(t, all, e, begin.Add(time.Hour))
			check := func(when string, on *apis, want bool) {
				t.Helper()
				for kind, request := range requests {
					want := want || kind == lastingURL
					if kind == "a sign-in link" && want && when != "set back" {
						continue // a sign-in link works only once
					}
					w := request(on)
					// The server caches a valid credential for less than a second.
					for late := time.Now().Add(10 * time.Second); !want && w.Code != http.StatusUnauthorized && time.Now().Before(late); w = request(on) {
						time.Sleep(20 * time.Millisecond)
					}
					if (w.Code == http.StatusUnauthorized) == want {
						t.Errorf("%s, %s: %d %s", when, kind, w.Code, w.Body)
					}
				}
			}
			check("before the end", all, true)
			m.wall, m.elapsed = begin.Add(3*time.Hour), 3*time.Hour
			check("after the end", all, false)
			m.wall = begin
			check("set back", all, !monotonic)
			if !monotonic {
				return
			}
			// The next server starts with the clock that was set back.
			stop()
			m.elapsed = 0
			next, e, _ := m.server(t, monotonic)
			check("set back, in the next server", next, false)
			// As a control, new credentials are valid for their full lifetime.
			again := credentials(t, next, e, begin.Add(4*time.Hour))
			m.wall, m.elapsed = begin.Add(time.Hour-time.Minute), time.Hour-time.Minute
			for _, kind := range []string{"a key", "a grant", "a session", "an access token of a grant", "a signed URL"} {
				if w := again[kind](next); w.Code != http.StatusOK {
					t.Errorf("set back, a new one: %s: %d %s", kind, w.Code, w.Body)
				}
			}
		})
	}
}
