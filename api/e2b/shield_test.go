package e2b_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// personKeys also accepts tokens of an identity provider.
type personKeys struct{ keys }

func (personKeys) AcceptsToken(token string) bool {
	return brig.TokenRule{Issuer: "https://idp.test", Audiences: []string{"brig"}}.Accepts(token)
}

// A server in a sandbox receives no credential that Brig accepts, whether the request selects
// the port by host or by headers, and also in an upgrade request. Headers for the program
// itself are forwarded.
func TestPortsReceiveNoCredentials(t *testing.T) {
	enc := base64.RawURLEncoding.EncodeToString
	token := enc([]byte(`{"alg":"ES256"}`)) + "." + enc([]byte(`{"iss":"https://idp.test","aud":"brig"}`)) + "." + enc([]byte("x"))
	brigKey := "brig_" + strings.Repeat("a", 52)
	e2bKey := "e2b_" + strings.Repeat("0b", 20)
	access := "k" + strings.Repeat("c", 26) + "." + strings.Repeat("0d", 32)
	sent := http.Header{
		"Authorization":            {"Bearer " + token},
		"X-Api-Key":                {e2bKey},
		"X-Access-Token":           {access},
		"Proxy-Authorization":      {"Bearer " + brigKey},
		"Cookie":                   {"brig_session=brig_session_x; own=1; t=" + token},
		"Sec-Websocket-Protocol":   {"own.v1, " + brigKey},
		"E2b-Traffic-Access-Token": {access},
		"X-Own":                    {"mine"},
	}
	secrets := []string{token, brigKey, e2bKey, access, "brig_session"}
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintln(w, r.RequestURI)
			_ = r.Header.Write(w)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		fmt.Fprintln(rw, r.RequestURI)
		_ = r.Header.Write(rw)
		_ = rw.Flush()
	}))
	t.Cleanup(echo.Close)
	seen := func(srv *httptest.Server, head string) string {
		t.Helper()
		conn, err := net.Dial("tcp", addr(srv))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET /a?own=1&token=%s&access_token=%s HTTP/1.1\r\n%s\r\n", brigKey, token, head)
		_ = sent.Write(conn)
		fmt.Fprint(conn, "\r\n")
		var all strings.Builder
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "X-Own:") {
				return all.String()
			}
		}
		t.Fatalf("the guest's own header is missing: %s", all.String())
		return ""
	}
	start := func(change ...func(*e2b.Options)) *httptest.Server {
		s, _, srv := serve(t, change...)
		createSandbox(t, srv.URL, `{"templateID":"base"}`)
		s.listen(8080, addr(echo))
		return srv
	}
	srv := start(func(o *e2b.Options) { o.Keys = personKeys{} })
	byHost := "Host: 8080-sb1.box.test\r\nConnection: close"
	byHeaders := "Host: localhost\r\nE2b-Sandbox-Id: sb1\r\nE2b-Sandbox-Port: 8080\r\nConnection: close"
	upgrade := "Host: 8080-sb1.box.test\r\nConnection: Upgrade\r\nUpgrade: websocket"
	for name, head := range map[string]string{"by its host": byHost, "by headers": byHeaders, "upgraded": upgrade} {
		got := seen(srv, head)
		for _, s := range secrets {
			if strings.Contains(got, s) {
				t.Errorf("%s: the guest has %s: %s", name, s, got)
			}
		}
		for _, own := range []string{"/a?own=1\n", "own=1", "own.v1", "X-Own: mine"} {
			if !strings.Contains(got, own) {
				t.Errorf("%s: the guest misses %q: %s", name, own, got)
			}
		}
	}
	// Control: without an identity provider, the server does not treat the token as a
	// credential, so the guest receives it.
	if got := seen(start(), byHost); !strings.Contains(got, "Bearer "+token) {
		t.Errorf("the control: %s", got)
	}
}
