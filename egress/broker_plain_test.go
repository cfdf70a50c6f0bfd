package egress

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// A value is sent over plain HTTP only if its secret allows it, because
// everyone on the network path could read it.
func TestValueIsSentOverPlainHTTPOnlyIfAllowed(t *testing.T) {
	all := []brig.SecretPlace{brig.SecretHeader, brig.SecretQuery, brig.SecretBody}
	for name, make := range map[string]func(l *lab) *http.Request{
		"header": func(l *lab) *http.Request {
			r := l.request("GET", "/", nil)
			r.Header.Set("X-Key", placeholder)
			return r
		},
		"basic": func(l *lab) *http.Request {
			r := l.request("GET", "/", nil)
			r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+placeholder)))
			return r
		},
		"query": func(l *lab) *http.Request { return l.request("GET", "/?k="+placeholder, nil) },
		"body":  func(l *lab) *http.Request { return l.request("POST", "/", strings.NewReader("k="+placeholder)) },
		"stream": func(l *lab) *http.Request {
			return l.request("POST", "/", io.MultiReader(strings.NewReader(strings.Repeat("x", 70<<10)), strings.NewReader(placeholder)))
		},
	} {
		for _, plain := range []bool{false, true} {
			k := &keep{}
			l := newLab(t, false, k)
			s := key(all...)
			s.Plain = plain
			s.Value = func(context.Context) ([]byte, error) { return []byte("clear-value-0123"), nil }
			l.keys = []Secret{s}
			res, body := l.do(l.client(false), make(l))
			var got strings.Builder
			k.mu.Lock() // a partly sent request may still be read
			if k.Request != nil {
				k.Header.Write(&got)
				got.WriteString(k.URL.RawQuery + k.body + k.Header.Get("Authorization"))
			}
			k.mu.Unlock()
			out := strings.Contains(got.String(), "clear-value-0123") || strings.Contains(got.String(), base64.StdEncoding.EncodeToString([]byte("u:clear-value-0123")))
			e := l.lastEvent(Request)
			if plain {
				if res.StatusCode != 200 || !out {
					t.Errorf("%s: %s %s, the host has %q", name, res.Status, body, got.String())
				}
				attack.RecordMutant("SEC-02", "in the clear, in "+name, "https only", out)
				continue
			}
			if res.StatusCode != 403 || out || e.Allowed || !strings.Contains(e.Why, "https only") || len(e.Secrets) != 0 {
				t.Errorf("%s: %s %s, the host has %q; reported %+v", name, res.Status, body, got.String(), e)
			}
			attack.RecordCase("SEC-02", "in the clear, in "+name, out)
		}
	}
	// A request without a placeholder is allowed.
	l := newLab(t, false, &keep{})
	l.keys = []Secret{key(all...)}
	if res, _ := l.do(l.client(false), l.request("POST", "/?a=b", strings.NewReader("c"))); res.StatusCode != 200 {
		t.Error(res.Status)
	}
}

// A host may echo a value later: after the secret was changed, bound to other
// hosts, or deleted.
func TestEarlierValuesAreMasked(t *testing.T) {
	now := "first-value"
	l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "first-value second-value") }))
	s := key()
	s.Value = func(context.Context) ([]byte, error) { return []byte(now), nil }
	ask := func() string {
		r := l.request("GET", "/", nil)
		r.Header.Set("Authorization", placeholder)
		_, body := l.do(l.client(false), r)
		return body
	}
	if body := ask(); !strings.Contains(body, "first-value") {
		t.Errorf("without a secret: %s", body)
	}
	attack.RecordMutant("SEC-03", "a value that was sent before", "remembering it", strings.Contains(ask(), "first-value"))
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"bound", func() { l.keys = []Secret{s} }, placeholder + " second-value"},
		{"rotated", func() { now = "second-value" }, placeholder + " " + placeholder},
		{"other hosts", func() { l.keys[0].Hosts = []string{"other.test"} }, placeholder + " " + placeholder},
		{"gone", func() { l.keys = nil }, placeholder + " " + placeholder},
	} {
		c.do()
		body := ask()
		if body != c.want {
			t.Errorf("%s: %s", c.name, body)
		}
		attack.RecordCase("SEC-03", "a value that was sent before: "+c.name, strings.Contains(body, "first-value"))
	}
}

// The number of remembered values is bounded.
func TestSentValuesAreBounded(t *testing.T) {
	var g sentValues
	for i := range 2 * maxSentValues {
		g.add([]boundSecret{{Secret: key(), value: []byte{byte(i)}}, {Secret: key(), value: []byte("kept")}})
	}
	list := g.receivedBy(labHost)
	if len(list) != maxSentValues || string(list[maxSentValues-1].value) != "kept" || list[maxSentValues-2].value[0] != 2*maxSentValues-1 {
		t.Errorf("%d: %v", len(list), list)
	}
	if len(g.receivedBy("example.com")) > 0 {
		t.Error("another host has them")
	}
}
