package e2b

import (
	"bytes"
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
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig"
)

// api is the control plane.
type api struct {
	config *Config
	http   *http.Client
	called func(brig.Call)
	pause  time.Duration // before the first repetition; 0 is the default
}

// errPin is a service that is not the one it should be.
var errPin = errors.New("the service's certificate is not the pinned one")

func newAPI(c *Config, called func(brig.Call)) *api {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.Proxy = 32, http.ProxyFromEnvironment
	if pin, err := hex.DecodeString(c.PinSHA256); err == nil && len(pin) == sha256.Size {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, VerifyConnection: func(s tls.ConnectionState) error {
			return checkPin(pin, s.PeerCertificates)
		}}
	}
	return &api{config: c, called: called, http: &http.Client{
		Transport: t,
		// A key goes to nobody but who it is for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// checkPin is in addition to what TLS checks anyway.
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

// tries is how often a call is made at most.
const tries = 3

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 8 << 20

// request is one call.
type request struct {
	op, method, path string
	body             any
	// safe says that it may be made twice.
	safe bool
}

// do makes a call, again if it may be, and decodes the answer.
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
		header, err := a.once(ctx, r, body, out)
		if err == nil || attempt == tries || ctx.Err() != nil || !a.again(r, err) {
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

// again reports whether a call that failed may be made again: one that was not
// carried out, and one that may be twice.
func (a *api) again(r request, err error) bool {
	switch brig.KindOf(err) {
	case brig.RateLimited:
		return true
	case brig.Unavailable, brig.ConnectionFailed:
		return !errors.Is(err, errPin) && (r.safe || errors.Is(err, syscall.ECONNREFUSED))
	}
	return false
}

// wait is how long before the next attempt: a random part of a time that
// doubles, and no less than what the service asks for.
func (a *api) wait(attempt int, err error) time.Duration {
	most := a.pause
	if most == 0 {
		most = 500 * time.Millisecond
	}
	most <<= attempt - 1
	wait := most/4 + rand.N(most)
	if e := brig.AsError(err); e != nil {
		wait = max(wait, e.RetryAfter)
	}
	return wait
}

func (a *api) once(ctx context.Context, r request, body []byte, out any) (http.Header, error) {
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
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, failure(resp, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			return nil, brig.Errorf(brig.ConnectionFailed, "the service's answer to %s is not what E2B's is", r.op).
				WithHint("see that api_url is that of an E2B control plane").Because(err)
		}
	}
	return resp.Header, nil
}

// send sends one request, and tells of it.
func (a *api) send(op string, req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "brig")
	begin := time.Now()
	resp, err := a.http.Do(req)
	call := brig.Call{Operation: op, Region: a.config.Region, Seconds: time.Since(begin).Seconds()}
	if err == nil {
		call.Status = resp.StatusCode
		call.Limit = number(resp.Header, "RateLimit-Limit", "X-RateLimit-Limit")
		if left := number(resp.Header, "RateLimit-Remaining", "X-RateLimit-Remaining"); call.Limit > 0 {
			call.Used = max(0, call.Limit-left)
		}
	}
	a.called(call)
	if err != nil {
		return nil, unreachable(err)
	}
	return resp, nil
}

func number(h http.Header, names ...string) float64 {
	for _, name := range names {
		first, _, _ := strings.Cut(h.Get(name), ",") // a policy may follow
		if n, err := strconv.ParseFloat(strings.TrimSpace(first), 64); err == nil && n >= 0 {
			return n
		}
	}
	return 0
}

// unreachable is why there was no answer.
func unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	e := brig.Errorf(brig.ConnectionFailed, "the E2B service cannot be reached").WithHint("see that api_url or domain is right, and that this machine may connect to it").Because(err)
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

// failure is what an answer says that is none.
func failure(resp *http.Response, body []byte) error {
	var told struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &told) // a proxy may answer in other words
	message := brig.Clip(strings.ToValidUTF8(told.Message, "?"), 300)
	cause := fmt.Errorf("status %d: %s", resp.StatusCode, brig.Clip(string(body), 300))
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e := brig.Errorf(brig.InvalidConfig, "the E2B service does not take this key").WithHint("give another api_key: brig provider configure")
		e.Field = "api_key"
		return e.Because(cause)
	case code == http.StatusNotFound:
		return brig.Errorf(brig.NotFound, "the E2B service knows nothing of it: %s", message).Because(cause)
	case code == http.StatusTooManyRequests:
		e := brig.Errorf(brig.RateLimited, "the E2B service takes no more calls for now").WithHint("wait, or ask E2B for more").Because(cause)
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

// longestWait is the longest that a service may ask to wait for.
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

// sandbox is one as the control plane tells of it.
type sandbox struct {
	SandboxID       string            `json:"sandboxID"`
	EnvdAccessToken string            `json:"envdAccessToken"`
	Domain          *string           `json:"domain"`
	Metadata        map[string]string `json:"metadata"`
}

// What a sandbox's metadata says.
const (
	metaSite      = "brig_site"
	metaID        = "brig_id"
	metaEphemeral = "brig_ephemeral"
)

func (a *api) create(ctx context.Context, template string, seconds int64, metadata map[string]string) (*sandbox, error) {
	body := map[string]any{"templateID": template, "timeout": seconds, "metadata": metadata, "secure": true, "allow_internet_access": false}
	var s sandbox
	_, err := a.do(ctx, request{op: "create", method: http.MethodPost, path: "/sandboxes", body: body}, &s)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// connect gives what is needed to use a sandbox that there is.
func (a *api) connect(ctx context.Context, id string) (*sandbox, error) {
	var s sandbox
	// A time that is no longer than what it has leaves it as it is.
	_, err := a.do(ctx, request{op: "connect", method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/connect", body: map[string]any{"timeout": 1}, safe: true}, &s)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

func (a *api) get(ctx context.Context, id string) error {
	_, err := a.do(ctx, request{op: "get", method: http.MethodGet, path: "/sandboxes/" + url.PathEscape(id), safe: true}, nil)
	return err
}

func (a *api) timeout(ctx context.Context, id string, seconds int64) error {
	_, err := a.do(ctx, request{op: "timeout", method: http.MethodPost, path: "/sandboxes/" + url.PathEscape(id) + "/timeout", body: map[string]any{"timeout": seconds}, safe: true}, nil)
	return err
}

// kill ends a sandbox. It is no error when there is none.
func (a *api) kill(ctx context.Context, id string) error {
	_, err := a.do(ctx, request{op: "kill", method: http.MethodDelete, path: "/sandboxes/" + url.PathEscape(id), safe: true}, nil)
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	return err
}

// maxPages is how many pages of a hundred a list may have.
const maxPages = 1000

// list lists the sandboxes with such metadata.
func (a *api) list(ctx context.Context, metadata url.Values) ([]sandbox, error) {
	var all []sandbox
	for next, pages := "", 0; ; pages++ {
		if pages == maxPages {
			return nil, brig.Errorf(brig.ConnectionFailed, "the E2B service's list of sandboxes has no end").WithHint("see that api_url is that of an E2B control plane")
		}
		q := url.Values{"metadata": {metadata.Encode()}, "state": {"running"}, "limit": {"100"}}
		if next != "" {
			q.Set("nextToken", next)
		}
		var page []sandbox
		h, err := a.do(ctx, request{op: "list", method: http.MethodGet, path: "/v2/sandboxes?" + q.Encode(), safe: true}, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next = h.Get("X-Next-Token"); next == "" {
			return all, nil
		}
	}
}

// metric is what a sandbox used at one moment.
type metric struct {
	TimestampUnix int64   `json:"timestampUnix"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       int64   `json:"memUsed"`
	MemCache      int64   `json:"memCache"`
}

func (a *api) metrics(ctx context.Context, id string) ([]metric, error) {
	var out []metric
	_, err := a.do(ctx, request{op: "metrics", method: http.MethodGet, path: "/sandboxes/" + url.PathEscape(id) + "/metrics", safe: true}, &out)
	return out, err
}

// template finds what a name means.
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
