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
)

// Signature is the header with the time of a delivery and the HMAC-SHA256 of
// that, a dot and the body: t=1795000000,v1=hex.
const Signature = "X-Brig-Signature"

// WebhookOptions say where alerts go. All of it is the operator's: nothing that
// a tenant says comes into it.
type WebhookOptions struct {
	URL string
	// Insecure admits plain HTTP to somewhere else than the loopback.
	Insecure bool
	// Bearer is sent as the credentials, Secret signs; each may be empty.
	Bearer, Secret string
	// External is where this server can be looked at, for links.
	External string
	// First is how long is waited before a delivery is tried again, twice that
	// before the next, a minute at most. Default 1 s. GiveUp is when it is not
	// tried any more. Default 1 h.
	First, GiveUp time.Duration
	Log           *slog.Logger
}

// Webhook delivers alerts in the format of Alertmanager, version 4: those of
// one name together. While one is tried again and again, what comes after
// changes it: the receiver is told how things stand, not how they stood.
type Webhook struct {
	WebhookOptions
	client *http.Client
	wake   chan struct{}

	mu      sync.Mutex                       // guards the field below
	pending map[string]map[string]brig.Alert // by name and key
}

// NewWebhook checks the options and returns a Webhook, which Run sets going.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, brig.Errorf(brig.InvalidConfig, "alerts.webhook.url: %q is not the URL of a web server", brig.Clip(o.URL, 80)).
			WithHint("for example https://alerts.example/hook")
	}
	if u.Scheme == "http" && !o.Insecure && !loopback(u.Hostname()) {
		return nil, brig.Errorf(brig.InvalidConfig, "alerts.webhook.url: plain HTTP leaves this machine").
			WithHint("use https, or set alerts.webhook.insecure")
	}
	if o.First == 0 {
		o.First = time.Second
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
			Timeout: 10 * time.Second,
			// What the operator did not write down is not asked.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Tell has alerts delivered. It does not wait for that.
func (w *Webhook) Tell(list []brig.Alert) {
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

// take takes what is to be delivered of one name.
func (w *Webhook) take() (name string, alerts map[string]brig.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, alerts := range w.pending {
		delete(w.pending, name)
		return name, alerts
	}
	return "", nil
}

// giveBack is what could not be delivered, under what has come meanwhile.
func (w *Webhook) giveBack(name string, alerts map[string]brig.Alert) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(alerts, w.pending[name])
	w.pending[name] = alerts
}

// Run delivers until ctx ends.
func (w *Webhook) Run(ctx context.Context) {
	failing := map[string]time.Time{} // since when, by name
	wait := w.First
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
			wait = w.First
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if failing[name].IsZero() {
			failing[name] = time.Now()
		}
		if time.Since(failing[name]) > w.GiveUp || errors.Is(err, errRefused) {
			w.Log.ErrorContext(ctx, "deliver alerts; it is not tried again", "name", name, "err", err)
			delete(failing, name)
			continue
		}
		w.Log.WarnContext(ctx, "deliver alerts; it is tried again", "name", name, "in", wait, "err", err)
		w.giveBack(name, alerts)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Minute)
	}
}

// errRefused is an answer that will not be another.
var errRefused = errors.New("refused")

// deliver posts what there is to tell of one name.
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
	r.Header.Set("User-Agent", "brig")
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
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("the receiver answers %s", resp.Status)
	}
	return fmt.Errorf("%w: the receiver answers %s", errRefused, resp.Status)
}

// Sign makes the value of the header Signature.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(t + "."))
	h.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(h.Sum(nil))
}

// message is what Alertmanager sends, as its documentation has it.
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
	Alerts            []told            `json:"alerts"`
}

type told struct {
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
		t := told{
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
		keepSame(m.CommonLabels, t.Labels)
		keepSame(m.CommonAnnotations, t.Annotations)
	}
	return m
}

// keepSame keeps what both have alike.
func keepSame(common, other map[string]string) {
	maps.DeleteFunc(common, func(k, v string) bool { return other[k] != v })
}

func fingerprint(key string) string {
	h := fnv.New64a()
	h.Write([]byte(key))
	return fmt.Sprintf("%016x", h.Sum64())
}
