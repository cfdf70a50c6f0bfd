package httpapi_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
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
var shield = httpapi.Shield{Takes: brig.TokenRule{Issuer: "https://idp.test", Audiences: []string{"brig", "https://api.test"}}.Takes}

func TestShieldRequest(t *testing.T) {
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
		{"a signature in the query", "?", "path=x&signature=v1_" + strings.Repeat("aB/", 14) + "%2B", "path=x"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://sandbox/", nil)
		got := func() string { return r.Header.Get(c.header) }
		if c.header == "?" {
			r.URL.RawQuery = c.value
			got = func() string { return r.URL.RawQuery }
		} else {
			r.Header.Set(c.header, c.value)
		}
		if shield.Request(r); got() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got(), c.want)
		}
	}
	// Control: a server without an identity provider does not accept such a
	// token and forwards it.
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + ours}}, URL: httptest.NewRequest("GET", "/", nil).URL}
	if (httpapi.Shield{}).Request(r); r.Header.Get("Authorization") == "" {
		t.Error("the control kept a token that this server does not take")
	}
}

func TestShieldResponse(t *testing.T) {
	h := http.Header{"Clear-Site-Data": {`"cookies"`}, "Set-Cookie": {
		"brig_session=x; Path=/", "a=1; HttpOnly", "=brig_session=x", "BRIG_LOGIN=x", "__Host-brig_session=x", "__Secure-x=y", "brig_session",
	}}
	httpapi.ShieldResponse(h)
	if want := []string{"a=1; HttpOnly", "__Secure-x=y"}; !slices.Equal(h["Set-Cookie"], want) || len(h) != 1 {
		t.Errorf("%q, want %q", h, want)
	}
}
