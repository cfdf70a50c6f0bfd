package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

// used is a Memory with a limit of 1000 bytes.
type used struct{ atomic.Int64 }

func (*used) Limit() int64  { return 1000 }
func (u *used) Used() int64 { return u.Load() }

// A server that uses nearly all of its memory rejects new work with 503, but
// accepts requests that only read, stop or remove. It accepts new work again
// when its memory usage is clearly lower.
func TestServerShedsWorkWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, m := httpapi.NewLimiter(httpapi.Limits{}), &used{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go limiter.Watch(ctx, m, slog.New(slog.DiscardHandler))
		h := limiter.Handler(httpapi.Wrap(slog.New(slog.DiscardHandler), nil, httpapi.Auth(transcript.RoleKeys{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
		ask := func(method, path string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("Authorization", "Bearer "+transcript.KeyOf(brig.Member))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for i, step := range []struct {
			used   int64
			status int
		}{{800, 200}, {860, 503}, {990, 503}, {800, 503}, {740, 200}, {840, 200}, {900, 503}} {
			m.Store(step.used)
			time.Sleep(time.Second)
			if w := ask("POST", "/v1/run"); w.Code != step.status || (w.Code == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("step %d, %d bytes: %d, Retry-After %q", i, step.used, w.Code, w.Header().Get("Retry-After"))
			}
			for method, path := range map[string]string{"GET": "/v1/sandboxes", "DELETE": "/v1/sandboxes/one", "POST": "/v1/sandboxes/one/kill"} {
				if w := ask(method, path); w.Code != 200 {
					t.Errorf("step %d: %s %s: %d", i, method, path, w.Code)
				}
			}
		}
	})
}

// The concurrent requests of one key and of one tenant are limited.
func TestConcurrentRequestsAreLimited(t *testing.T) {
	limiter := httpapi.NewLimiter(httpapi.Limits{Open: 2, TenantOpen: 3})
	waits := make(chan struct{})
	in := make(chan struct{}, 10)
	h := limiter.Handler(httpapi.Wrap(slog.New(slog.DiscardHandler), nil, httpapi.Auth(transcript.RoleKeys{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		in <- struct{}{}
		<-waits
	}))))
	ask := func(role brig.Role) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+transcript.KeyOf(role))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	done := make(chan int, 3)
	for _, role := range []brig.Role{brig.Viewer, brig.Viewer, brig.Member} {
		go func() { done <- ask(role).Code }()
		<-in
	}
	for who, role := range map[string]brig.Role{"the key": brig.Viewer, "the tenant": brig.Admin} {
		if w := ask(role); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("one too many of %s: %d", who, w.Code)
		}
	}
	close(waits)
	for range 3 {
		if code := <-done; code != 200 {
			t.Errorf("%d", code)
		}
	}
	if w := ask(brig.Viewer); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}
