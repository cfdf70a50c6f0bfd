package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// busyServer is a server that rejects some calls before it accepts a call.
type busyServer struct {
	refusals int
	field    string
	bodies   []string
}

func (a *busyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.bodies = append(a.bodies, string(b))
	w := httptest.NewRecorder()
	if len(a.bodies) <= a.refusals {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusTooManyRequests)
		_, err = io.WriteString(w, `{"error":{"code":"SB008","kind":"rate_limited","message":"too many","field":"`+a.field+`"}}`)
	} else {
		_, err = io.WriteString(w, `{"name":"box","state":"running"}`)
	}
	return w.Result(), err
}

// TestCallAtCapacityIsRetried verifies that the client retries a call with the same body after the delay
// that a server at capacity requests, until the retry timeout. The client does not retry after a
// quota error.
func TestCallAtCapacityIsRetried(t *testing.T) {
	for name, c := range map[string]struct {
		server       busyServer
		retryTimeout time.Duration
		calls        int
		kind         brig.Kind
		least        time.Duration
	}{
		"capacity is free later":  {busyServer{refusals: 2, field: "capacity"}, 0, 3, "", 6 * time.Second},
		"capacity is never free":  {busyServer{refusals: 1000, field: "capacity"}, 8 * time.Second, 3, brig.RateLimited, 6 * time.Second},
		"the caller is impatient": {busyServer{refusals: 1, field: "capacity"}, -1, 1, brig.RateLimited, 0},
		"a quota is used up":      {busyServer{refusals: 1, field: "quota.sandboxes"}, 0, 1, brig.RateLimited, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, err := New(Options{URL: "http://127.0.0.1:1", RetryTimeout: c.retryTimeout, HTTP: &http.Client{Transport: &c.server}})
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				_, err = cl.Create(t.Context(), brig.Spec{Name: "box"})
				if err == nil && c.kind != "" || err != nil && brig.KindOf(err) != c.kind {
					t.Errorf("%v, want %q", err, c.kind)
				}
				if took := time.Since(begin); len(c.server.bodies) != c.calls || took < c.least {
					t.Errorf("%d calls in %v, want %d", len(c.server.bodies), took, c.calls)
				}
				for _, b := range c.server.bodies {
					if b == "" || b != c.server.bodies[0] {
						t.Errorf("bodies %q", c.server.bodies)
					}
				}
			})
		})
	}
}
