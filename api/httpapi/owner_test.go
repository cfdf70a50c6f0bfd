package httpapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/peersock"
	"github.com/brig-run/brig/internal/testenv"
)

const (
	ownerSocket = "owner.sock"
	ownersKey   = "brig_0123456789012345678901234567890123456789"
)

// oneKey accepts only ownersKey.
type oneKey struct{}

func (oneKey) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	if hash != sha256.Sum256([]byte(ownersKey)) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "unknown key")
	}
	return brig.Actor{Name: "holder", Role: brig.Viewer}, nil
}

// serveOwner serves a handler that returns the caller's name, on the socket of a directory and
// over TCP.
func serveOwner(t *testing.T, dir string) (tcp string) {
	t.Helper()
	ring := httpapi.NewKeyring(oneKey{})
	ring.Owner = func(context.Context) (brig.Actor, error) { return brig.Actor{Name: "owner", Role: brig.Operator}, nil }
	log := slog.New(slog.DiscardHandler)
	srv := httpapi.NewServer(httpapi.Wrap(log, nil, httpapi.Guard(nil, "", httpapi.Auth(ring, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, brig.ActorFrom(r.Context()).Name)
	})))), log)
	return serveTCPAndSocket(t, srv, dir)
}

// serveTCPAndSocket serves on the socket of a directory and on TCP, and returns the TCP address.
func serveTCPAndSocket(t *testing.T, srv *http.Server, dir string) (tcp string) {
	t.Helper()
	local, err := peersock.Listen(t.Context(), dir, ownerSocket)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range []net.Listener{local, ln} {
		go func() { _ = srv.Serve(ln) }()
	}
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

// requestOver sends a request over a connection and returns the status and the body of the
// response.
func requestOver(t *testing.T, dial func() (net.Conn, error), header http.Header) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return dial() },
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestOwnerNeedsNoKey verifies that a request over the socket comes from the owner, unless it
// carries a credential or was sent by a browser. A request over TCP never comes from the owner.
func TestOwnerNeedsNoKey(t *testing.T) {
	dir := t.TempDir()
	tcp := serveOwner(t, dir)
	for name, c := range map[string]struct {
		header      http.Header
		local, over string // the caller over the socket and over TCP; empty if the request is rejected
	}{
		"no credential":          {http.Header{}, "owner", ""},
		"a key":                  {http.Header{"Authorization": {"Bearer " + ownersKey}}, "holder", "holder"},
		"a wrong key":            {http.Header{"Authorization": {"Bearer " + strings.ToUpper(ownersKey)}}, "", ""},
		"an empty key":           {http.Header{"Authorization": {""}}, "", ""},
		"a cookie":               {http.Header{"Cookie": {"brig_session=x"}}, "", ""},
		"a page of this server":  {http.Header{"Origin": {"http://localhost"}}, "", ""},
		"a fetch of this server": {http.Header{"Sec-Fetch-Site": {"same-origin"}}, "", ""},
		"an address bar":         {http.Header{"Sec-Fetch-Site": {"none"}}, "", ""},
		"a page of another site": {http.Header{"Origin": {"http://evil.test"}}, "", ""},
		"a proxy's client":       {http.Header{"X-Forwarded-For": {"203.0.113.7"}}, "", ""},
		"a proxy":                {http.Header{"Via": {"1.1 proxy"}}, "", ""},
		"a proxy with a key":     {http.Header{"Via": {"1.1 proxy"}, "Authorization": {"Bearer " + ownersKey}}, "", "holder"},
		"another host name":      {http.Header{"Host": {"evil.test"}}, "", ""},
	} {
		for variant, x := range map[string]struct {
			dial func() (net.Conn, error)
			want string
		}{
			"socket": {func() (net.Conn, error) { return net.Dial("unix", filepath.Join(dir, ownerSocket)) }, c.local},
			"TCP":    {func() (net.Conn, error) { return net.Dial("tcp", tcp) }, c.over},
		} {
			status, body := requestOver(t, x.dial, c.header)
			if x.want == "" && status < 400 || x.want != "" && (status != 200 || body != x.want) {
				t.Errorf("%s over %s: %d %s, want %q", name, variant, status, body, x.want)
			}
		}
	}
}

// TestSocketRejectsOtherUsers verifies that a process of another user is rejected with any
// credential, although the socket's mode lets the process connect. Control: the same requests
// from the server's own user are served.
func TestSocketRejectsOtherUsers(t *testing.T) {
	dir := testenv.OpenDir(t)
	serveOwner(t, dir)
	file := filepath.Join(dir, ownerSocket)
	dialAs := func(uid int) func() (net.Conn, error) {
		return func() (c net.Conn, err error) {
			err = testenv.RunAsUser(t, uid, func() (err error) { c, err = net.Dial("unix", file); return err })
			return c, err
		}
	}
	if c, err := dialAs(testenv.OtherUser)(); err == nil {
		c.Close()
		t.Error("the socket's mode lets another user connect")
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]http.Header{"no credential": {}, "a key": {"Authorization": {"Bearer " + ownersKey}}} {
		if status, body := requestOver(t, dialAs(testenv.OtherUser), header); status != 403 || !strings.Contains(body, "only for programs of the user who runs the server") {
			t.Errorf("another user with %s: %d %s", name, status, body)
		}
		if status, body := requestOver(t, dialAs(0), header); status != 200 {
			t.Errorf("the control with %s: %d %s", name, status, body)
		}
	}
}

// TestSocketSharesLimits verifies that requests over the socket and requests over TCP count
// towards the same limit if they use the same key.
func TestSocketSharesLimits(t *testing.T) {
	ring := httpapi.NewKeyring(oneKey{})
	ring.Owner = func(ctx context.Context) (brig.Actor, error) {
		return oneKey{}.KeyActor(ctx, sha256.Sum256([]byte(ownersKey)))
	}
	begun, end := make(chan bool, 1), make(chan bool)
	log := slog.New(slog.DiscardHandler)
	front := httpapi.NewLimiter(httpapi.Limits{Open: 1})
	srv := httpapi.NewServer(front.Handler(httpapi.Wrap(log, nil, httpapi.Auth(ring, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			begun <- true
			<-end
		}
	})))), log)
	dir := t.TempDir()
	addr := serveTCPAndSocket(t, srv, dir)
	socket := func() (net.Conn, error) { return net.Dial("unix", filepath.Join(dir, ownerSocket)) }
	tcp := func() (net.Conn, error) { return net.Dial("tcp", addr) }
	key := http.Header{"Authorization": {"Bearer " + ownersKey}}
	waited := make(chan int)
	go func() {
		status, _ := requestOver(t, socket, http.Header{"X-Wait": {"1"}})
		waited <- status
	}()
	<-begun
	for variant, got := range map[string]func() (int, string){
		"socket": func() (int, string) { return requestOver(t, socket, http.Header{}) },
		"TCP":    func() (int, string) { return requestOver(t, tcp, key) },
	} {
		if status, body := got(); status != http.StatusTooManyRequests {
			t.Errorf("a second request over %s: %d %s", variant, status, body)
		}
	}
	close(end)
	if status := <-waited; status != http.StatusOK {
		t.Errorf("the first request: %d", status)
	}
	if status, body := requestOver(t, tcp, key); status != http.StatusOK {
		t.Errorf("the control: %d %s", status, body)
	}
}
