package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd"
)

// rawServer is a server in a sandbox that echoes the raw request. It tries to set cookies of the
// console, first in an informational response.
const rawServer = `
import socket, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000)); s.listen(64)
def serve(c):
    b = b""
    while b"\r\n\r\n" not in b:
        d = c.recv(65536)
        if not d: return
        b += d
    set = b"Set-Cookie: brig_session=%s\r\nSet-Cookie: own=%s; Domain=e2b.test\r\n"
    c.sendall(b"HTTP/1.1 103 Early Hints\r\n" + set % (b"early", b"early") + b"\r\n")
    c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n" % len(b) + set % (b"late", b"late") + b"\r\n" + b)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// credentialLab is a server with two sandboxes that run rawServer, one of them closed, and every
// kind of credential that the server accepts.
type credentialLab struct {
	*fileRightsLab
	closed  struct{ SandboxID, EnvdAccessToken, TrafficAccessToken string }
	secrets map[string]string
}

func newCredentialLab(t *testing.T) *credentialLab {
	l := &credentialLab{fileRightsLab: newRightsLab(t)}
	e2bKey := strings.TrimPrefix(l.env[0], "E2B_API_KEY=")
	body, _, err := l.send(t, "POST", "/sandboxes", `{"templateID":"base","timeout":3600,"network":{"allowPublicTraffic":false}}`, "X-Api-Key", e2bKey)
	if err != nil || json.Unmarshal([]byte(body), &l.closed) != nil || l.closed.TrafficAccessToken == "" {
		t.Fatalf("%s %v", body, err)
	}
	for _, id := range []string{l.id, l.closed.SandboxID} {
		if _, err := l.c.Processes(id).Start(t.Context(), brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-c", rawServer}}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a server in the sandbox", func() bool {
			conn, err := l.c.Dial(t.Context(), id, 8000)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	g, err := l.c.CreateGrant(t.Context(), brig.GrantSpec{Role: brig.Member, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	session, _, _ := strings.Cut(l.session.Value, ".")
	l.secrets = map[string]string{
		"the operator's key": l.server.key, "a key for E2B's clients": e2bKey, "a grant": g.Secret, "a session": session,
		"the sandbox's access token": l.token, "the other sandbox's access token": l.closed.EnvdAccessToken,
		"the other sandbox's traffic token": l.closed.TrafficAccessToken,
	}
	return l
}

// requestWith returns a request that contains a secret in every possible place, next to values of
// the application, and all encodings of the secret in the request.
func requestWith(secret, signature string) (req *http.Request, forms []string) {
	var escaped strings.Builder
	for _, c := range []byte(secret) {
		fmt.Fprintf(&escaped, "%%%02x", c)
	}
	in64, inURL := base64.StdEncoding.EncodeToString([]byte("x:"+secret)), base64.RawURLEncoding.EncodeToString([]byte(secret))
	query := "own=1&token=" + secret + "&t=" + escaped.String() + "&own=2"
	if signature != "" {
		query += "&signature=" + url.QueryEscape(signature)
	}
	req = &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/own/" + secret + "/end", RawQuery: query}, Header: http.Header{
		"Authorization":            {"Bearer own", "Bearer " + secret, "Basic " + in64},
		"X-Api-Key":                {secret, "own"},
		"X-Access-Token":           {"own", secret, secret + ", own-too"},
		"E2b-Traffic-Access-Token": {secret},
		"X-Anything":               {"own", "a=" + secret, in64},
		"Cookie":                   {"own=1; brig_session=" + secret + ".0; t=" + secret, "u=" + escaped.String() + "; own=2"},
		"Sec-Websocket-Protocol":   {"own.v1, base64url.bearer.authorization.k8s.io." + inURL + ", " + secret},
		"Referer":                  {"http://own.test/?t=" + escaped.String()},
		"X-Brig-Csrf":              {"csrf-of-the-session"},
	}}
	return req, []string{secret, escaped.String(), in64, inURL, "brig_session=", "csrf-of-the-session"}
}

// ownParts are the parts of a requestWith request that belong to the application.
var ownParts = []string{
	"GET /own/", "/end?own=1", "own=2", "Bearer own\r\n", "X-Api-Key: own\r\n", "X-Access-Token: own\r\n", "X-Access-Token: own-too\r\n",
	"X-Anything: own\r\n", "Cookie: own=1\r\n", "Cookie: own=2\r\n", "Sec-Websocket-Protocol: own.v1\r\n",
}

// exchange sends a request over a connection, and returns the body of the response and all
// cookies that were set.
func exchange(conn net.Conn, req *http.Request) (body string, set []string, err error) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * promptTimeout))
	if err := req.Write(conn); err != nil {
		return "", nil, err
	}
	r := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return "", nil, err
		}
		set = append(set, resp.Header["Set-Cookie"]...)
		if resp.StatusCode >= 200 {
			b, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, b)
			}
			return string(b), set, err
		}
	}
}

// startForward starts brig sandbox forward and returns its address.
func (l *credentialLab) startForward(t *testing.T) string {
	t.Helper()
	line := newTalker(t, exec.CommandContext(t.Context(), bin(t, "brig"), "--data-dir", l.dir, "sandbox", "forward", l.id, "0:8000")).receive()
	addr, _, _ := strings.Cut(strings.TrimPrefix(line, "http://"), " ")
	if addr == "" {
		t.Fatalf("%q", line)
	}
	return addr
}

// viaMCP sends a request with the MCP tool, which supports one value per header, and returns the
// body of the response.
func (l *credentialLab) viaMCP(t *testing.T, req *http.Request) (string, error) {
	t.Helper()
	const version = "2026-07-28"
	headers := map[string]string{}
	for name, values := range req.Header {
		separator := ", "
		if name == "Cookie" {
			separator = "; "
		}
		headers[name] = strings.Join(values, separator)
	}
	args, err := json.Marshal(map[string]any{"sandbox": l.id, "port": 8000, "path": req.URL.RequestURI(), "headers": headers})
	if err != nil {
		return "", err
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}},"name":"http_request","arguments":%s}}`, version, args)
	got, _, err := l.send(t, "POST", "/mcp", body, "Authorization", "Bearer "+l.server.key, "Content-Type", "application/json", "Accept", "application/json, text/event-stream",
		"Mcp-Protocol-Version", version, "Mcp-Method", "tools/call", "Mcp-Name", "http_request")
	if err != nil {
		return "", err
	}
	_, data, _ := strings.Cut(got, "data: ")
	var out struct {
		Result struct {
			StructuredContent struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(data), &out); err != nil || out.Result.StructuredContent.Text == "" {
		return "", fmt.Errorf("%w: %s", err, got)
	}
	return out.Result.StructuredContent.Text, nil
}

// TestGuestReceivesNoCredentials verifies that a server in a sandbox never receives a credential
// of Brig, regardless of the route to its port, the place in the request and the encoding. The
// application's own values still arrive. The control is the same request over a raw connection,
// which Brig does not inspect and which delivers the credentials.
//
//suite:part hostile
func TestGuestReceivesNoCredentials(t *testing.T) {
	l := newCredentialLab(t)
	ctx := t.Context()
	here := strings.TrimPrefix(l.url, "http://")
	dial := func(addr string) net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	local := l.startForward(t)
	ways := map[string]func(*http.Request) (string, []string, error){
		"by its host": func(r *http.Request) (string, []string, error) {
			r.Host = "8000-" + l.id + ".e2b.test"
			return exchange(dial(here), r)
		},
		"by headers": func(r *http.Request) (string, []string, error) {
			r.Host = here
			r.Header["E2b-Sandbox-Id"], r.Header["E2b-Sandbox-Port"] = []string{l.id}, []string{"8000"}
			return exchange(dial(here), r)
		},
		"forwarded": func(r *http.Request) (string, []string, error) {
			r.Host = local
			return exchange(dial(local), r)
		},
		"by MCP": func(r *http.Request) (string, []string, error) {
			got, err := l.viaMCP(t, r)
			return got, []string{"own=early", "own=late"}, err // these cookies do not reach a browser
		},
	}
	signature := envd.Signature("/etc/hostname", "read", "user", l.token, 0)
	for name, secret := range l.secrets {
		for variant, send := range ways {
			req, forms := requestWith(secret, signature)
			got, set, err := send(req)
			if err != nil {
				t.Errorf("%s, %s: %v", name, variant, err)
				continue
			}
			for _, form := range append(forms, "signature") {
				if strings.Contains(got, form) {
					t.Errorf("%s, %s: the guest has %q: %s", name, variant, form, got)
				}
			}
			for _, part := range ownParts {
				if variant != "by MCP" && !strings.Contains(got, part) { // MCP joins the values of a header
					t.Errorf("%s, %s: the application did not receive %q: %s", name, variant, part, got)
				}
			}
			if !slices.Equal(set, []string{"own=early", "own=late"}) {
				t.Errorf("%s, %s: the guest sets %q", name, variant, set)
			}
		}
		conn, err := l.c.Dial(ctx, l.id, 8000)
		if err != nil {
			t.Fatal(err)
		}
		req, forms := requestWith(secret, signature)
		req.Host = "own.test"
		got, set, err := exchange(conn, req)
		for _, part := range append(append(forms, "signature"), ownParts[:4]...) {
			if err != nil || !strings.Contains(got, part) || len(set) != 4 {
				t.Errorf("%s, the control: the guest misses %q: %s, %q, %v", name, part, got, set, err)
			}
		}
	}
	l.checkClosedPort(t, func(r *http.Request) (string, error) {
		r.Host = "8000-" + l.closed.SandboxID + ".e2b.test"
		got, _, err := exchange(dial(here), r)
		return got, err
	})
	l.checkNoCredentialsInside(ctx, t)
}

// checkClosedPort verifies that the application in a closed sandbox can use the header
// X-Access-Token. The control is a request without the traffic token, which is rejected.
func (l *credentialLab) checkClosedPort(t *testing.T, send func(*http.Request) (string, error)) {
	t.Helper()
	get := func(h http.Header) (string, error) {
		return send(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: h})
	}
	traffic := []string{l.closed.TrafficAccessToken}
	for name, tokens := range map[string][]string{
		"its own": {"own"}, "Brig's first": {l.closed.EnvdAccessToken, "own"}, "Brig's second": {"own", l.closed.EnvdAccessToken}, "another sandbox's": {l.token, "own"},
	} {
		got, err := get(http.Header{"X-Access-Token": tokens, "E2b-Traffic-Access-Token": traffic})
		if err != nil || !strings.Contains(got, "X-Access-Token: own\r\n") || strings.Contains(got, traffic[0]) || strings.Contains(got, l.closed.EnvdAccessToken) || strings.Contains(got, l.token) {
			t.Errorf("closed, %s: %v: %s", name, err, got)
		}
		if got, err := get(http.Header{"X-Access-Token": tokens}); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("closed, %s, without the traffic token: %v: %s", name, err, got)
		}
	}
}

// checkNoCredentialsInside verifies that no process in the sandbox has a credential in its
// environment or arguments. The control is a program that passes a credential to itself, which
// the search finds.
func (l *credentialLab) checkNoCredentialsInside(ctx context.Context, t *testing.T) {
	t.Helper()
	all := l.runAs(t, "root", `export OWN=marker-of-the-test; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'; env`)
	for name, secret := range l.secrets {
		if strings.Contains(all, secret) {
			t.Errorf("%s is in the environment of a process: %s", name, all)
		}
	}
	if !strings.Contains(all, "marker-of-the-test") || !strings.Contains(all, "python3") {
		t.Errorf("the control: the environment is %s", all)
	}
}
