package e2b

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/version"
	"github.com/brig-run/brig/remote"
)

// api is a client of the control plane.
type api struct {
	config *Config
	http   *http.Client
	called func(brig.Call)
	pause  time.Duration // delay before the first retry; 0 means the default
}

// errPin is the error for a service whose certificate does not match the pin.
var errPin = errors.New("the service's certificate is not the pinned one")

func newAPI(c *Config, called func(brig.Call)) *api {
	return &api{config: c, called: called, http: &http.Client{
		Transport: transport(c, nil),
		// The client must not send a key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// transport returns the transport for connections to the control plane and to
// sandboxes, restricted to the addresses that the configuration allows. If
// roots is nil, it trusts the system's CAs.
func transport(c *Config, roots *x509.CertPool) *outbound.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 100, MaxIdleConnsPerHost: 32,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
	}
	if pin, err := hex.DecodeString(c.PinSHA256); err == nil && len(pin) == sha256.Size {
		t.TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
			return checkPin(pin, s.PeerCertificates)
		}
	}
	control, err := c.control()
	boxes, err2 := c.sandboxEndpoint()
	return outbound.NewTransport(t, net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}, func(host string, addr netip.Addr) error {
		switch {
		case err == nil && host == control.URL.Hostname():
			return remote.CheckAddress(control, addr)
		case err2 != nil:
			return errors.Join(err, err2)
		}
		return remote.CheckAddress(boxes, addr)
	})
}

// checkPin checks a certificate chain against a pin, in addition to the usual
// TLS verification.
func checkPin(pin []byte, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errPin
	}
	sum := sha256.Sum256(chain[0].RawSubjectPublicKeyInfo)
	if subtle.ConstantTimeCompare(sum[:], pin) != 1 {
		return errPin
	}
	return nil
}

// tries is the maximum number of attempts of a call.
const tries = 3

// Limits of responses.
const (
	maxAnswer = 256 << 10 // bytes of a response
	maxPage   = 4 << 20   // bytes of a page of a list
	maxToken  = 4 << 10   // bytes of the token of a sandbox or of a page
)

// request is one call.
type request struct {
	op, method, path string
	body             any
	// safe reports whether the request may be repeated.
	safe bool
	// maxSize is the maximum size of the response, in bytes. The default is
	// maxAnswer.
	maxSize int64
}

// do makes a call, retries it if this is allowed, and decodes the response.
func (a *api) do(ctx context.Context, r request, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.config.Timeout)*time.Second)
	defer cancel()
	body, err := json.Marshal(r.body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.op, err)
	}
	if r.body == nil {
		body = nil
	}
	for attempt := 1; ; attempt++ {
		header, err := a.sendOnce(ctx, r, body, out)
		if err == nil || attempt == tries || ctx.Err() != nil || !a.isRetryable(r, err) {
			return header, err
		}
		wait := a.wait(attempt, err)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// isRetryable reports whether a failed call may be retried, because either the
// call was not executed or a repetition is safe.
func (a *api) isRetryable(r request, err error) bool {
	switch brig.KindOf(err) {
	case brig.RateLimited:
		return true
	case brig.Unavailable, brig.ConnectionFailed:
		return !errors.Is(err, errPin) && (r.safe || errors.Is(err, syscall.ECONNREFUSED))
	}
	return false
}

// wait returns the delay before the next attempt. The delay is random, its
// maximum doubles with each attempt, and its minimum is the service's
// Retry-After.
func (a *api) wait(attempt int, err error) time.Duration {
	maxWait := a.pause
	if maxWait == 0 {
		maxWait = 500 * time.Millisecond
	}
	maxWait <<= attempt - 1
	wait := maxWait/4 + rand.N(maxWait)
	if e := brig.AsError(err); e != nil {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

func (a *api) sendOnce(ctx context.Context, r request, body []byte, out any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, a.config.api()+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", r.op, err)
	}
	req.Header.Set("X-API-Key", a.config.APIKey)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.send(r.op, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	maxSize := cmp.Or(r.maxSize, maxAnswer)
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err != nil {
		return nil, unreachableError(err)
	}
	if int64(len(b)) > maxSize {
		return nil, brig.Errorf(brig.ConnectionFailed, "the service's answer to %s has more than %s", r.op, brig.FormatBytes(maxSize)).
			WithHint("check that api_url is the address of an E2B control plane")
	}
	if resp.StatusCode/100 != 2 {
		return nil, failureError(resp, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			return nil, brig.Errorf(brig.ConnectionFailed, "the service's answer to %s is not what E2B's is", r.op).
				WithHint("check that api_url is the address of an E2B control plane").Because(err)
		}
	}
	return resp.Header, nil
}

// send sends one request and records it.
func (a *api) send(op string, req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", version.UserAgent())
	begin := time.Now()
	resp, err := a.http.Do(req)
	call := brig.Call{Operation: op, Region: a.config.Region, Seconds: time.Since(begin).Seconds()}
	if err == nil {
		call.Status = resp.StatusCode
		call.Limit = headerNumber(resp.Header, "RateLimit-Limit", "X-RateLimit-Limit")
		if left := headerNumber(resp.Header, "RateLimit-Remaining", "X-RateLimit-Remaining"); call.Limit > 0 {
			call.Used = max(0, call.Limit-left)
		}
	}
	a.called(call)
	if err != nil {
		return nil, unreachableError(err)
	}
	return resp, nil
}

func headerNumber(h http.Header, names ...string) float64 {
	for _, name := range names {
		first, _, _ := strings.Cut(h.Get(name), ",") // a policy may follow
		if n, err := strconv.ParseFloat(strings.TrimSpace(first), 64); err == nil && n >= 0 {
			return n
		}
	}
	return 0
}

// unreachableError returns the error for a request without a response.
func unreachableError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	e := brig.Errorf(brig.ConnectionFailed, "the E2B service cannot be reached").WithHint("see that api_url or domain is right, and that this machine may connect to it").Because(err)
	if r, ok := errors.AsType[*outbound.Refusal](err); ok {
		cause := brig.AsError(r.Err)
		e.Message, e.Hint, e.Field = "the E2B service is where it may not be: "+cause.Message, cause.Hint, cause.Field
		return e
	}
	_, dns := errors.AsType[*net.DNSError](err)
	_, cert := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, errPin):
		e.Message, e.Field = "the E2B service's certificate is not the pinned one", "pin_sha256"
		e.Hint = "somebody is between, or the service has a new key: then change pin_sha256"
	case dns:
		e.Message = "the E2B service's name is not known"
	case cert:
		e.Message = "the E2B service's certificate is not trusted"
	case errors.Is(err, context.DeadlineExceeded):
		e.Message = "the E2B service does not answer in time"
	}
	return e
}

// failureError returns the error for an unsuccessful response.
func failureError(resp *http.Response, body []byte) error {
	var detail struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &detail) // ignore the error: a proxy may respond in another format
	message := brig.Clip(strings.ToValidUTF8(detail.Message, "?"), 300)
	cause := fmt.Errorf("status %d: %s", resp.StatusCode, brig.Clip(string(body), 300))
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e := brig.Errorf(brig.InvalidConfig, "the E2B service does not take this key").WithHint("give another api_key: brig provider configure")
		e.Field = "api_key"
		return e.Because(cause)
	case code == http.StatusNotFound:
		return brig.Errorf(brig.NotFound, "the E2B service knows nothing of it: %s", message).Because(cause)
	case code == http.StatusTooManyRequests:
		e := brig.Errorf(brig.RateLimited, "the E2B service rejects calls because of a rate limit").WithHint("wait, or ask E2B for more").Because(cause)
		e.RetryAfter = retryAfter(resp.Header)
		return e
	case code >= 500:
		e := brig.Errorf(brig.Unavailable, "the E2B service is out of order (%d)", code).WithHint("try again, or route to another provider").Because(cause)
		e.RetryAfter = retryAfter(resp.Header)
		return e
	case code/100 == 3:
		e := brig.Errorf(brig.InvalidConfig, "the E2B service is somewhere else").WithHint("give its own address as api_url").Because(cause)
		e.Field = "api_url"
		return e
	default:
		return brig.Errorf(brig.FailedPrecondition, "the E2B service refuses: %s", message).Because(cause)
	}
}

// longestWait is the maximum accepted Retry-After of a service.
const longestWait = time.Hour

func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return min(time.Duration(n)*time.Second, longestWait)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(0, time.Until(at)), longestWait)
	}
	return 0
}

// sandbox is the control plane's description of a sandbox.
type sandbox struct {
	SandboxID       string   `json:"sandboxID"`
	EnvdAccessToken string   `json:"envdAccessToken"`
	Domain          *string  `json:"domain"`
	Metadata        metadata `json:"metadata"`
}

// metadata is the metadata that this server sets on its sandboxes. Other
// metadata is ignored.
type metadata struct {
	Site      string `json:"brig_site"`
	ID        string `json:"brig_id"`
	Ephemeral string `json:"brig_ephemeral"`
}

// check returns an error if the sandbox's identifiers do not have the format
// of an E2B service.
func (s *sandbox) check() error {
	if !sandboxID.MatchString(s.SandboxID) || len(s.EnvdAccessToken) > maxToken {
		return brig.Errorf(brig.ConnectionFailed, "the E2B service named a sandbox %q, which cannot be the id of one", brig.Clip(s.SandboxID, 60)).
			WithHint("check that api_url is the address of an E2B control plane")
	}
	return nil
}

// Keys of a sandbox's metadata.
const (
	metaSite      = "brig_site"
	metaID        = "brig_id"
	metaEphemeral = "brig_ephemeral"
)

func (a *api) create(ctx context.Context, template string, seconds int64, metadata map[string]string) (*sandbox, error) {
	body := map[string]any{"templateID": template, "timeout": seconds, "metadata": metadata, "secure": true, "allow_internet_access": false}
	var s sandbox
	if _, err := a.do(ctx, request{op: "create", method: http.MethodPost, path: "/sandboxes", body: body}, &s); err != nil {
		return nil, err
	}
	return &s, s.check()
}

// connect returns the access data of an existing sandbox.
func (a *api) connect(ctx context.Context, id string) (*sandbox, error) {
	var s sandbox
	// A timeout shorter than the current one does not change it.
	_, err := a.do(ctx, request{op: "connect", method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/connect", body: map[string]any{"timeout": 1}, safe: true}, &s)
	if err != nil {
		return nil, err
	}
	return &s, s.check()
}

func (a *api) get(ctx context.Context, id string) error {
	_, err := a.do(ctx, request{op: "get", method: http.MethodGet, path: "/sandboxes/" + url.PathEscape(id), safe: true}, nil)
	return err
}

func (a *api) timeoutError(ctx context.Context, id string, seconds int64) error {
	_, err := a.do(ctx, request{op: "timeout", method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/timeout", body: map[string]any{"timeout": seconds}, safe: true}, nil)
	return err
}

// kill ends a sandbox. It returns no error if the sandbox does not exist.
func (a *api) kill(ctx context.Context, id string) error {
	_, err := a.do(ctx, request{op: "kill", method: http.MethodDelete, path: "/sandboxes/" + url.PathEscape(id), safe: true}, nil)
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	return err
}

// Limits of a list.
const (
	pageSize = 100
	maxPages = 100
)

// list lists the sandboxes with the given metadata. Because the service is
// untrusted, list rejects pages with more sandboxes than requested, and limits
// the number of pages.
func (a *api) list(ctx context.Context, metadata url.Values) ([]sandbox, error) {
	var all []sandbox
	invalid := func(what string) error {
		return brig.Errorf(brig.ConnectionFailed, "the E2B service's list of sandboxes %s", what).WithHint("check that api_url is the address of an E2B control plane")
	}
	for next, pages := "", 0; ; pages++ {
		if pages == maxPages {
			return nil, invalid("has no end")
		}
		q := url.Values{"metadata": {metadata.Encode()}, "state": {"running"}, "limit": {strconv.Itoa(pageSize)}}
		if next != "" {
			q.Set("nextToken", next)
		}
		var page page
		h, err := a.do(ctx, request{op: "list", method: http.MethodGet, path: "/v2/sandboxes?" + q.Encode(), safe: true, maxSize: maxPage}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		token := h.Get("X-Next-Token")
		switch {
		case token == "":
			return all, nil
		case token == next, len(token) > maxToken:
			return nil, invalid("has no end")
		}
		next = token
	}
}

// page is one page of a list.
type page []sandbox

// UnmarshalJSON implements json.Unmarshaler.
func (p *page) UnmarshalJSON(b []byte) error {
	list, err := remote.DecodeList[sandbox](b, pageSize)
	for _, s := range list {
		err = errors.Join(err, s.check())
	}
	*p = list
	return err
}

// maxMetrics is the maximum number of samples in a response.
const maxMetrics = 20_000

// metric is a sample of a sandbox's usage.
type metric struct {
	TimestampUnix int64   `json:"timestampUnix"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       int64   `json:"memUsed"`
	MemCache      int64   `json:"memCache"`
}

func (a *api) metrics(ctx context.Context, id string) ([]metric, error) {
	var all json.RawMessage
	if _, err := a.do(ctx, request{op: "metrics", method: http.MethodGet, path: "/sandboxes/" + url.PathEscape(id) + "/metrics", safe: true, maxSize: maxPage}, &all); err != nil {
		return nil, err
	}
	list, err := remote.DecodeList[metric](all, maxMetrics)
	if err != nil {
		return nil, brig.Errorf(brig.ConnectionFailed, "the E2B service's metrics are not in E2B's format").Because(err)
	}
	return list, nil
}

// template resolves a template's name to its ID.
func (a *api) template(ctx context.Context, name string) (string, error) {
	var t struct {
		TemplateID string `json:"templateID"`
	}
	_, err := a.do(ctx, request{op: "template", method: http.MethodGet, path: "/templates/aliases/" + url.PathEscape(name), safe: true}, &t)
	if brig.KindOf(err) == brig.NotFound {
		_, err = a.do(ctx, request{op: "template", method: http.MethodGet, path: "/templates/" + url.PathEscape(name), safe: true}, &t)
	}
	return t.TemplateID, err
}
