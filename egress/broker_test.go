package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

const (
	placeholder = "brig-secret-0123456789"
	value       = `sk-live/"q+1"<é>&`
)

// key returns a secret for the lab's host.
func key(places ...brig.SecretPlace) Secret {
	return Secret{
		Name: "stripe", Placeholder: placeholder, Hosts: []string{"x.test", "*.test"}, Places: places,
		Value: func(context.Context) ([]byte, error) { return []byte(value), nil },
	}
}

// keep sends an empty response, and records the request.
type keep struct {
	mu sync.Mutex // for tests that do not wait for the response
	*http.Request
	body string
}

func (k *keep) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Request, k.body = r.Clone(context.WithoutCancel(r.Context())), string(b)
	if err != nil {
		k.body = err.Error()
	}
}

func TestValueIsInsertedOnlyInAllowedPlaces(t *testing.T) {
	all := []brig.SecretPlace{brig.SecretHeader, brig.SecretQuery, brig.SecretBody}
	pair := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s)) }
	for _, h2 := range []bool{false, true} {
		for _, places := range [][]brig.SecretPlace{nil, {brig.SecretHeader}, {brig.SecretQuery}, {brig.SecretBody}, all} {
			k := &keep{}
			l := newLab(t, true, k)
			l.keys = []Secret{key(places...)}
			r := l.request("POST", "/"+placeholder+"?a="+placeholder+"&b=brig%2Dsecret-0123456789&c=%20+x&"+placeholder, strings.NewReader("1 "+placeholder+" 2"))
			r.Header.Set("X-Key", "a "+placeholder+" b "+placeholder)
			r.Header.Set("Authorization", pair(placeholder))
			if res, body := l.do(l.client(h2), r); res.StatusCode != 200 {
				t.Fatalf("%s %s", res.Status, body)
			}
			in := func(p brig.SecretPlace) string {
				if slices.Contains(places, p) || places == nil && p == brig.SecretHeader {
					return value
				}
				return placeholder
			}
			v := in(brig.SecretHeader)
			if got, want := k.Header.Get("X-Key"), "a "+v+" b "+v; got != want {
				t.Errorf("%v: header %q", places, got)
			}
			if got := k.Header.Get("Authorization"); got != pair(v) {
				t.Errorf("%v: basic %q", places, got)
			}
			v = url.QueryEscape(in(brig.SecretQuery))
			want := "a=" + v + "&b=" + v + "&c=%20+x&" + v
			if v == placeholder { // then the request must be unchanged
				want = "a=" + v + "&b=brig%2Dsecret-0123456789&c=%20+x&" + v
			}
			if k.URL.RawQuery != want {
				t.Errorf("%v: query %q", places, k.URL.RawQuery)
			}
			if got, want := k.body, "1 "+in(brig.SecretBody)+" 2"; got != want {
				t.Errorf("%v: body %q", places, got)
			}
			if k.ContentLength != int64(len(k.body)) {
				t.Errorf("%v: length %d of %q", places, k.ContentLength, k.body)
			}
			if k.URL.Path != "/"+placeholder {
				t.Errorf("%v: path %q", places, k.URL.Path)
			}
			if e := l.lastEvent(Request); fmt.Sprint(e.Secrets) != "[stripe]" || strings.Contains(fmt.Sprint(e), "live") {
				t.Errorf("%v: reported %+v", places, e)
			}
		}
	}
}

// The placeholder arrives one byte at a time. Bodies are longer than
// maxBufferedBody, or have an unknown length.
func TestPlaceholderSentByteByByteIsReplaced(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, length := range []int64{-1, 70 << 10, 100} {
			k := &keep{}
			l := newLab(t, true, k)
			l.keys = []Secret{key(brig.SecretBody)}
			size := int(length)
			if size < 0 {
				size = 1000
			}
			text := strings.Repeat(".", size/2-len(placeholder)) + placeholder
			text += strings.Repeat("b", size-len(text))
			r := l.request("POST", "/", iotest.OneByteReader(strings.NewReader(text)))
			r.ContentLength = length
			if res, body := l.do(l.client(h2), r); res.StatusCode != 200 {
				t.Fatalf("%s %s", res.Status, body)
			}
			if want := strings.ReplaceAll(text, placeholder, value); k.body != want {
				t.Errorf("length %d: the server had %d bytes, want %d", length, len(k.body), len(want))
			}
			if whole := length > 0 && length <= maxBufferedBody; whole != (k.ContentLength >= 0) {
				t.Errorf("length %d: the server was told %d", length, k.ContentLength)
			}
		}
	}
}

// A request is reported as soon as it has been sent, even if its response has not ended.
func TestRequestIsReportedBeforeResponseEnds(t *testing.T) {
	l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	l.keys = []Secret{key(brig.SecretBody)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := l.request("POST", "/", io.MultiReader(strings.NewReader(placeholder))).WithContext(ctx)
	res, err := l.client(false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if e := l.lastEvent(Request); !e.Allowed || !slices.Equal(e.Secrets, []string{"stripe"}) {
		t.Errorf("reported %+v", e)
	}
}

func TestValueIsEncodedForBodyType(t *testing.T) {
	for _, c := range []struct{ kind, coding, want string }{
		{"", "", value},
		{"text/plain", "identity", value},
		{"application/json; charset=utf-8", "", `sk-live/\"q+1\"<é>&`},
		{"application/problem+json", "", `sk-live/\"q+1\"<é>&`},
		{"application/x-www-form-urlencoded", "", url.QueryEscape(value)},
		{"text/plain", "gzip", placeholder},
		{"text/plain", "identity, br", placeholder},
		{"application/grpc+proto", "", placeholder},
	} {
		k := &keep{}
		l := newLab(t, false, k)
		s := key(brig.SecretBody)
		s.Plain = true
		l.keys = []Secret{s}
		r := l.request("POST", "/", strings.NewReader(placeholder))
		r.Header.Set("Content-Type", c.kind)
		if c.coding != "" {
			r.Header.Set("Content-Encoding", c.coding)
		}
		l.do(l.client(false), r)
		if k.body != c.want || k.ContentLength != int64(len(c.want)) {
			t.Errorf("%s %s: %q, of %d", c.kind, c.coding, k.body, k.ContentLength)
		}
	}
}

func TestOtherHostsReceiveNoValue(t *testing.T) {
	for _, hosts := range [][]string{{"other.test"}, {"*.api.test"}, {"*.other.test", "xapi.test"}, {""}, nil} {
		k := &keep{}
		l := newLab(t, true, k)
		s := key(brig.SecretHeader, brig.SecretQuery, brig.SecretBody)
		s.Hosts = hosts
		s.Value = func(context.Context) ([]byte, error) {
			t.Error("the value was asked for")
			return nil, nil
		}
		l.keys = []Secret{s}
		r := l.request("POST", "/?q="+placeholder, strings.NewReader(placeholder))
		r.Header.Set("Authorization", "Bearer "+placeholder)
		r.Header.Set("Accept-Encoding", "zstd")
		l.do(l.client(false), r)
		if k.body != placeholder || k.Header.Get("Authorization") != "Bearer "+placeholder || k.URL.RawQuery != "q="+placeholder || k.Header.Get("Accept-Encoding") != "zstd" {
			t.Errorf("%v: %q %v", hosts, k.body, k.Header)
		}
		if e := l.lastEvent(Request); len(e.Secrets) != 0 || !e.Allowed {
			t.Errorf("%v: %+v", hosts, e)
		}
		attack.RecordCase("SEC-02", fmt.Sprintf("a secret of %q to %s", hosts, labHost), strings.Contains(fmt.Sprint(k.body, k.Header, k.URL), value))
	}
	// As a control, a secret that is bound to the host arrives.
	k := &keep{}
	l := newLab(t, true, k)
	l.keys = []Secret{key(brig.SecretBody)}
	l.do(l.client(false), l.request("POST", "/", strings.NewReader(placeholder)))
	if k.body != value {
		t.Errorf("bound to the host: %q", k.body)
	}
	attack.RecordMutant("SEC-02", "the host that it is for", "the binding", k.body == value)
}

func TestRequestWithoutReadableValueIsRefused(t *testing.T) {
	for name, f := range map[string]func(context.Context) ([]byte, error){
		"error":   func(context.Context) ([]byte, error) { return nil, errors.New("the vault said " + value) },
		"empty":   func(context.Context) ([]byte, error) { return nil, nil },
		"none":    nil,
		"newline": func(context.Context) ([]byte, error) { return []byte("two\r\nX-Evil: lines"), nil },
		"NUL":     func(context.Context) ([]byte, error) { return []byte("a\x00b"), nil },
	} {
		l := newLab(t, true, &keep{})
		s := key()
		s.Value = f
		l.keys = []Secret{s}
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", placeholder)
		res, body := l.do(l.client(false), r)
		e := l.lastEvent(Request)
		if res.StatusCode != 502 || e.Allowed || !strings.Contains(e.Why, "stripe") || strings.Contains(body+e.Why, "live") || len(e.Secrets) > 0 {
			t.Errorf("%s: %s %s, reported %+v", name, res.Status, body, e)
		}
		if l.dials.Load() != 0 || l.sent.Load() != 0 {
			t.Errorf("%s: something was sent", name)
		}
	}
}

func TestExclusiveSecretRefusesForeignCredentials(t *testing.T) {
	basically := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		name, value string // of a header field or a query parameter
		refused     bool
	}{
		{"Authorization", "Bearer " + placeholder, false},
		{"Authorization", basically("x:" + placeholder), false},
		{"X-Api-Key", placeholder, false},
		{"Cookie", "s=" + placeholder, false},
		{"X-Other", "mine", true},
		{"?", "q=mine&key=" + placeholder, false},
		{"?", "monkey=mine", true},
		{"?", "key=", true},
		{"?", "per_page=10&filter[state]=open&$top=3&Sort=asc", false},
		{"?", placeholder, false},
		{"Accept", "application/json", false},
		{"User-Agent", "mine/1.0", false},
		{"X-Stainless-Lang", "python", false},
		{"X-Tenant", "north", false}, // allowed by the secret
		{"X-Team-Name", "north", false},
		{"?", "Region=north", false},
		{"Authorization", "Bearer mine", true},
		{"Authorization", basically("x:mine"), true},
		{"Authorization", "", false},
		{"X-Api-Key", "mine", true},
		{"X_api_key", "mine", true},
		{"Api-Key", "mine", true},
		{"X-Auth-Token", "mine", true},
		{"Proxy-Authorization", "mine", true},
		{"X-Goog-Api-Key", "mine", true},
		{"Private-Token", "mine", true},
		{"Cookie", "s=mine", true},
		{"Cookie", "s=mine; t=" + placeholder, true},
		{"?", "api_key=mine", true},
		{"?", "a=b&KEY=mine", true},
		{"?", "access%5Ftoken=mine", true},
		{"?", "a=1;token=mine", true},
		{"Authorization", placeholder, false},
		{"Authorization", "Token token=\"" + placeholder + "\"", false},
		{"Authorization", basically("a user:" + placeholder), true},     // a server may take the user for the credential
		{"Authorization", basically("ME@x.test:" + placeholder), false}, // allowed by the secret
		{"Authorization", basically("me@x.test:mine"), true},
		{"Authorization", basically("you@x.test:" + placeholder), true},
		{"Authorization", basically("sk_mine:" + placeholder), true},
		{"Authorization", basically("sk_mine" + placeholder + ":" + placeholder), true},
		{"Authorization", basically(":" + placeholder), false},
		{"Authorization", basically("x-access-token:" + placeholder), false},
		{"Authorization", basically("__token__:" + placeholder), false},
		{"Authorization", basically("OAuth2:" + placeholder), false},
		{"Authorization", basically(placeholder + ":" + placeholder), false},
		{"Authorization", basically(placeholder + ":"), false},
		{"Authorization", basically(placeholder), false},
		{"Authorization", basically(placeholder + ":x-oauth-basic"), false},
		{"Authorization", basically(placeholder + ":ghp_mine"), true},
		{"Authorization", basically(placeholder + ":me@x.test"), true},
		{"Authorization", basically("x:" + placeholder + "mine"), true},
		{"Authorization", basically("x:mine" + placeholder), true},
		{"Authorization", basically("x:" + placeholder + ":mine"), true},
		{"Authorization", basically("x:" + placeholder + "\n"), true},
		{"Authorization", basically("x:" + placeholder + " mine"), true},
		{"Authorization", "Basic " + placeholder, false},
		{"Authorization", "Bearer mine" + placeholder, true},
		{"Authorization", "Bearer " + placeholder + ".mine", true},
		{"Authorization", "Bearer mine=" + placeholder, true},
		{"Authorization", "Bearer \"" + placeholder + "\"", false},
		{"X-Api-Key", "mine:" + placeholder, true},
		{"X-Api-Key", "token=" + placeholder, false},
		{"X-Api-Key", "mine=" + placeholder, true},
		{"Cookie", "s=" + placeholder + "; other=" + placeholder, false},
		{"Cookie", "s=mine=" + placeholder, true},
		{"?", "key=mine" + placeholder, true},
		{"?", "key=" + placeholder + "mine", true},
		{"?", "mine" + placeholder, true},
		{"X-Api-Key", "Bearer " + placeholder, false},
		{"Cookie", "s=" + placeholder + "; t=x" + placeholder, true},
		{"Authorization", "Bearer mine " + placeholder, true},
		{"Authorization", "Bearer mine," + placeholder, true},
		{"Authorization", placeholder + " mine", true},
		{"Authorization", "Digest username=\"mine\", x=" + placeholder, true},
		{"Authorization", basically("mine:mine") + " " + placeholder, true},
		{"Authorization", basically("mine:mine\x00" + placeholder), true},
		{"Cookie", "s=mine " + placeholder, true},
		{"Cookie", "s=mine, t=" + placeholder, true},
		{"?", "key=mine%00" + placeholder, true},
	} {
		for _, exclusive := range []bool{true, false} {
			k := &keep{}
			l := newLab(t, true, k)
			s := key()
			s.Exclusive, s.Allow = exclusive, []string{"x-tenant", "X-Team-*", "?region", "?X-*", "user:me@x.test"}
			l.keys = []Secret{s}
			r := l.request("GET", "/", nil)
			if c.name == "?" {
				r.URL.RawQuery = c.value
			} else {
				r.Header[c.name] = []string{c.value}
			}
			res, body := l.do(l.client(false), r)
			e := l.lastEvent(Request)
			want := 200
			if c.refused && exclusive {
				want = 403
			}
			if res.StatusCode != want || e.Allowed != (want == 200) || want == 403 && (!strings.Contains(e.Why, "credentials of its own") || !strings.Contains(body, "to allow of the exclusive secret stripe")) {
				t.Errorf("exclusive %t, %s: %s: %s %s, reported %+v", exclusive, c.name, c.value, res.Status, body, e)
			}
			if want == 403 && l.sent.Load() != 0 {
				t.Errorf("%s: something was sent", c.name)
			}
			switch what := c.name + " " + c.value; {
			case c.refused && exclusive:
				attack.RecordCase("SEC-04", what, l.sent.Load() != 0)
			case c.refused:
				attack.RecordMutant("SEC-04", what, "exclusive", l.sent.Load() != 0)
			}
		}
	}
	for _, name := range []string{
		"X-Vault-Token", "JOB-TOKEN", "X-GitHub-Token", "X-Access-Key", "Deploy-Token", "X-Gitlab-Token", "X-Auth-Key", "X-Auth-Email",
		"X-Api-Secret", "X-Session", "X-Session-Id", "X-Csrf-Token", "X-Consumer-Key", "X-Amz-Security-Token", "X-Amz-Content-Sha256",
		"X-Goog-Iam-Authorization-Token", "X-Goog-Api-Key", "X-Ms-Authorization-Auxiliary", "X-Shopify-Access-Token", "X-Figma-Token",
		"X-Client-Secret", "X-User", "X-Forwarded-User", "X-Forwarded-Access-Token", "X-Forwarded-Client-Cert", "X-Remote-User",
		"Circle-Token", "X-Jfrog-Art-Api", "Dd-Api-Key", "Dd-Application-Key", "Ocp-Apim-Subscription-Key", "Api_key", "Accept_token",
		"Authorization-2", "X-Authorization", "Authentication", "Www-Authenticate", "Sec-Websocket-Protocol", "X-Original-Url", "If", "Lock-Token",
		"Set-Cookie", "Cookie2", "Token", "Secret", "Password", "X-Pin", "From", "Sec-Token", "Content-Token", "Mine",
	} {
		for _, v := range []string{"mine", "mine " + placeholder, "Mytoken " + placeholder} {
			l := newLab(t, true, &keep{})
			s := key()
			s.Exclusive, s.Allow = true, []string{"?" + name, "?*"} // these apply to the query only
			l.keys = []Secret{s}
			r := l.request("GET", "/", nil)
			r.Header[name] = []string{v}
			if name == "X-Original-Url" {
				r.Header[name] = []string{"/mine"}
			}
			res, body := l.do(l.client(false), r)
			if res.StatusCode != 403 || !strings.Contains(body, http.CanonicalHeaderKey(name)) || l.sent.Load() != 0 {
				t.Errorf("%s: %s: %s %s", name, v, res.Status, body)
			}
			attack.RecordCase("SEC-04", name+" "+v, l.sent.Load() != 0)
		}
		l := newLab(t, true, &keep{})
		l.keys = []Secret{key()}
		r := l.request("GET", "/", nil)
		r.Header[name] = []string{"/mine"}
		l.do(l.client(false), r)
		attack.RecordMutant("SEC-04", name, "exclusive", l.sent.Load() != 0)
	}
	for _, name := range []string{
		"private_token", "jwt", "api-token", "job_token", "session", "sid", "code", "client_id", "client_assertion", "assertion", "id_token",
		"refresh_token", "pat", "pwd", "pass", "passwd", "credential", "X-Amz-Credential", "X-Amz-Signature", "sv", "se", "hmac", "ticket", "user",
		"login", "email", "apikey", "appid", "app_key", "subscription-key", "u", "p", "auth[token]", "token[]", "mine",
	} {
		for _, q := range []string{name + "=mine", "page=1&" + name + "=mine", name + "=mine+" + placeholder, "page=1;" + name + "=mine", name, name + "="} {
			l := newLab(t, true, &keep{})
			s := key(brig.SecretHeader, brig.SecretQuery)
			s.Exclusive, s.Allow = true, []string{name, "*"} // these apply to headers only
			l.keys = []Secret{s}
			r := l.request("GET", "/?"+q, nil)
			res, body := l.do(l.client(false), r)
			if res.StatusCode != 403 || !strings.Contains(body, strconv.Quote(name)) || l.sent.Load() != 0 {
				t.Errorf("%s: %s %s", q, res.Status, body)
			}
			attack.RecordCase("SEC-04", "?"+q, l.sent.Load() != 0)
		}
		l := newLab(t, true, &keep{})
		l.keys = []Secret{key()}
		l.do(l.client(false), l.request("GET", "/?"+name+"=mine", nil))
		attack.RecordMutant("SEC-04", "?"+name, "exclusive", l.sent.Load() != 0)
	}
	// Another credential in addition to the placeholder is refused, too.
	l := newLab(t, true, &keep{})
	s := key()
	s.Exclusive = true
	l.keys = []Secret{s}
	r := l.request("GET", "/", nil)
	r.Header["Authorization"] = []string{"Bearer " + placeholder, "Bearer mine"}
	if res, _ := l.do(l.client(false), r); res.StatusCode != 403 {
		t.Errorf("%s", res.Status)
	}
}
