package alert_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
	"github.com/brig-run/brig/internal/testenv"
)

// countingWriter counts the bytes that a receiver has sent.
type countingWriter struct {
	w http.ResponseWriter
	n *atomic.Int64
}

func (s countingWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n.Add(int64(n))
	return n, err
}

// TestWebhookReadsEndlessResponseOnlyToLimit checks that an endless response is read only up to a limit, and uses
// little memory. The control reads the whole response.
func TestWebhookReadsEndlessResponseOnlyToLimit(t *testing.T) {
	var bytes, calls atomic.Int64
	const maximum = 256 << 20
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		testenv.WriteEndless(countingWriter{w, &bytes}, "", "x", maximum)
	}))
	defer srv.Close()
	w, err := alert.NewWebhook(alert.WebhookOptions{URL: srv.URL, RetryDelay: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go w.Run(ctx)
	grown := testenv.HeapGrowth(func() {
		for i := range 3 {
			w.Notify(alertList(brig.AlertFiring, float64(i+1)))
			for before := time.Now(); calls.Load() < int64(i+1); time.Sleep(5 * time.Millisecond) {
				if time.Since(before) > time.Minute {
					t.Fatal("the receiver is not asked again")
				}
			}
		}
	})
	if grown > 32<<20 || bytes.Load() > 64<<20 {
		t.Errorf("it takes %d MiB, of %d MiB that were sent", grown>>20, bytes.Load()>>20)
	}
	bytes.Store(0)
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 64<<10); err == nil; {
		_, err = resp.Body.Read(b)
	}
	if _ = resp.Body.Close(); bytes.Load() < maximum {
		t.Errorf("the control: %d MiB were sent", bytes.Load()>>20)
	}
}
