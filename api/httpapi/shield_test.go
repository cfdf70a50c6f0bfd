package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// jwt returns an unsigned token with the given claims.
func jwt(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + enc([]byte(claims)) + "." + enc([]byte("a signature"))
}

// shield is the shield of a server with an identity provider.
var shield = httpapi.Shield{Accepts: brig.TokenRule{Issuer: "https://idp.test", Audiences: []string{"brig", "https://api.test"}}.Accepts, Own: func(s string) bool { return s == unbound }}

// unbound is a sandbox token that belongs to no key.
var unbound = strings.Repeat("0c", 32)

func TestShieldRemovesCredentialsFromRequest(t *testing.T) {
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	ours := jwt(`{"iss":"https://idp.test","aud":["x","brig"],"exp":1}`)
	theirs := jwt(`{"iss":"https://idp.test","aud":"app"}`)
	others := jwt(`{"iss":"https://other.test","aud":"brig"}`)
	access := "k" + strings.Repeat("a2", 13) + "." + strings.Repeat("0a", 32)
	narrowed := "k" + strings.Repeat("0f", 10) + "~eyJhIjoxfQ." + strings.Repeat("0a", 32)
	e2bKey := "e2b_" + strings.Repeat("0a", 20)
	for _, c := range []struct{ name, header, value, want string }{
		{"the session", "Cookie", "brig_session=brig_session_x", ""},
		{"the session over https", "Cookie", "a=1; __Host-brig_session=x; b=2", "a=1; b=2"},
		{"the login", "Cookie", "brig_login=x;c=3", "c=3"},
		{"another spelling", "Cookie", ` "BRIG_session"=x; a=1`, "a=1"},
		{"a cookie without a name", "Cookie", "=brig_session=x; a=1", "a=1"},
		{"a key in a cookie", "Cookie", "a=1; t=" + rightKey, "a=1"},
		{"a person's token in a cookie", "Cookie", "id=" + ours + "; a=1", "a=1"},
		{"the guest's own", "Cookie", "session=1; my_brig_session=2", "session=1; my_brig_session=2"},
		{"a token", "X-Brig-Csrf", "x", ""},
		{"a key", "Authorization", "Bearer " + rightKey, ""},
		{"a key of Jupyter's clients", "Authorization", "token " + rightKey, ""},
		{"a key without a scheme", "Authorization", rightKey, ""},
		{"a key of E2B's clients", "X-Api-Key", "e2b_0123", ""},
		{"a key as a password", "Authorization", basic("x:" + rightKey), ""},
		{"a person's token as a password", "Authorization", basic("x:" + ours), ""},
		{"a person's token", "Authorization", "Bearer " + ours, ""},
		{"a person's token as a key", "X-Api-Key", ours, ""},
		{"a person's token elsewhere", "X-Forwarded-Access-Token", ours, ""},
		{"a key elsewhere", "X-Anything", "key=" + e2bKey, ""},
		{"a key in the address before", "Referer", "http://x/api/kernels?token=" + rightKey, ""},
		{"an access token", "X-Access-Token", access, ""},
		{"an access token of a grant", "X-Access-Token", narrowed, ""},
		{"a traffic token", "E2b-Traffic-Access-Token", access, ""},
		{"protocols with a key", "Sec-Websocket-Protocol", "app.v1, bearer." + rightKey, "app.v1"},
		{"protocols with a person's token", "Sec-Websocket-Protocol", ours + ",app.v1", "app.v1"},
		{"the guest's own protocols", "Sec-Websocket-Protocol", "a, b", "a, b"},
		{"the guest's own token", "Authorization", "Bearer abc", "Bearer abc"},
		{"a token of the same provider for the guest", "Authorization", "Bearer " + theirs, "Bearer " + theirs},
		{"a token of another provider", "Authorization", "Bearer " + others, "Bearer " + others},
		{"the guest's own password", "Authorization", basic("ann:pw"), basic("ann:pw")},
		{"the guest's own key", "X-Api-Key", "abc", "abc"},
		{"the guest's own signature", "X-Signature", "user." + strings.Repeat("0a", 32), "user." + strings.Repeat("0a", 32)},
		{"a query of the guest's own", "?", "a=1;b=%zz&signature=v1_x&&c", "a=1;b=%zz&signature=v1_x&&c"},
		{"a key in the query", "?", "a=1&token=" + rightKey + "&b=%2F", "a=1&b=%2F"},
		{"an escaped key in the query", "?", "a=1;token=%62rig" + strings.TrimPrefix(rightKey, "brig"), "a=1"},
		{"a person's token in the query", "?", "access_token=" + ours, ""},
		{"the guest's own cookies, as they are", "Cookie", "a=1;b=\"x; y\";  c", "a=1;b=\"x; y\";  c"},
		{"an escaped key in a cookie", "Cookie", "a=1; t=%62rig" + strings.TrimPrefix(rightKey, "brig"), "a=1"},
		{"an access token before the guest's own", "X-Access-Token", access + ", mine", "mine"},
		{"an access token behind the guest's own", "X-Access-Token", "mine," + access, "mine"},
		{"a key behind the guest's own", "Authorization", "Bearer mine, Bearer " + rightKey, "Bearer mine"},
		{"a key in Base64", "X-Anything", basic("x:" + e2bKey)[6:], ""},
		{"a key of Kubernetes' clients", "Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(rightKey)) + ", v5.channel.k8s.io", "v5.channel.k8s.io"},
		{"a key in a token of the guest's own", "Authorization", "Bearer " + jwt(`{"iss":"app","key":"`+rightKey+`"}`), ""},
		{"a key, escaped three times", "Referer", "http://x/?a=%252562rig" + strings.TrimPrefix(rightKey, "brig"), ""},
		{"a signature in the address before", "Referer", "http://x/files?path=a&signature=v1_" + strings.Repeat("aB/", 14) + "%2B", ""},
		{"a signature in JSON", "X-Anything", `{"signature":"v1_` + strings.Repeat("aB/", 14) + `+"}`, ""},
		{"an unbound token of this server", "X-Anything", "t=" + unbound, ""},
		{"an unbound token in a query", "?", "a=1&t=" + unbound, "a=1"},
		{"the guest's own digest", "X-Anything", "t=" + strings.Repeat("0b", 32), "t=" + strings.Repeat("0b", 32)},
		{"the guest's own Base64", "X-Anything", basic(strings.Repeat("user:password", 9)), basic(strings.Repeat("user:password", 9))},
		{"a key in the path", "/", "/a%20b/" + e2bKey + "/c", "/a%20b/removed/c"},
		{"an escaped key in the path", "/", "/a/%65" + e2bKey[1:], "/a/removed"},
		{"a path of the guest's own", "/", "/a%2Fb/brig_x", "/a%2Fb/brig_x"},
		{"a package of the guest's own", "/", "/simple/brig_sdk-1.0.0-cp312-cp312-manylinux_2_17_x86_64.whl", "/simple/brig_sdk-1.0.0-cp312-cp312-manylinux_2_17_x86_64.whl"},
		{"a signature in the query", "?", "path=x&signature=v1_" + strings.Repeat("aB/", 14) + "%2B", "path=x"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://sandbox/", nil)
		got := func() string { return r.Header.Get(c.header) }
		switch c.header {
		case "?":
			r.URL.RawQuery = c.value
			got = func() string { return r.URL.RawQuery }
		case "/":
			r = httptest.NewRequest(http.MethodGet, "http://user:"+rightKey+"@sandbox"+c.value, nil)
			got = func() string { return r.URL.EscapedPath() + r.URL.User.String() }
		default:
			r.Header.Set(c.header, c.value)
		}
		if shield.RemoveCredentials(r); got() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got(), c.want)
		}
	}
	// Control: a server without an identity provider does not accept such a
	// token and forwards it.
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + ours}}, URL: httptest.NewRequest("GET", "/", nil).URL}
	if (httpapi.Shield{}).RemoveCredentials(r); r.Header.Get("Authorization") == "" {
		t.Error("the control kept a token that this server does not take")
	}
}

// A credential is removed even if it is percent-encoded several times. Control: another value
// stays, unless it is encoded more often than the shield decodes.
func TestShieldRemovesEscapedCredentials(t *testing.T) {
	const maximum = 8
	for what, value := range map[string]string{
		"a key": rightKey, "a key in Base64": base64.StdEncoding.EncodeToString([]byte("key: " + rightKey)), "another value": "value",
	} {
		for level := range maximum + 2 {
			text := value
			if level > 0 {
				text = ""
				for _, c := range []byte(value) {
					text += fmt.Sprintf("%%%s%02x", strings.Repeat("25", level-1), c)
				}
			}
			r := httptest.NewRequest(http.MethodGet, "http://sandbox/?a=1&b="+text, nil)
			r.Header.Set("Referer", "http://x/?b="+text)
			want := "a=1"
			if what == "another value" && level <= maximum {
				want += "&b=" + text
			}
			if shield.RemoveCredentials(r); r.URL.RawQuery != want || (r.Header.Get("Referer") == "") != (want == "a=1") {
				t.Errorf("%s, escaped %d times: the query is %q, want %q; Referer %q", what, level, r.URL.RawQuery, want, r.Header.Get("Referer"))
			}
		}
	}
}

// BenchmarkShieldLongValue shows that the time for a value is proportional to its length.
func BenchmarkShieldLongValue(b *testing.B) {
	escapes := "%" + strings.Repeat("25", 7) + "41"
	for name, part := range map[string]string{
		"Base64": "QUJD", "keys": "brig_", "tokens": "eyJh.", "tokens of sandboxes": "k2", "digits": "0a", "signatures": "signature=v1_", "escapes": escapes,
	} {
		for _, size := range []int{4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%d KiB", name, size>>10), func(b *testing.B) {
				value := strings.Repeat(part, size/len(part)) + escapes
				r := httptest.NewRequest(http.MethodGet, "http://sandbox/", nil)
				b.SetBytes(int64(len(value)))
				for b.Loop() {
					r.Header.Set("X-Anything", value)
					shield.RemoveCredentials(r)
				}
			})
		}
	}
}

// Each line of a repeated header is checked separately.
func TestShieldChecksEachHeaderLine(t *testing.T) {
	access := "k" + strings.Repeat("a2", 13) + "." + strings.Repeat("0a", 32)
	r := httptest.NewRequest(http.MethodGet, "http://sandbox/", nil)
	r.Header = http.Header{
		"X-Access-Token": {"mine", access, "other", access}, "Authorization": {"Bearer " + rightKey, "Bearer mine"},
		"Cookie": {"brig_session=x", "a=1", "b=2; t=" + access}, "X-Only": {access, access}, "X-Own": {"1", "2"},
	}
	r.Trailer = http.Header{"X-Late": nil, "X-Access-Token": {access, "mine"}}
	shield.RemoveCredentials(r)
	want := http.Header{"X-Access-Token": {"mine", "other"}, "Authorization": {"Bearer mine"}, "Cookie": {"a=1", "b=2"}, "X-Own": {"1", "2"}}
	if !maps.EqualFunc(r.Header, want, slices.Equal) {
		t.Errorf("%q, want %q", r.Header, want)
	}
	if want := (http.Header{"X-Late": nil, "X-Access-Token": {"mine"}}); !maps.EqualFunc(r.Trailer, want, slices.Equal) {
		t.Errorf("trailer %q, want %q", r.Trailer, want)
	}
}

// A proxy shields the final response and the informational ones before it.
func TestShieldAppliesToProxiedResponses(t *testing.T) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{"brig_session=early", "own=early; Domain=box.test"}
		w.WriteHeader(http.StatusEarlyHints)
		w.Header()["Set-Cookie"] = []string{"brig_session=late", "own=late; Domain=box.test"}
		fmt.Fprintf(w, "%q", r.Header)
	}))
	t.Cleanup(guest.Close)
	to, _ := url.Parse(guest.URL)
	proxy := func(w http.ResponseWriter, r *http.Request) {
		shield.Forward(httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}, w, r)
	}
	control := (&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}).ServeHTTP
	for name, handler := range map[string]http.HandlerFunc{"": proxy, "the control": control} {
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		var set []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			set = append(set, h["Set-Cookie"]...)
			return nil
		}})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+rightKey)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		set = append(set, resp.Header["Set-Cookie"]...)
		if err != nil || name == "" != slices.Equal(set, []string{"own=early", "own=late"}) || name == "" == strings.Contains(string(body), rightKey) {
			t.Errorf("%s: it sets %q, and the guest has %s (%v)", name, set, body, err)
		}
	}
}

func TestShieldRemovesCookieDomains(t *testing.T) {
	h := http.Header{"Clear-Site-Data": {`"cookies"`}, "Set-Cookie": {
		"brig_session=x; Path=/", "a=1; HttpOnly", "b=2;domain=.e2b.test", "c=domain=x; HttpOnly", "d=4; DOMAIN = x ; SameSite=Lax", "=brig_session=x", "BRIG_LOGIN=x", "__Host-brig_session=x", "__Secure-x=y", "brig_session",
	}}
	httpapi.ShieldResponse(h)
	if want := []string{"a=1; HttpOnly", "b=2", "c=domain=x; HttpOnly", "d=4; SameSite=Lax", "__Secure-x=y"}; !slices.Equal(h["Set-Cookie"], want) || len(h) != 1 {
		t.Errorf("%q, want %q", h, want)
	}
}

// A sandbox cannot upgrade a connection to another version of HTTP, because the shield could
// not inspect later requests on that connection. Upgrades to other protocols are allowed.
func TestShieldRefusesHTTPUpgrade(t *testing.T) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "no upgrade", r.Header.Get("HTTP2-Settings"))
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	}))
	t.Cleanup(guest.Close)
	to, _ := url.Parse(guest.URL)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shield.Forward(httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}, w, r)
	}))
	t.Cleanup(srv.Close)
	for offer, want := range map[string]int{"h2c": 200, "H2C": 200, "HTTP/2.0": 200, "websocket, h2c": 200, "TLS/1.2": 200, "websocket": 101, "SPDY/3.1": 101} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		req.Header.Set("Upgrade", offer)
		req.Header.Set("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", offer, err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", offer, resp.StatusCode, want)
		}
	}
}
