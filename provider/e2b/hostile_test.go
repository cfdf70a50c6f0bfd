package e2b

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
)

// TestSandboxAddressStaysInDomain verifies that IDs and domains from a service
// are rejected if the resulting host name refers to another host. The controls
// use E2B's formats.
func TestSandboxAddressStaysInDomain(t *testing.T) {
	c := Driver().Config().(*Config)
	for _, good := range []struct{ id, domain, at string }{
		{"i1x2", "", "https://49983-i1x2.e2b.app"},
		{"i1x2-6532622b", "e2b.app", "https://49983-i1x2-6532622b.e2b.app"},
		{"i1", "cluster-7.e2b.app", "https://49983-i1.cluster-7.e2b.app"},
		{"i1", "E2B.app", "https://49983-i1.E2B.app"},
	} {
		if at, err := c.sandboxAddress(good.id, good.domain); err != nil || at != good.at {
			t.Errorf("%s in %q: %s, %v", good.id, good.domain, at, err)
		}
	}
	for _, id := range []string{
		"", "x@127.0.0.1:2744", "x@127.0.0.1:2744/", "x.attacker.example", "x/..", "x#", "x?", "x:1", "-x", "x-", "x y", "x%2f", "\u00e9", "x\n",
		strings.Repeat("x", 57),
	} {
		if at, err := c.sandboxAddress(id, ""); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("the id %q: %s, %v", id, at, err)
		}
		if (&sandbox{SandboxID: id}).check() == nil {
			t.Errorf("the id %q is accepted in an answer", id)
		}
	}
	for _, domain := range []string{
		"attacker.example", "e2b.app.attacker.example", "xe2b.app", "x@e2b.app", "127.0.0.1", "127.0.0.1:1.e2b.app", "a/.e2b.app", "a#.e2b.app",
		"a?.e2b.app", "a..e2b.app", "a\\.e2b.app", " .e2b.app", "169.254.169.254/.e2b.app",
	} {
		if at, err := c.sandboxAddress("i1", domain); brig.KindOf(err) != brig.ConnectionFailed {
			t.Errorf("the domain %q: %s, %v", domain, at, err)
		}
	}
}

// TestForbiddenAddressesAreRefused verifies that the client does not connect
// to a name in the configured domain that resolves to this host, a private
// network or a cloud's metadata service. The control connects with
// allow_private.
func TestForbiddenAddressesAreRefused(t *testing.T) {
	served := new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = io.WriteString(w, `{"sandboxID": "i1"}`)
	}))
	defer srv.Close()
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url    string
		served bool
	}{
		{srv.URL, true}, // the operator has configured this host
		{"http://localhost:" + at.Port(), true},
		{"https://169.254.169.254", false},
		{"https://10.0.0.1", false},
		{"https://[fd00:ec2::254]", false},
		{"http://service.example", false},
	} {
		config := Driver().Config().(*Config)
		config.APIKey, config.APIURL = "e2b_x", c.url
		before := served.Load()
		wrong := len(config.Validate()) > 0
		if !wrong {
			_ = newAPI(config, func(brig.Call) {}).get(t.Context(), "i1")
		}
		if (served.Load() > before) != c.served || wrong == c.served {
			t.Errorf("%s: accepted %v, served %v", c.url, !wrong, served.Load() > before)
		}
	}
	// The address of another host is checked when the connection is opened.
	for private, want := range map[bool]bool{false: false, true: true} {
		config := Driver().Config().(*Config)
		config.APIKey, config.AllowPrivate, config.Timeout = "e2b_x", private, 5
		a := newAPI(config, func(brig.Call) {})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+at.Port(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.send("files", req) // the server does not support TLS
		refused := err != nil && strings.Contains(err.Error(), "where it may not be")
		if refused == want {
			t.Errorf("allow_private %v: %v", private, err)
		}
	}
}

// TestListMemoryIsLimited verifies that the pages of a service use a limited amount of
// memory, regardless of their content.
func TestListMemoryIsLimited(t *testing.T) {
	for name, respond := range map[string]func(w http.ResponseWriter, n int64){
		"many empty objects": func(w http.ResponseWriter, n int64) {
			w.Header().Set("X-Next-Token", fmt.Sprint(n))
			_, _ = io.WriteString(w, "["+strings.Repeat("{},", 1<<20)+"{}]")
		},
		"many sandboxes": func(w http.ResponseWriter, n int64) {
			w.Header().Set("X-Next-Token", fmt.Sprint(n))
			_, _ = io.WriteString(w, "["+strings.Repeat(`{"sandboxID":"i1"},`, 1000)+`{"sandboxID":"i1"}]`)
		},
		"large metadata": func(w http.ResponseWriter, n int64) {
			w.Header().Set("X-Next-Token", fmt.Sprint(n))
			_, _ = io.WriteString(w, `[{"sandboxID":"i1","metadata":{`+strings.Repeat(`"k":"v",`, 1<<20)+`"k":"v"}}]`)
		},
		"no end": func(w http.ResponseWriter, n int64) {
			w.Header().Set("X-Next-Token", fmt.Sprint(n))
			_, _ = io.WriteString(w, `[{"sandboxID":"i1"}]`)
		},
		"the same page again": func(w http.ResponseWriter, _ int64) {
			w.Header().Set("X-Next-Token", "again")
			_, _ = io.WriteString(w, `[]`)
		},
		"long tokens": func(w http.ResponseWriter, n int64) {
			w.Header().Set("X-Next-Token", strings.Repeat("x", 10_000)+fmt.Sprint(n))
			_, _ = io.WriteString(w, `[]`)
		},
		"not a list": func(w http.ResponseWriter, _ int64) { _, _ = io.WriteString(w, `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond(w, n.Add(1)) }))
			defer srv.Close()
			a := newAPI(&Config{APIURL: srv.URL, Timeout: 30}, func(brig.Call) {})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			all, err := a.list(t.Context(), nil)
			runtime.ReadMemStats(&after)
			if brig.KindOf(err) != brig.ConnectionFailed || n.Load() > maxPages {
				t.Errorf("%d sandboxes after %d pages: %v", len(all), n.Load(), err)
			}
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 128<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
		})
	}
}

// TestResponseSizeIsLimited verifies that a response above the size limit is
// rejected.
func TestResponseSizeIsLimited(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"sandboxID":"i1","x":"`+strings.Repeat("x", 1<<20)+`"}`)
	}))
	defer srv.Close()
	a := newAPI(&Config{APIURL: srv.URL, Timeout: 30}, func(brig.Call) {})
	if _, err := a.connect(t.Context(), "i1"); brig.KindOf(err) != brig.ConnectionFailed || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}
