package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// cloud is a control plane with scripted responses.
type cloud struct {
	*httptest.Server

	mu    sync.Mutex // guards the fields below
	seen  []string
	calls []brig.Call
	left  []int // statuses of the first responses
}

func newCloud(t *testing.T, secure bool, statuses ...int) *cloud {
	t.Helper()
	c := &cloud{left: statuses}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, r.Method+" "+r.URL.Path)
		w.Header().Set("X-RateLimit-Limit", "100")
		w.Header().Set("X-RateLimit-Remaining", "40")
		status := http.StatusOK
		if r.Header.Get("X-API-Key") != "e2b_right" {
			status = http.StatusUnauthorized
		} else if len(c.left) > 0 {
			status, c.left = c.left[0], c.left[1:]
		}
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status/100 != 2 {
			fmt.Fprintf(w, `{"code": %d, "message": "told by the service"}`, status)
			return
		}
		_, _ = io.WriteString(w, `{"sandboxID": "i1", "templateID": "base"}`)
	})
	if secure {
		c.Server = httptest.NewTLSServer(h)
	} else {
		c.Server = httptest.NewServer(h)
	}
	t.Cleanup(c.Close)
	return c
}

func (c *cloud) api(t *testing.T, change func(*Config)) *api {
	t.Helper()
	config := Driver().Config().(*Config)
	config.APIKey, config.APIURL = "e2b_right", c.URL
	if change != nil {
		change(config)
	}
	if invalid := config.Validate(); len(invalid) > 0 {
		t.Fatalf("%+v", invalid)
	}
	a := newAPI(config, func(call brig.Call) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, call)
	})
	a.pause = 10 * time.Millisecond
	return a
}

func (c *cloud) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// TestErrorKindByStatus verifies that each status leads to the expected kind of error
// and number of attempts.
func TestErrorKindByStatus(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int
		create   bool // a creation, which must not be repeated
		want     brig.Kind
		made     int
	}{
		{"well", nil, true, "", 1},
		{"refused", []int{400}, true, brig.FailedPrecondition, 1},
		{"key", []int{401}, false, brig.InvalidConfig, 1},
		{"forbidden", []int{403}, false, brig.InvalidConfig, 1},
		{"nothing", []int{404}, false, brig.NotFound, 1},
		{"redirected", []int{302}, false, brig.InvalidConfig, 1},
		{"busy once", []int{429}, true, "", 2},
		{"busy", []int{429, 429, 429, 429}, true, brig.RateLimited, 3},
		{"broken once", []int{503}, false, "", 2},
		{"broken", []int{500, 502, 504, 500}, false, brig.Unavailable, 3},
		{"broken while it makes one", []int{500, 500}, true, brig.Unavailable, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newCloud(t, false, c.statuses...)
			a := s.api(t, nil)
			var err error
			if c.create {
				_, err = a.create(t.Context(), "base", 60, nil)
			} else {
				err = a.get(t.Context(), "i1")
			}
			if brig.KindOf(err) != c.want || s.requests() != c.made {
				t.Errorf("%v after %d requests, want %q after %d", err, s.requests(), c.want, c.made)
			}
			e := brig.AsError(err)
			if c.want == brig.RateLimited && e.RetryAfter != time.Second {
				t.Errorf("again after %v", e.RetryAfter)
			}
			if c.want == brig.InvalidConfig && (!strings.HasPrefix(e.Field, "api_") || e.Hint == "") {
				t.Errorf("%+v", e)
			}
			if len(s.calls) != c.made {
				t.Fatalf("told of %d calls", len(s.calls))
			}
			if call := s.calls[0]; call.Status == 0 || call.Region != "us" || call.Seconds <= 0 || call.Limit != 100 || call.Used != 60 {
				t.Errorf("told of %+v", call)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	s := newCloud(t, false)
	a := s.api(t, nil)
	s.Close()
	begin := time.Now()
	if err := a.get(t.Context(), "i1"); brig.KindOf(err) != brig.ConnectionFailed || time.Since(begin) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	if len(s.calls) != tries || s.calls[0].Status != 0 {
		t.Errorf("told of %+v", s.calls)
	}
	// The client does not send its key to another host.
	var leakedKey string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { leakedKey = r.Header.Get("X-API-Key") }))
	t.Cleanup(elsewhere.Close)
	lure := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(lure.Close)
	config := *a.config
	config.APIURL = lure.URL
	if err := newAPI(&config, func(brig.Call) {}).get(t.Context(), "i1"); brig.KindOf(err) != brig.InvalidConfig || leakedKey != "" {
		t.Errorf("%v, and the key was told to another: %q", err, leakedKey)
	}
}

// TestPin verifies that the client rejects a service whose key does not match
// the pin, even if its certificate is valid.
func TestPin(t *testing.T) {
	s := newCloud(t, true)
	sum := sha256.Sum256(s.Certificate().RawSubjectPublicKeyInfo)
	for pin, want := range map[string]brig.Kind{"": "", hex.EncodeToString(sum[:]): "", strings.Repeat("ab", 32): brig.ConnectionFailed} {
		a := s.api(t, func(c *Config) { c.PinSHA256 = pin })
		a.http.Transport = transport(a.config, s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
		before := s.requests()
		err := a.get(t.Context(), "i1")
		if brig.KindOf(err) != want || want != "" && (s.requests() != before || brig.AsError(err).Field != "pin_sha256") {
			t.Errorf("pin %q: %v", pin, err)
		}
	}
	a := s.api(t, nil) // the certificate is not trusted
	if err := a.get(t.Context(), "i1"); brig.KindOf(err) != brig.ConnectionFailed || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("a stranger's certificate: %v", err)
	}
}

func TestConfigRules(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"":            func(*Config) {},
		"api_key":     func(c *Config) { c.APIKey = "" },
		"api_url":     func(c *Config) { c.APIURL = "http://elsewhere.example" },
		"sandbox_url": func(c *Config) { c.SandboxURL = "https://user@x" },
		"domain":      func(c *Config) { c.Domain = "x/y" },
		"pin_sha256":  func(c *Config) { c.PinSHA256 = "abc" },
	} {
		c := Driver().Config().(*Config)
		c.APIKey = "e2b_x"
		change(c)
		invalid := c.Validate()
		if field == "" && len(invalid) != 0 || field != "" && (len(invalid) != 1 || invalid[0].Field != field) {
			t.Errorf("%q: %+v", field, invalid)
		}
	}
	c := Driver().Config().(*Config)
	for _, want := range []struct{ region, domain, api, box string }{
		{"us", "", "https://api.e2b.app", "https://49983-i1.e2b.app"},
		{"eu", "", "https://api.eu.e2b.app", "https://49983-i1.eu.e2b.app"},
		{"eu", "e.example", "https://api.e.example", "https://49983-i1.e.example"},
	} {
		c.Region, c.Domain = want.region, want.domain
		if at, err := c.sandboxAddress("i1", ""); c.api() != want.api || at != want.box || err != nil {
			t.Errorf("%+v: %s, %s, %v", want, c.api(), at, err)
		}
	}
}

// TestTemplateIsFoundByDigest verifies that a template can be found by its assigned digest,
// even after a restart of the server.
func TestTemplateIsFoundByDigest(t *testing.T) {
	s := newCloud(t, false)
	dir := t.TempDir()
	agent := filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := func() *Provider {
		p, err := openProvider(brig.ProviderEnv{Dir: dir, Agent: agent, Called: func(brig.Call) {}}, s.api(t, nil).config)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := next()
	img, err := first.Image(t.Context(), brig.HostImage)
	if err != nil || len(img.Digest) != 71 {
		t.Fatalf("%+v, %v", img, err)
	}
	second := next()
	if id, err := second.templateOf(img.Digest); err != nil || id != "base" || first.serverMark != second.serverMark {
		t.Errorf("the next server knows %q, %v", id, err)
	}
	for _, digest := range []string{"", "host", "sha256:" + strings.Repeat("0", 64), "sha256:../../mark" + strings.Repeat("x", 54)} {
		if _, err := second.templateOf(digest); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%q: %v", digest, err)
		}
	}
}

// TestEndlessListIsRejected verifies that a list with an endless number of pages results
// in an error.
func TestEndlessListIsRejected(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Next-Token", "again")
		_, _ = io.WriteString(w, `[]`)
	}))
	defer srv.Close()
	a := newAPI(&Config{APIURL: srv.URL, Timeout: 5}, func(brig.Call) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := a.list(ctx, nil); brig.KindOf(err) != brig.ConnectionFailed || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}
