package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/version"
)

// Signature is the name of a header. Its value contains the time of a delivery and the HMAC-SHA256
// of the time, a dot and the body: t=1795000000,v1=hex.
const Signature = "X-Brig-Signature"

// WebhookOptions configure the receiver of alerts. Only the operator sets them.
// They contain no input from tenants.
type WebhookOptions struct {
	URL string
	// Insecure allows plain HTTP to an address outside the loopback.
	Insecure bool
	// Bearer is the bearer token, and Secret the signing key. Each may be
	// empty.
	Bearer, Secret string
	// External is the public URL of this server, for links.
	External string
	// RetryDelay is the delay before the first retry of a delivery. It doubles with every retry, up
	// to a minute. The default is 1 s. GiveUp is the time after which the delivery is abandoned.
	// The default is 1 h.
	RetryDelay, GiveUp time.Duration
	Log                *slog.Logger
}

// Webhook delivers alerts in the format of Alertmanager, version 4. Alerts with
// the same name are delivered together. While a delivery is retried, later
// alerts update it, so that the receiver gets the current state.
type Webhook struct {
	WebhookOptions
	client *http.Client
	wake   chan struct{}

	mu      sync.Mutex                       // guards the field below
	pending map[string]map[string]brig.Alert // by name and key
}

// NewWebhook checks the options and returns a Webhook. Run starts it.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, brig.Errorf(brig.InvalidConfig, "alerts.webhook.url: %q is not the URL of a web server", brig.Clip(o.URL, 80)).
			WithHint("for example https://alerts.example/hook")
	}
	if u.Scheme == "http" && !o.Insecure && !isLoopback(u.Hostname()) {
		return nil, brig.Errorf(brig.InvalidConfig, "alerts.webhook.url: plain HTTP leaves this machine").
			WithHint("use https, or set alerts.webhook.insecure")
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = time.Second
	}
	if o.GiveUp == 0 {
		o.GiveUp = time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Webhook{
		WebhookOptions: o, wake: make(chan struct{}, 1), pending: map[string]map[string]brig.Alert{},
		client: &http.Client{
			Timeout:   10 * time.Second,
			Transport: outbound.NewDefaultTransport(brig.CheckConfiguredAddr),
			// Only the URL that the operator configured is called, so redirects
			// are not followed.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Notify queues alerts for delivery. It does not wait for the delivery.
func (w *Webhook) Notify(list []brig.Alert) {
	w.mu.Lock()
	for _, a := range list {
		if w.pending[a.Name] == nil {
			w.pending[a.Name] = map[string]brig.Alert{}
		}
		w.pending[a.Name][keyOf(a.Name, a.Labels)] = a
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take removes the alerts of one name from the queue and returns them.
func (w *Webhook) take() (name string, alerts map[string]brig.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, alerts := range w.pending {
		delete(w.pending, name)
		return name, alerts
	}
	return "", nil
}

// requeue returns alerts to the queue after a failed delivery. Newer alerts in
// the queue take precedence.
func (w *Webhook) requeue(name string, alerts map[string]brig.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(alerts, w.pending[name])
	w.pending[name] = alerts
}

// Run delivers alerts until ctx is done.
func (w *Webhook) Run(ctx context.Context) {
	failing := map[string]time.Time{} // time of the first failure, by name
	wait := w.RetryDelay
	for {
		name, alerts := w.take()
		if alerts == nil {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			continue
		}
		err := w.deliver(ctx, name, alerts)
		if err == nil {
			delete(failing, name)
			wait = w.RetryDelay
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if failing[name].IsZero() {
			failing[name] = time.Now()
		}
		if time.Since(failing[name]) > w.GiveUp || errors.Is(err, errRefused) {
			w.Log.ErrorContext(ctx, "failed to deliver alerts; giving up", "name", name, "err", err)
			delete(failing, name)
			continue
		}
		w.Log.WarnContext(ctx, "failed to deliver alerts; retrying", "name", name, "in", wait, "err", err)
		w.requeue(name, alerts)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Minute)
	}
}

// errRefused reports a response after which a retry is useless.
var errRefused = errors.New("refused")

// deliver posts the alerts of one name.
func (w *Webhook) deliver(ctx context.Context, name string, alerts map[string]brig.Alert) error {
	body, err := json.Marshal(w.message(name, alerts))
	if err != nil {
		return errors.Join(errRefused, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.Join(errRefused, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", version.UserAgent())
	if w.Bearer != "" {
		r.Header.Set("Authorization", "Bearer "+w.Bearer)
	}
	if w.Secret != "" {
		r.Header.Set(Signature, Sign(w.Secret, time.Now(), body))
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be reused
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("the receiver answers %s", resp.Status)
	}
	return fmt.Errorf("%w: the receiver answers %s", errRefused, resp.Status)
}

// Sign returns the value of the header Signature.
func Sign(secret string, now time.Time, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(t + "."))
	h.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(h.Sum(nil))
}

// message is the request body that Alertmanager's documentation specifies.
type message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []notified        `json:"alerts"`
}

type notified struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

func (w *Webhook) message(name string, alerts map[string]brig.Alert) message {
	m := message{
		Version: "4", GroupKey: fmt.Sprintf("{}:{alertname=%q}", name), Status: string(brig.AlertResolved), Receiver: "brig",
		GroupLabels: map[string]string{"alertname": name}, ExternalURL: w.External,
	}
	for _, key := range slices.Sorted(maps.Keys(alerts)) {
		a := alerts[key]
		t := notified{
			Status: string(a.State), Labels: map[string]string{"alertname": a.Name, "severity": string(a.Severity)},
			Annotations: map[string]string{"summary": a.Summary, "description": a.Hint, "value": strconv.FormatFloat(a.Value, 'g', -1, 64)},
			StartsAt:    a.Since, EndsAt: a.Resolved, GeneratorURL: w.External, Fingerprint: fingerprint(key),
		}
		maps.Copy(t.Labels, a.Labels)
		if a.State == brig.AlertFiring {
			m.Status = string(brig.AlertFiring)
		}
		m.Alerts = append(m.Alerts, t)
		if m.CommonLabels == nil {
			m.CommonLabels, m.CommonAnnotations = maps.Clone(t.Labels), maps.Clone(t.Annotations)
		}
		intersectLabels(m.CommonLabels, t.Labels)
		intersectLabels(m.CommonAnnotations, t.Annotations)
	}
	return m
}

// intersectLabels removes the labels from common that are missing or have a
// different value in other.
func intersectLabels(common, other map[string]string) {
	maps.DeleteFunc(common, func(k, v string) bool { return other[k] != v })
}

func fingerprint(key string) string {
	h := fnv.New64a()
	h.Write([]byte(key))
	return fmt.Sprintf("%016x", h.Sum64())
}
