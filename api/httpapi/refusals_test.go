package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Sixteen clients that retry immediately together receive about 200 responses with status 429
// per second, and no client waits long. Control: other responses are not delayed.
func TestRejectionsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Int64
		status.Store(http.StatusTooManyRequests)
		h := Wrap(slog.New(slog.NewTextHandler(io.Discard, nil)), nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(int(status.Load()))
		}))
		ask := func(ctx context.Context) time.Duration {
			begin := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if w.Code != int(status.Load()) {
				t.Errorf("answered %d", w.Code)
			}
			return time.Since(begin)
		}
		const elapsed = 10 * time.Second
		var calls sync.WaitGroup
		var responses atomic.Int64
		end := time.Now().Add(elapsed)
		for range 16 {
			calls.Go(func() {
				for time.Now().Before(end) {
					if took := ask(t.Context()); took > maxRejectionDelay {
						t.Errorf("a refusal took %v", took)
					}
					responses.Add(1)
				}
			})
		}
		calls.Wait()
		if n, maximum := responses.Load(), int64(rejectionsPerSecond*(elapsed.Seconds()+1)+16); n > maximum || n < maximum*9/10 {
			t.Errorf("%d refusals in %v, want about %d", n, elapsed, maximum)
		}
		// No client waits longer than the maximum, however many clients wait.
		for range 3000 {
			calls.Go(func() {
				if took := ask(t.Context()); took > maxRejectionDelay {
					t.Errorf("one of many refusals took %v", took)
				}
			})
		}
		canceled, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		cancel()
		if took := ask(canceled); took > 0 {
			t.Errorf("a disconnected client was waited for %v", took)
		}
		status.Store(http.StatusOK)
		for range 1000 {
			if took := ask(t.Context()); took > 0 {
				t.Fatalf("the control: an answer that is no refusal took %v", took)
			}
		}
		status.Store(http.StatusTooManyRequests)
		calls.Wait()
	})
}
