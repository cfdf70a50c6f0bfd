package alert_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
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

func begin(t *testing.T, o alert.WebhookOptions) *alert.Webhook {
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

func one(state brig.AlertState, value float64) []brig.Alert {
	return []brig.Alert{{Name: "BrigErrorRate", Severity: brig.Critical, State: state, Labels: map[string]string{"provider": "gvisor"}, Value: value, Since: time.Unix(1e9, 0)}}
}

// A receiver that fails is asked again, at longer and longer intervals, and is
// told how things stand by then. What it refuses for good is not repeated.
func TestWebhookTriesAgain(t *testing.T) {
	var asked atomic.Int32
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch asked.Add(1) {
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
	w := begin(t, alert.WebhookOptions{URL: srv.URL, First: 20 * time.Millisecond})
	start := time.Now()
	w.Tell(one(brig.AlertFiring, 0.25))
	body := <-got
	if took := time.Since(start); took < (20+40+80)*time.Millisecond {
		t.Errorf("three failures took %v: it did not wait longer each time", took)
	}
	if !strings.Contains(body, `"status":"firing"`) || asked.Load() != 4 {
		t.Errorf("asked %d times, the last with %s", asked.Load(), body)
	}
	w.Tell([]brig.Alert{{Name: "BrigRefused", State: brig.AlertFiring}})
	<-got
	w.Tell(one(brig.AlertResolved, 0))
	if body := <-got; !strings.Contains(body, `"status":"resolved"`) || asked.Load() != 6 {
		t.Errorf("after a refusal the receiver was asked %d times, the last with %s", asked.Load(), body)
	}
}

// While the receiver is away, what has changed takes the place of what was.
func TestWebhookTellsHowThingsStand(t *testing.T) {
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
	w := begin(t, alert.WebhookOptions{URL: srv.URL, First: 30 * time.Millisecond})
	w.Tell(one(brig.AlertFiring, 0.25))
	time.Sleep(10 * time.Millisecond)
	w.Tell(one(brig.AlertResolved, 0.01))
	w.Tell([]brig.Alert{{Name: "BrigErrorRate", State: brig.AlertFiring, Labels: map[string]string{"provider": "other"}}})
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

// What is sent can be told from what somebody else sends, and goes nowhere but
// where the operator said.
func TestWebhookShowsItselfAndFollowsNobody(t *testing.T) {
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
	w := begin(t, alert.WebhookOptions{URL: srv.URL, Bearer: "b-e-a-r-e-r", Secret: "s-e-c-r-e-t", First: time.Millisecond})
	w.Tell(one(brig.AlertFiring, 0.25))
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

func TestWebhookAddresses(t *testing.T) {
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
