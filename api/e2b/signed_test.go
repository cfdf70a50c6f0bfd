package e2b_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
)

// After a few wrong signatures from one address, further wrong signatures get status 429 with
// the time to wait.
func TestSignatureRateLimit(t *testing.T) {
	_, _, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	byStatus := map[int]int{}
	for range 500 {
		resp, _ := doRequest(t, http.MethodGet, srv.URL+"/files?path=x&signature=v1_x", "")
		byStatus[resp.StatusCode]++
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Fatal("it does not say when to try again")
		}
	}
	if byStatus[http.StatusUnauthorized] < 20 || byStatus[http.StatusTooManyRequests] < 300 {
		t.Errorf("responses by status: %v", byStatus)
	}
}

// A valid signature is served even if its address has sent wrong signatures, and even if the
// signing key received its token from an earlier server. Control: wrong signatures from the
// address get status 429.
func TestValidSignatureFromGuessingAddress(t *testing.T) {
	_, d, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	d.Options.TenantKeys = func(context.Context, string) ([]string, error) { return []string{"earlier"}, nil }
	limited := 0
	for range 100 {
		if resp, _ := doRequest(t, http.MethodGet, srv.URL+"/files?path=x&signature=v1_x", ""); resp.StatusCode == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited < 20 {
		t.Fatalf("control: %d of 100 guesses are limited", limited)
	}
	for who, token := range map[string]string{"a receiver": token1, "a key of an earlier server": d.Token("sb1", "earlier")} {
		for range 5 {
			resp, got := doRequest(t, http.MethodGet, srv.URL+"/files?path=hello.txt&username=user&signature="+url.QueryEscape(e2b.Sign("hello.txt:read:user:"+token)), "")
			if resp.StatusCode != http.StatusOK || !strings.Contains(got, "in sb1") {
				t.Errorf("signed by %s: %d %s", who, resp.StatusCode, got)
			}
		}
	}
}

// A search that waits for the store does not delay the turn of a valid signature from the same
// address.
func TestWaitingSearchDoesNotDelayGoodSignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		var load time.Duration
		d := e2b.New(e2b.Options{
			Service: s, Keys: keys{}, Owner: s.owner, Seed: []byte("seed"), Envd: envd,
			Templates:  []brig.Template{{Name: "base", Image: "host"}},
			TenantKeys: func(context.Context, string) ([]string, error) { return nil, nil },
			Existing: func(context.Context) ([]string, error) {
				time.Sleep(load)
				return nil, errors.New("the store is busy")
			},
		})
		do := func(method, at, body string) int {
			r := httptest.NewRequest(method, "http://127.0.0.1"+at, strings.NewReader(body)).WithContext(t.Context())
			r.Header.Set("X-API-KEY", key)
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			return w.Code
		}
		if code := do(http.MethodPost, "/sandboxes", `{"templateID":"base"}`); code != http.StatusCreated {
			t.Fatalf("the sandbox: %d", code)
		}
		get := func(signature string) int {
			return do(http.MethodGet, "/files?path=hello.txt&username=user&signature="+url.QueryEscape(signature), "")
		}
		for range 30 {
			get("v1_x")
		}
		load = 2 * time.Second
		get("v1_x")
		load = 0
		for range 4 { // the number of turns that became free under high load
			get("v1_x")
		}
		begin := time.Now()
		if code := get(e2b.Sign("hello.txt:read:user:" + token1)); code != http.StatusOK || time.Since(begin) > 0 {
			t.Errorf("a good signature gets %d after %v", code, time.Since(begin))
		}
	})
}

// The search for a signer compares each key only once.
func TestSignerSearchComparesKeysOnce(t *testing.T) {
	_, d, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	d.Options.TenantKeys = func(context.Context, string) ([]string, error) { return []string{"k1", "k2", "k3"}, nil }
	before := d.OtherKeys(t.Context(), "sb1", "acme")
	d.Receive("sb1", "acme", "k2")
	after := d.OtherKeys(t.Context(), "sb1", "acme")
	slices.Sort(after)
	if len(before) < 3 || slices.Contains(after, "k2") || !slices.Contains(after, "k1") || len(after) != len(before)-1 {
		t.Errorf("%q, then %q", before, after)
	}
}

// The number of wrong signatures in a burst from one address is limited before the search for
// their keys, because the search serves one request at a time.
func TestSignatureBurst(t *testing.T) {
	_, d, srv := serve(t)
	createSandbox(t, srv.URL, `{"templateID":"base"}`)
	search := make(chan struct{})
	d.Options.TenantKeys = func(context.Context, string) ([]string, error) { return nil, nil }
	d.Options.Existing = func(context.Context) ([]string, error) {
		<-search
		return nil, nil
	}
	limited, others := make(chan struct{}, 100), make(chan int, 100)
	var burst sync.WaitGroup
	for range 100 {
		burst.Go(func() {
			resp, _ := doRequest(t, http.MethodGet, srv.URL+"/files?path=x&signature=v1_x", "")
			if resp.StatusCode == http.StatusTooManyRequests {
				limited <- struct{}{}
			} else {
				others <- resp.StatusCode
			}
		})
	}
	for n := range 50 {
		select {
		case <-limited:
		case <-time.After(30 * time.Second):
			t.Errorf("%d of 100 requests are limited", n)
			close(search)
			burst.Wait()
			return
		}
	}
	close(search)
	burst.Wait()
	close(others)
	for code := range others {
		if code != http.StatusUnauthorized {
			t.Errorf("a request within the limit gets %d", code)
		}
	}
}
