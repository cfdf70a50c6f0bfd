package alert_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/alert"
)

func startWebhook(t *testing.T, o alert.WebhookOptions) *alert.Webhook {
	t.Helper()
	w, err := alert.NewWebhook(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { end(); work.Wait() })
	return w
}

func alertList(state brig.AlertState, value float64) []brig.Alert {
	return []brig.Alert{{Name: "BrigErrorRate", Severity: brig.Critical, State: state, Labels: map[string]string{"provider": "gvisor"}, Value: value, Since: time.Unix(1e9, 0)}}
}

// TestWebhookRetriesFailedDelivery checks that a delivery to a failing receiver is retried at
// increasing intervals, with the current state. A delivery that the receiver
// rejects permanently is not retried.
func TestWebhookRetriesFailedDelivery(t *testing.T) {
	var requests atomic.Int32
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch requests.Add(1) {
		case 1, 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			got <- string(b)
			if strings.Contains(string(b), "BrigRefused") {
				w.WriteHeader(http.StatusBadRequest)
			}
		}
	}))
	defer srv.Close()
	w := startWebhook(t, alert.WebhookOptions{URL: srv.URL, RetryDelay: 20 * time.Millisecond})
	start := time.Now()
	w.Notify(alertList(brig.AlertFiring, 0.25))
	body := <-got
	if took := time.Since(start); took < (20+40+80)*time.Millisecond {
		t.Errorf("three failures took %v: it did not wait longer each time", took)
	}
	if !strings.Contains(body, `"status":"firing"`) || requests.Load() != 4 {
		t.Errorf("asked %d times, the last with %s", requests.Load(), body)
	}
	w.Notify([]brig.Alert{{Name: "BrigRefused", State: brig.AlertFiring}})
	<-got
	w.Notify(alertList(brig.AlertResolved, 0))
	if body := <-got; !strings.Contains(body, `"status":"resolved"`) || requests.Load() != 6 {
		t.Errorf("after a refusal the receiver was asked %d times, the last with %s", requests.Load(), body)
	}
}

// TestWebhookSendsLatestState checks that alerts that change while the receiver
// is unavailable replace the queued alerts.
func TestWebhookSendsLatestState(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- string(b)
	}))
	defer srv.Close()
	w := startWebhook(t, alert.WebhookOptions{URL: srv.URL, RetryDelay: 30 * time.Millisecond})
	w.Notify(alertList(brig.AlertFiring, 0.25))
	time.Sleep(10 * time.Millisecond)
	w.Notify(alertList(brig.AlertResolved, 0.01))
	w.Notify([]brig.Alert{{Name: "BrigErrorRate", State: brig.AlertFiring, Labels: map[string]string{"provider": "other"}}})
	away.Store(false)
	var m struct {
		Status       string
		Alerts       []struct{ Status string }
		CommonLabels map[string]string
	}
	if err := json.Unmarshal([]byte(<-got), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Alerts) != 2 || m.Status != "firing" || m.Alerts[0].Status != "resolved" || m.Alerts[1].Status != "firing" {
		t.Errorf("told %+v", m)
	}
	if m.CommonLabels["alertname"] != "BrigErrorRate" || m.CommonLabels["provider"] != "" {
		t.Errorf("two alerts have in common %v", m.CommonLabels)
	}
}

// TestWebhookAuthenticatesAndRefusesRedirects checks that a receiver can
// authenticate deliveries, and that deliveries go only to the operator's URL.
func TestWebhookAuthenticatesAndRefusesRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	type seen struct {
		header http.Header
		body   []byte
	}
	got := make(chan seen, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- seen{r.Header, b}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	w := startWebhook(t, alert.WebhookOptions{URL: srv.URL, Bearer: "b-e-a-r-e-r", Secret: "s-e-c-r-e-t", RetryDelay: time.Millisecond})
	w.Notify(alertList(brig.AlertFiring, 0.25))
	s := <-got
	if s.header.Get("Authorization") != "Bearer b-e-a-r-e-r" {
		t.Errorf("Authorization: %s", s.header.Get("Authorization"))
	}
	at, sum, _ := strings.Cut(strings.TrimPrefix(s.header.Get(alert.Signature), "t="), ",v1=")
	h := hmac.New(sha256.New, []byte("s-e-c-r-e-t"))
	h.Write([]byte(at + "." + string(s.body)))
	if hex.EncodeToString(h.Sum(nil)) != sum || strings.Contains(string(s.body), "s-e-c-r-e-t") {
		t.Errorf("the signature %q is not that of the body", s.header.Get(alert.Signature))
	}
	select {
	case <-got:
		t.Error("what was refused with a redirect was sent again")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestWebhookRejectsInvalidURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://alerts.example/hook": true, "http://127.0.0.1:9/hook": true, "http://localhost/": true, "http://[::1]:9/": true,
		"http://alerts.example/hook": false, "http://169.254.169.254/": false, "ftp://alerts.example/": false, "alerts.example": false,
		"file:///etc/passwd": false, "http://": false, "://": false,
	} {
		if _, err := alert.NewWebhook(alert.WebhookOptions{URL: url}); (err == nil) != ok || err != nil && brig.KindOf(err) != brig.InvalidConfig {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := alert.NewWebhook(alert.WebhookOptions{URL: "http://alerts.example/", Insecure: true}); err != nil {
		t.Error(err)
	}
}

// TestWebhookRejectsMetadataAddress checks that alerts are never sent to the metadata address
// of clouds, directly or by a redirect. As a control, the other tests deliver
// to a receiver on this machine.
func TestWebhookRejectsMetadataAddress(t *testing.T) {
	var log lines
	w, err := alert.NewWebhook(alert.WebhookOptions{
		URL: "https://169.254.169.254/latest", RetryDelay: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go w.Run(ctx)
	w.Notify(alertList(brig.AlertFiring, 1))
	for !strings.Contains(log.String(), "169.254.169.254 is in 169.254.0.0/16") {
		select {
		case <-t.Context().Done():
			t.Fatalf("the log has %s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lines is a log that a test reads while it is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
