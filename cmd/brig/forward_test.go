package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/internal/attack"
)

// hostileGuest is a server in a sandbox that records its requests and tries to
// set the console's cookies.
type hostileGuest struct {
	*httptest.Server
	mu  sync.Mutex
	got []http.Header
}

func newHostileGuest(t *testing.T) *hostileGuest {
	g := &hostileGuest{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.got = append(g.got, r.Header.Clone())
		g.mu.Unlock()
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
			return
		}
		w.Header().Add("Set-Cookie", "brig_session=planted; Path=/")
		w.Header().Add("Set-Cookie", "=brig_session=planted")
		w.Header().Add("Set-Cookie", "own=1; Path=/")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		fmt.Fprintf(w, "%s %s", r.Host, r.URL.RequestURI())
	}))
	t.Cleanup(g.Close)
	return g
}

// lastRequest returns the last request to the guest as text.
func (g *hostileGuest) lastRequest() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.got) == 0 {
		return ""
	}
	var b bytes.Buffer
	_ = g.got[len(g.got)-1].Write(&b)
	return b.String()
}

// guestService is a service with one sandbox, whose ports are those of a test server.
type guestService struct {
	brig.Service
	addr string
}

func (guestService) Get(context.Context, string) (*brig.Sandbox, error) {
	return &brig.Sandbox{ID: "sb0one"}, nil
}

func (guestService) TokenRule(context.Context) (brig.TokenRule, error) {
	return brig.TokenRule{Issuer: "https://idp.test", Audiences: []string{"brig"}}, nil
}

// personToken is a token of the identity provider that the server trusts.
var personToken = "eyJhbGciOiJFUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://idp.test","aud":"brig"}`)) + ".eA"

func (s guestService) Dial(context.Context, string, int) (net.Conn, error) {
	return net.Dial("tcp", s.addr)
}

// startForward runs the forward command for a guest until the test ends, and returns the URL that
// the command prints.
func startForward(t *testing.T, addr string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	c := &cli{stdout: w, stderr: io.Discard}
	done := make(chan error, 1)
	go func() { done <- networkCommands{c}.forwardPort(ctx, guestService{addr: addr}, "one", 0, 80) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	at, _, ok := strings.Cut(line, " is port 80 of one")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	return at
}

// startForwarder runs a forwarder on the shared loopback address until the test ends, and returns
// its URL.
func startForwarder(t *testing.T, f *forwarder) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })
	return "http://" + ln.Addr().String()
}

// startConsole returns a server on the shared loopback that sets a browser's session
// cookie.
func startConsole(t *testing.T) (at *url.URL, browser *http.Client) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "brig_session", Value: "brig_session_secret", Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.SetCookie(w, &http.Cookie{Name: "other", Value: "cookie", Path: "/"})
	}))
	t.Cleanup(s.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser = &http.Client{Jar: jar, Timeout: 30 * time.Second}
	resp, err := browser.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	at, _ = url.Parse(s.URL)
	return at, browser
}

// sendFromBrowser sends a request from a browser, with a Brig API key in addition to the
// cookies.
func sendFromBrowser(t *testing.T, browser *http.Client, at string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", at+"/a%2Fb?q=1;2", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer brig_"+strings.Repeat("a", 52))
	req.Header.Set("X-Brig-CSRF", "csrf-secret")
	req.Header.Set("X-Forwarded-Access-Token", personToken)
	resp, err := browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestForwardProtectsSession checks that a forwarded sandbox cannot access the session of a browser
// that is signed in to the console on the same machine. The sandbox must not receive cookies,
// tokens or keys of the console, and must not be able to set a cookie for the console. The control
// is plain TCP forwarding, which passes all of them.
func TestForwardProtectsSession(t *testing.T) {
	guest := newHostileGuest(t)
	secrets := []string{"brig_session", "csrf-secret", "brig_aaaa", personToken}
	check := func(what, at string, browser *http.Client) (leaks []string) {
		t.Helper()
		resp, body := sendFromBrowser(t, browser, at)
		if u, _ := url.Parse(at); body != u.Host+" /a%2Fb?q=1;2" {
			t.Errorf("%s: the guest answered %q", what, body)
		}
		for _, s := range secrets {
			if strings.Contains(guest.lastRequest(), s) {
				leaks = append(leaks, s)
			}
		}
		for _, c := range resp.Header["Set-Cookie"] {
			if strings.Contains(c, "planted") {
				leaks = append(leaks, c)
			}
		}
		return leaks
	}
	own, browser := startConsole(t)
	address := startForward(t, guest.Listener.Addr().String())
	if strings.Contains(address, "//127.0.0.1:") {
		t.Errorf("forward listens on the shared address: %s", address)
	}
	attack.Case(t, "API-03", "a forwarded sandbox that wants the console's session")
	if leaks := check("its own address", address, browser); len(leaks) > 0 {
		t.Errorf("the sandbox has, or sets: %q", leaks)
	}
	if strings.Contains(guest.lastRequest(), "other=cookie") {
		t.Error("the sandbox has the cookies of other local servers")
	}
	_, _ = sendFromBrowser(t, browser, address)
	if !strings.Contains(guest.lastRequest(), "own=1") {
		t.Errorf("the sandbox's own cookie is lost: %s", guest.lastRequest())
	}
	// If the system has only one loopback address, only Brig's own cookies are
	// removed.
	dial := func(context.Context) (net.Conn, error) { return net.Dial("tcp", guest.Listener.Addr().String()) }
	shared := startForwarder(t, func() *forwarder {
		f := newForwarder(true, dial, func(err error) { t.Log(err) })
		f.shield, _ = newShield(t.Context(), guestService{}) // never fails
		return f
	}())
	if leaks := check("the shared address", shared, browser); len(leaks) > 0 {
		t.Errorf("on the shared address the sandbox has, or sets: %q", leaks)
	}
	for _, c := range browser.Jar.Cookies(own) {
		if c.Value == "planted" {
			t.Errorf("the browser has a cookie of the sandbox for the console: %v", c)
		}
	}
	// The control: plain TCP forwarding.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := dial(t.Context())
			if err != nil {
				conn.Close()
				return
			}
			go rest.Relay(conn, far)
		}
	}()
	leaks := check("plain TCP", "http://"+ln.Addr().String(), browser)
	attack.RecordMutant("API-03", "the same over plain TCP on the shared address", "the address and the proxy", len(leaks) > 3)
	if len(leaks) <= 3 {
		t.Errorf("the control leaks only %q", leaks)
	}
}

// TestForwardKeepsOtherProtocolsUnchanged checks that protocols other than HTTP, and upgraded
// connections, are forwarded unchanged, regardless of which end sends first.
func TestForwardKeepsOtherProtocolsUnchanged(t *testing.T) {
	serve := func(handle func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); handle(c) }()
			}
		}()
		return ln.Addr().String()
	}
	// The guest greets sends a greeting before it echoes; echo only echoes; early responds before
	// any request.
	greets := serve(func(c net.Conn) { _, _ = io.WriteString(c, "220 hello\r\n"); _, _ = io.Copy(c, c) })
	echo := serve(func(c net.Conn) { _, _ = io.Copy(c, c) })
	early := serve(func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nSet-Cookie: brig_session=planted\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	connect := func(guest string, shared bool) net.Conn {
		t.Helper()
		address := startForwarder(t, newForwarder(shared, func(context.Context) (net.Conn, error) { return net.Dial("tcp", guest) }, func(error) {}))
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	say := func(c net.Conn, text string) string {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	for _, c := range []struct {
		name, guest, text, want string
		shared                  bool
	}{
		{"a server that speaks first", greets, "EHLO x\r\nGET / HTTP/1.1\r\n", "220 hello\r\nEHLO x\r\nGET / HTTP/1.1\r\n", true},
		{"bytes", echo, "\x00\x01GET / HTTP/1.1\r\n", "\x00\x01GET / HTTP/1.1\r\n", true},
		{"a word and no line", echo, "PING", "PING", true},
		{"gRPC", echo, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true},
		{"TLS", echo, "\x16\x03\x01x", "\x16\x03\x01x", false},
		{"TLS where cookies are shared", echo, "\x16\x03\x01x", "", true},
		{"a line of nothing", echo, "\r\nGET / HTTP/1.1\r\n", "\r\nGET / HTTP/1.1\r\n", true},
	} {
		got := say(connect(c.guest, c.shared), c.text)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// A server that sends first must not receive an HTTP request, because the request could not be
	// filtered.
	if got := say(connect(greets, true), "GET / HTTP/1.1\r\nCookie: brig_session=x\r\n\r\n"); strings.Contains(got, "brig_session") {
		t.Errorf("a greeting gets a request with the session: %q", got)
	}
	// A response that precedes its request must not reach the browser.
	if got := say(connect(early, true), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); strings.Contains(got, "planted") {
		t.Errorf("an early answer sets a cookie: %q", got)
	}
	guest := newHostileGuest(t)
	c := connect(guest.Listener.Addr().String(), false)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nCookie: brig_session=x\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(c, "ping\n")
	if line, err := r.ReadString('\n'); line != "ping\n" {
		t.Errorf("over an upgraded connection: %q, %v", line, err)
	}
	if strings.Contains(guest.lastRequest(), "brig_session") {
		t.Error("an upgrade carries the session")
	}
}

// TestLoopbackOfIsUniquePerSandbox checks that each sandbox has its own address, outside the
// range that other servers use.
func TestLoopbackOfIsUniquePerSandbox(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		a := loopbackOf(brig.ID(fmt.Sprintf("sb%d", i)))
		ip := net.ParseIP(a).To4()
		if ip == nil || ip[0] != 127 || ip[1] == 0 || ip[3] == 0 || ip[3] == 255 || a != loopbackOf(brig.ID(fmt.Sprintf("sb%d", i))) {
			t.Fatal(a)
		}
		seen[a] = true
	}
	if len(seen) < 990 {
		t.Errorf("a thousand sandboxes have %d addresses", len(seen))
	}
}
