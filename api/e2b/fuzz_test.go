package e2b_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/brig-run/brig/api/e2b"
)

func FuzzHost(f *testing.F) {
	for _, host := range []string{"8080-sb1.box.test", "49983-sb1-6532622b.box.test:8443", "[::1]:80", "api.box.test", "1-sb.x", "-.", "8080-sb1"} {
		f.Add(host, "box.test:8443")
		f.Add(host, "")
	}
	f.Fuzz(func(t *testing.T, host, domain string) {
		id, port, ok, err := e2b.HostTarget(host, domain)
		if ok && err != nil {
			t.Errorf("%q: both found and wrong", host)
		}
		if ok && (port < 1 || port > 65535 || id == "" || len(id) > 64 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "") {
			t.Errorf("%q: %q %d", host, id, port)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	for _, s := range []string{"a%2520k=b%2526c", "a=b&c=d", "a%3Db", "=", "&&", "a=b=c", "%zz", "brig.e2b%252Fx=1", "%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := e2b.ParseMetadata(s)
		if err != nil {
			return
		}
		// A parsed filter can be escaped in the clients' way and parsed again.
		inner := url.Values{}
		for k, v := range m {
			if strings.HasPrefix(k, "brig.e2b/") {
				t.Errorf("%q asks for %q", s, k)
			}
			inner.Set(url.QueryEscape(k), url.QueryEscape(v))
		}
		var pairs []string
		for k, v := range inner {
			pairs = append(pairs, k+"="+v[0])
		}
		again, err := e2b.ParseMetadata(url.QueryEscape(strings.Join(pairs, "&")))
		if err != nil || len(again) != len(m) {
			t.Fatalf("%q: %v, again %v %v", s, m, again, err)
		}
		for k, v := range m {
			if again[k] != v {
				t.Errorf("%q: %q is %q, again %q", s, k, v, again[k])
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"MjEyNi0wMS0wMlQwMzowNDowNlpfX3NiMl9fYXNj", "", "zzz", "X19h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once, err := e2b.CursorRoundTrip(s)
		if err != nil {
			return
		}
		if twice, err := e2b.CursorRoundTrip(once); err != nil || twice != once {
			t.Errorf("%q: %q, then %q %v", s, once, twice, err)
		}
	})
}
