package e2b_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// token1 is the token of sb1 with the seed of these tests.
const token1 = "825fb678352d1a39cf8a27438f7c3680bb742c69d8de3baca13cfef8f17fdeb7"

// createSandbox creates a sandbox through the API and returns the response.
func createSandbox(t testing.TB, url, body string) string {
	t.Helper()
	resp, got := doRequest(t, http.MethodPost, url+"/v2/sandboxes", body)
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("create: %d %s", resp.StatusCode, got)
	}
	return got
}

// app starts the HTTP server that represents a server in a sandbox.
func app(t testing.TB) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Set-Cookie", "a=b")
		fmt.Fprintf(w, "%s %s host=%s body=%s\n", r.Method, r.RequestURI, r.Host, body)
		for _, k := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Custom", "Connection", "User-Agent", "X-Access-Token"} {
			if v := r.Header.Get(k); v != "" {
				fmt.Fprintf(w, "%s: %s\n", k, v)
			}
		}
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/break", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "so far")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			t.Errorf("upgrade is %q", r.Header.Get("Upgrade"))
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func addr(srv *httptest.Server) string { return srv.Listener.Addr().String() }

func TestEnvd(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base","envVars":{"A":"1","E2B_SANDBOX":"no"}}`)
	native := s.add("acme", brig.Spec{})
	const want = "envd POST /process.Process/Start?a=b for acme 2 in sb1\nA=1\nE2B_SANDBOX=true\nE2B_SANDBOX_ID=sb1\nE2B_TEMPLATE_ID=base\nPIP_BREAK_SYSTEM_PACKAGES=1\n"
	for _, headers := range [][]string{
		{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49983"},
		{"Host", "49983-sb1.box.test:8443"},
		{"Host", "49983-sb1-6532622b.BOX.test"},
		{"Host", "49983-sb1.other.example", "E2b-Sandbox-Id", "sb9", "E2b-Sandbox-Port", "1"},
		{"Host", "sandbox.box.test", "E2b-Sandbox-Id", "sb1-6532622b", "E2b-Sandbox-Port", "49983"},
	} {
		if resp, got := doRequest(t, http.MethodPost, srv.URL+"/process.Process/Start?a=b", "{}", append(headers, "X-API-KEY", "", "X-Access-Token", token1)...); got != want || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%v: %d %q", headers, resp.StatusCode, got)
		}
	}
	for _, c := range []struct {
		status  int
		body    string
		headers []string
	}{
		{401, `no token`, []string{"E2b-Sandbox-Id", "sb9", "E2b-Sandbox-Port", "49983"}},
		{401, `no token`, []string{"Host", "49983-" + string(native.ID) + ".box.test"}},
		{401, `no token`, []string{"E2b-Sandbox-Id", "sb9", "E2b-Sandbox-Port", "49983", "X-Access-Token", token1}},
		{502, `<h1>The sandbox was not found</h1>`, []string{"Host", "80-sb9.box.test", "User-Agent", "Mozilla/5.0", "Accept", "text/html,*/*"}},
		{400, `{"code":400,"message":"Invalid sandbox port"}`, []string{"E2b-Sandbox-Id", "sb1"}},
		{400, `{"code":400,"message":"Invalid sandbox port"}`, []string{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "70000"}},
		{400, `{"code":400,"message":"Invalid sandbox port"}`, []string{"Host", "0-sb1.box.test"}},
		{400, `{"code":400,"message":"Invalid sandbox ID"}`, []string{"E2b-Sandbox-Id", "../sb1", "E2b-Sandbox-Port", "49983"}},
		{400, `{"code":400,"message":"Invalid sandbox ID"}`, []string{"Host", "49983-a_b.box.test"}},
		{421, `"code":421`, []string{"Host", "evil.example", "E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49983"}},
		{403, `"code":403`, []string{"Host", "49983-sb1.box.test", "Origin", "http://8080-sb1.box.test"}},
		{401, `invalid API key`, []string{"Host", "box.test", "X-API-KEY", "x"}},
	} {
		resp, got := doRequest(t, http.MethodGet, srv.URL+"/teams", "", c.headers...)
		if resp.StatusCode != c.status || !strings.Contains(got, c.body) {
			t.Errorf("%v: %d %s", c.headers, resp.StatusCode, got)
		}
	}
	// A client with the sandbox's token gets a response that the sandbox has ended.
	var ended struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal([]byte(createSandbox(t, srv.URL, `{"templateID":"base"}`)), &ended); err != nil {
		t.Fatal(err)
	}
	s.end(ended.SandboxID)
	if resp, got := doRequest(t, http.MethodGet, srv.URL+"/envs", "", "E2b-Sandbox-Id", ended.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", ended.EnvdAccessToken); resp.StatusCode != 502 || !strings.Contains(got, "The sandbox was not found") {
		t.Errorf("of a sandbox that ended, with its token: %d %s", resp.StatusCode, got)
	}
	if resp, got := doRequest(t, http.MethodGet, srv.URL+"/envs", "", "E2b-Sandbox-Id", ended.SandboxID, "E2b-Sandbox-Port", "49983"); resp.StatusCode != 401 {
		t.Errorf("of a sandbox that ended, without: %d %s", resp.StatusCode, got)
	}
	// The control plane does not respond under a sandbox's host name.
	if _, got := doRequest(t, http.MethodGet, srv.URL+"/v2/sandboxes", "", "Host", "49983-sb1.box.test", "X-Access-Token", token1); !strings.HasPrefix(got, "envd GET") {
		t.Errorf("a sandbox's host answered %s", got)
	}
	if resp, _ := doRequest(t, http.MethodPost, srv.URL+"/init", "{}", "Host", "49983-sb1.box.test"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/init: %d", resp.StatusCode)
	}
	if _, got := doRequest(t, http.MethodGet, srv.URL+"/abort", "", "Host", "49983-sb1.box.test", "X-Access-Token", token1); !strings.HasSuffix(got, "broken off") {
		t.Errorf("a broken stream looks whole: %q", got)
	}
	s.end("sb1")
	if resp, got := doRequest(t, http.MethodGet, srv.URL+"/health", "", "Host", "49983-sb1.box.test"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("health of a sandbox that ended: %d %s", resp.StatusCode, got)
	}
}

func TestForward(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	inner := app(t)
	s.listen(8080, addr(inner))
	resp, got := doRequest(t, http.MethodPost, srv.URL+"/a%2Fb?q=1;2&%zz", "hello", "Host", "8080-sb1.box.test:8443", "X-Custom", "1", "User-Agent", "",
		"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "8080", "E2b-Traffic-Access-Token", "t", "X-Forwarded-Host", "liar")
	const want = "POST /a%2Fb?q=1;2&%zz host=8080-sb1.box.test:8443 body=hello\nX-Forwarded-Host: 8080-sb1.box.test:8443\nX-Forwarded-Proto: http\nX-Custom: 1\nConnection: close\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	h := resp.Header
	if v := h.Values("Cache-Control"); len(v) != 1 || v[0] != "max-age=60" || h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Content-Type-Options") != "" || h.Get("Set-Cookie") != "a=b" {
		t.Errorf("headers %v", h)
	}
	// A page that a sandbox serves may call the ports of that sandbox.
	if resp, _ := doRequest(t, http.MethodGet, srv.URL+"/", "", "Host", "8080-sb1.box.test:8443", "Origin", "http://8080-sb1.box.test:8443"); resp.StatusCode != http.StatusOK {
		t.Errorf("its own page: %d", resp.StatusCode)
	}
	before := s.dialCount()
	resp, got = doRequest(t, http.MethodGet, srv.URL+"/", "", "E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "9")
	if resp.StatusCode != http.StatusBadGateway || got != `{"sandboxId":"sb1","message":"The sandbox is running but port is not open","port":9,"code":502}`+"\n" || s.dialCount()-before != 5 {
		t.Errorf("closed port: %d %s after %d attempts", resp.StatusCode, got, s.dialCount()-before)
	}
	// The user agent identifies a browser. Requests of a browser's scripts
	// receive JSON instead of a page.
	const person = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/91.0.4472.124 Safari/537.36"
	for _, c := range []struct {
		host, want string
		headers    []string
	}{
		{"9-sb1", "<title>Closed Port Error</title>", []string{"Accept", "*/*", "Sec-Fetch-Mode", "cors"}}, // Node's fetch
		{"80-sb9", "<title>Sandbox Not Found</title>", nil},
		{"80-sb9", "<title>Sandbox Not Found</title>", []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", "none"}},
		{"80-sb9", `"sandboxId":"sb9"`, []string{"Accept", "*/*", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Site", "same-origin"}},
		{"80-sb9", `"sandboxId":"sb9"`, []string{"Accept", "application/json"}},
	} {
		headers := append([]string{"Host", c.host + ".box.test", "User-Agent", person}, c.headers...)
		if resp, got := doRequest(t, http.MethodGet, srv.URL+"/", "", headers...); resp.StatusCode != http.StatusBadGateway || !strings.Contains(got, c.want) {
			t.Errorf("%s, %q: %d %s", c.host, c.headers, resp.StatusCode, got)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { s.listen(9, addr(inner)) })
	if resp, _ = doRequest(t, http.MethodGet, srv.URL+"/", "", "E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "9"); resp.StatusCode != http.StatusOK {
		t.Errorf("a port that opens late: %d", resp.StatusCode)
	}
	if _, got = doRequest(t, http.MethodGet, srv.URL+"/break", "", "Host", "8080-sb1.box.test"); got != "so far\n\nbroken off" {
		t.Errorf("an answer that is cut short looks whole: %q", got)
	}
}

// A server in a sandbox receives no sandbox token in any header, neither its own nor that of
// another sandbox. A token of the application in the same header is forwarded. It opens the
// ports of a closed sandbox no less than a missing header.
func TestForwardRemovesTokens(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	s.listen(8080, addr(app(t)))
	for token, want := range map[string]bool{token1: false, "theirs": true, "k1." + token1: false, token1[1:] + "0": true} {
		resp, got := doRequest(t, http.MethodGet, srv.URL+"/", "", "Host", "8080-sb1.box.test:8443", "X-Access-Token", token)
		if resp.StatusCode != http.StatusOK || strings.Contains(got, token) != want {
			t.Errorf("with %s: %d %s", token, resp.StatusCode, got)
		}
	}
}

// keyed is the actor of every key that keyedKeys accepts.
var keyed = brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Key: "k" + strings.Repeat("a", 26)}

// keyedKeys accepts every key.
type keyedKeys struct{}

func (keyedKeys) KeyActor(context.Context, [32]byte) (brig.Actor, error) { return keyed, nil }

// The application in a closed sandbox may use the header X-Access-Token itself. The traffic
// token opens the port, and the application receives its own token, even if the client also
// sends Brig's token in the same header. Control: the application's token alone does not open
// the port.
func TestPrivatePortsForwardApplicationToken(t *testing.T) {
	s, _, srv := serve(t, func(o *e2b.Options) {
		o.Keys = keyedKeys{}
		o.KeyActor = func(context.Context, string) (brig.Actor, error) { return keyed, nil }
	})
	answer := createSandbox(t, srv.URL, `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	field := func(name string) string {
		_, rest, _ := strings.Cut(answer, `"`+name+`":"`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	traffic, access := field("trafficAccessToken"), field("envdAccessToken")
	s.listen(8080, addr(app(t)))
	for _, c := range []struct {
		name   string
		sent   http.Header
		status int
	}{
		{"its own token", http.Header{"X-Access-Token": {"mine"}, "E2b-Traffic-Access-Token": {traffic}}, 200},
		{"its own token first", http.Header{"X-Access-Token": {"mine", access}, "E2b-Traffic-Access-Token": {traffic}}, 200},
		{"its own token second", http.Header{"X-Access-Token": {access, "mine"}, "E2b-Traffic-Access-Token": {traffic}}, 200},
		{"both in one line", http.Header{"X-Access-Token": {access + ", mine"}, "E2b-Traffic-Access-Token": {traffic}}, 200},
		{"a second traffic token", http.Header{"X-Access-Token": {"mine"}, "E2b-Traffic-Access-Token": {"wrong", traffic}}, 200},
		{"no traffic token", http.Header{"X-Access-Token": {"mine"}}, 403},
		{"the access token alone", http.Header{"X-Access-Token": {access, "mine"}}, 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host, req.Header = "8080-sb1.box.test:8443", c.sent
		resp, got := send(t, req)
		if resp.StatusCode != c.status || strings.Contains(got, "X-Access-Token: mine") != (c.status == 200) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, got)
		}
		if strings.Contains(got, traffic) || strings.Contains(got, access) {
			t.Errorf("%s: the application has a token of Brig: %s", c.name, got)
		}
	}
}

func TestForwardStreams(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	s.listen(8080, addr(app(t)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/stream", nil)
	req.Host = "8080-sb1.box.test"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "first\n" {
		t.Errorf("%q %v", line, err)
	}

	conn, err := net.Dial("tcp", addr(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: 8080-sb1.box.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	rd := bufio.NewReader(conn)
	up, err := http.ReadResponse(rd, nil)
	if err != nil || up.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", up, err)
	}
	fmt.Fprint(conn, "ping\n")
	if line, err := rd.ReadString('\n'); line != "ping\n" {
		t.Errorf("echo: %q %v", line, err)
	}
}

func TestPrivatePortsRequireToken(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	answer := createSandbox(t, srv.URL, `{"templateID":"base","network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}","httpsPorts":[8443]}}`)
	_, rest, _ := strings.Cut(answer, `"trafficAccessToken":"`)
	traffic, _, _ := strings.Cut(rest, `"`)
	s.listen(8080, addr(app(t)))
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "tls %s", r.Host)
	}))
	defer secure.Close()
	s.listen(8443, addr(secure))
	for _, c := range []struct {
		host, token, want string
		status            int
	}{
		{"8080-sb2.box.test", "", "'e2b-traffic-access-token' is missing", 403},
		{"8080-sb2.box.test", "x", "missing or wrong", 403},
		{"49999-sb2.box.test", "", "missing", 403},
		{"49999-sb2.box.test", traffic, "OK", 200},
		{"8080-sb2.box.test", traffic, "GET /health host=localhost:8080", 200},
		{"8443-sb2.box.test", traffic, "tls localhost:8443", 200},
		{"49983-sb2.box.test", "", "", 204},
		{"8080-sb1.box.test", "", "host=8080-sb1.box.test", 200},
	} {
		resp, got := doRequest(t, http.MethodGet, srv.URL+"/health", "", "Host", c.host, "E2b-Traffic-Access-Token", c.token)
		if resp.StatusCode != c.status || !strings.Contains(got, c.want) || strings.Contains(got, traffic) {
			t.Errorf("%s with %q: %d %s", c.host, c.token, resp.StatusCode, got)
		}
	}
}

func TestSignedURLs(t *testing.T) {
	s, d, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	query := func(op, exp string) string {
		return "/files?path=hello.txt&username=user" + exp + "&signature=" + url.QueryEscape(e2b.Sign("hello.txt:"+op+":user:"+token1+strings.Replace(exp, "&signature_expiration=", ":", 1)))
	}
	for _, c := range []struct {
		method, url, want string
	}{
		{http.MethodGet, query("read", ""), "in sb1"},
		{http.MethodPost, query("write", "&signature_expiration=99999999999"), "in sb1"},
		{http.MethodPost, query("read", ""), `{"code":401,"message":"invalid signature"}`},
		{http.MethodGet, "/files?path=a&signature=v1_x", `{"code":401,"message":"invalid signature"}`},
		{http.MethodGet, "/files?path=a", "nothing at this path"},
	} {
		if _, got := doRequest(t, c.method, srv.URL+c.url, "", "X-API-KEY", ""); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s", c.method, c.url, got)
		}
	}
	// Another process has not cached the sandbox and looks it up through Live.
	for _, live := range []func() []string{nil, func() []string { return []string{"sb2", "sb1"} }} {
		o := d.Options
		o.Live = live
		other := httptest.NewServer(e2b.New(o))
		_, got := doRequest(t, http.MethodGet, other.URL+query("read", ""), "", "X-API-KEY", "")
		if strings.Contains(got, "in sb1") != (live != nil) {
			t.Errorf("another process: %s", got)
		}
		other.Close()
	}
	s.end("sb1")
	if resp, got := doRequest(t, http.MethodGet, srv.URL+query("read", ""), "", "X-API-KEY", ""); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("of a sandbox that ended: %d %s", resp.StatusCode, got)
	}
	if got := e2b.Sign("hello.txt:read:user:0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("E2B's vector: %s", got)
	}
}

// A server in a sandbox receives no cookie, token or key of this server and cannot set this
// server's cookies, regardless of the route to the sandbox.
func TestForwardIsolatesConsole(t *testing.T) {
	s, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{"brig_session=planted; Domain=box.test", "__Host-brig_session=planted", "=brig_session=planted", "own=2"}
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		_ = r.Header.Write(w)
	}))
	t.Cleanup(guest.Close)
	s.listen(8080, addr(guest))
	key := "brig_" + strings.Repeat("a", 52)
	headers := []string{"Cookie", "a=1; brig_session=secret; __Host-brig_login=secret", "X-Brig-CSRF", "secret", "Authorization", "Bearer " + key, "X-Api-Key", "e2b_secret"}
	for name, way := range map[string][]string{
		"by host": {"Host", "8080-sb1.box.test:8443"}, "by headers": {"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "8080"},
	} {
		resp, got := doRequest(t, http.MethodGet, srv.URL+"/", "", append(way, headers...)...)
		if resp.StatusCode != http.StatusOK || strings.Contains(got, "secret") || strings.Contains(got, key) || !strings.Contains(got, "Cookie: a=1") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
		if set := resp.Header["Set-Cookie"]; len(set) != 1 || set[0] != "own=2" || resp.Header.Get("Clear-Site-Data") != "" {
			t.Errorf("%s: it sets %q", name, resp.Header)
		}
	}
	// Control: a guest to which the browser connects directly receives all
	// credentials.
	_, got := doRequest(t, http.MethodGet, guest.URL+"/", "", headers...)
	if strings.Count(got, "secret") < 3 || !strings.Contains(got, key) {
		t.Errorf("without the server between the guest gets %s", got)
	}
}

// A client that has only the ID of a sandbox cannot list, create, restart or remove contexts of
// the interpreter, and neither can a page of another site. Clients must send the traffic token.
func TestInterpreterRequiresToken(t *testing.T) {
	s, _, srv := serve(t)
	answer := createSandbox(t, srv.URL, `{"templateID":"base"}`)
	tokenIn := func(answer string) string {
		_, rest, _ := strings.Cut(answer, `"trafficAccessToken":"`)
		token, _, _ := strings.Cut(rest, `"`)
		return token
	}
	traffic, others := tokenIn(answer), tokenIn(createSandbox(t, srv.URL, `{"templateID":"base"}`))
	if len(traffic) < 40 || len(others) < 40 || traffic == others {
		t.Fatalf("a client receives %s", answer)
	}
	to := []string{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49999"}
	contexts := func() int { all, _ := s.Contexts(t.Context(), "sb1"); return len(all) }
	for _, c := range []struct {
		method, path, body string
		good               int
	}{
		{"GET", "/contexts", "", 200}, {"POST", "/contexts", "{}", 200}, {"POST", "/contexts", "", 200},
		{"POST", "/contexts/cx1/restart", "", 200}, {"DELETE", "/contexts/cx1", "", 200}, {"GET", "/nothing", "", 404},
	} {
		what, before := c.method+" "+c.path, contexts()
		for name, headers := range map[string][]string{
			"nothing": nil, "another sandbox's token": {"E2b-Traffic-Access-Token", others}, "a wrong token": {"X-Access-Token", token1[1:] + "0"},
			"a wrong token beside a good one": {"X-Access-Token", others, "E2b-Traffic-Access-Token", traffic},
		} {
			resp, got := doRequest(t, c.method, srv.URL+c.path, c.body, append(headers, to...)...)
			if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s with %s: %d %s %v", what, name, resp.StatusCode, got, resp.Header)
			}
		}
		if n := contexts(); n != before {
			t.Errorf("%s: there were %d contexts and are %d", what, before, n)
		}
		// Control: the same request, as real clients send it.
		resp, got := doRequest(t, c.method, srv.URL+c.path, c.body, append([]string{"E2b-Traffic-Access-Token", traffic, "Content-Type", "application/json"}, to...)...)
		if resp.StatusCode != c.good {
			t.Errorf("%s with the traffic token: %d %s", what, resp.StatusCode, got)
		}
	}
	// The traffic token does not permit running code, and the server rejects a body that an
	// HTML form can send.
	if resp, got := doRequest(t, "POST", srv.URL+"/execute", `{"code":"1"}`, append([]string{"E2b-Traffic-Access-Token", traffic, "Content-Type", "application/json"}, to...)...); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("code with the traffic token: %d %s", resp.StatusCode, got)
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain; x=application/json"} {
		resp, got := doRequest(t, "POST", srv.URL+"/contexts", "{}", append([]string{"E2b-Traffic-Access-Token", traffic, "Content-Type", kind}, to...)...)
		if resp.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("a context as %s: %d %s", kind, resp.StatusCode, got)
		}
	}
	resp, got := doRequest(t, "OPTIONS", srv.URL+"/contexts", "", append([]string{"Origin", "https://evil.test", "Access-Control-Request-Method", "POST"}, to...)...)
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page asks: %d %s", resp.StatusCode, got)
	}
}

// Unsecured opens the interpreter only of sandboxes that were created without the option
// secure. Control: without Unsecured, no interpreter is open. The server always rejects a wrong
// token, and a body that a page of another site can send.
func TestUnsecuredInterpreter(t *testing.T) {
	for _, unsecured := range []bool{false, true} {
		for body, open := range map[string]bool{
			`{"templateID":"base"}`: true, `{"templateID":"base","secure":false}`: true, `{"templateID":"base","secure":true}`: false,
		} {
			_, d, srv := serve(t)
			d.Unsecured = unsecured
			createSandbox(t, srv.URL, body)
			want := http.StatusUnauthorized
			if unsecured && open {
				want = http.StatusOK
			}
			to := []string{"E2b-Sandbox-Id", "sb1", "E2b-Sandbox-Port", "49999"}
			json := append([]string{"Content-Type", "application/json"}, to...)
			if resp, got := doRequest(t, "POST", srv.URL+"/execute", `{"code":"1"}`, json...); resp.StatusCode != want {
				t.Errorf("unsecured %v, %s: %d %s", unsecured, body, resp.StatusCode, got)
			}
			if resp, got := doRequest(t, "GET", srv.URL+"/contexts", "", to...); resp.StatusCode != want {
				t.Errorf("unsecured %v, contexts of %s: %d %s", unsecured, body, resp.StatusCode, got)
			}
			if resp, got := doRequest(t, "POST", srv.URL+"/execute", `{"code":"1"}`, append([]string{"X-Access-Token", "wrong"}, json...)...); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("unsecured %v, %s with a wrong token: %d %s", unsecured, body, resp.StatusCode, got)
			}
			if want != http.StatusOK {
				continue
			}
			if resp, got := doRequest(t, "POST", srv.URL+"/execute", `{"code":"1"}`, append([]string{"Content-Type", "text/plain"}, to...)...); resp.StatusCode != http.StatusUnsupportedMediaType {
				t.Errorf("a form: %d %s", resp.StatusCode, got)
			}
		}
	}
}
