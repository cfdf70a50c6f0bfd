// Package remote is the shared client of providers whose sandboxes run on
// another service. It bounds responses, does not follow redirects, checks
// addresses when it connects, supports pinned certificates, and returns errors
// that state whether the service may have started the request.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/version"
)

// Limits of a call.
const (
	dialTimeout = 5 * time.Second
	// idleTimeout is shorter than that of common servers, some of which close
	// idle connections after 5 s. If a server closes a connection during a
	// request, it is unknown whether the request was processed.
	idleTimeout = 4 * time.Second
	defaultMax  = 256 << 20 // bytes of a response
)

// Options configure a Client. Endpoint is required.
type Options struct {
	Endpoint *brig.Endpoint
	// Pin is the pin of the service's certificate; see the function Pin.
	Pin string
	// Authority contains PEM certificates of CAs to trust in addition to the
	// system's.
	Authority string
	// Max is the maximum size of a response, in bytes. The default is 256 MiB.
	Max int64
	// Region is the region of the service, as reported to OnCall.
	Region string
	// OnCall is called after every call. It may be nil.
	OnCall func(brig.Call)
}

// Client calls one service.
type Client struct {
	Options
	http *http.Client
}

// New returns a client. If the pin or the authority is invalid, it returns an
// InvalidArgument error.
func New(o Options) (*Client, error) {
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.OnCall == nil {
		o.OnCall = func(brig.Call) {}
	}
	trust, err := newTLSConfig(o.Pin, o.Authority)
	if err != nil {
		return nil, err
	}
	return &Client{Options: o, http: &http.Client{
		// Ignore the proxy settings of the environment: a proxy would resolve
		// the name and connect without the client's checks.
		Transport: outbound.NewTransport(&http.Transport{
			TLSClientConfig: trust, TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10,
		}, net.Dialer{Timeout: dialTimeout}, func(_ string, addr netip.Addr) error { return CheckAddress(o.Endpoint, addr) }),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CheckAddress returns an error if an endpoint must not use an address. Only a
// private endpoint may be on this host, even if the host's address is public.
func CheckAddress(e *brig.Endpoint, addr netip.Addr) error {
	if err := e.CheckAddr(addr); err != nil {
		return err
	}
	if !e.Private && hostaddr.IsHost(addr) {
		return brig.InvalidField(e.Field, "%s is an address of this machine", addr).
			WithHint("set allow_private if the service is meant to be there")
	}
	return nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Request is one call.
type Request struct {
	// Operation is the name of the call in errors and for OnCall.
	Operation, Method string
	// Path is relative to the endpoint's path and already escaped.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
	// Max is the maximum size of the response, in bytes. The default is
	// Options.Max.
	Max int64
	// Sign, if set, is called last, right before the request is sent.
	Sign func(*http.Request) error
}

// Response is the response of a service, with any status. The client does not
// follow redirects.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do makes one call. The error is of kind ConnectionFailed if no data was sent,
// and otherwise Unavailable with brig.RetryContained. If ctx ended, the error
// is its cause.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}))
	begin := time.Now()
	a, err := c.roundTrip(req, cmp.Or(r.Max, c.Max))
	call := brig.Call{Operation: r.Operation, Region: c.Region, Seconds: time.Since(begin).Seconds()}
	if a != nil {
		call.Status = a.Status
		call.Used, call.Limit = readRateLimit(a.Header)
	}
	c.OnCall(call)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", r.Operation, context.Cause(ctx))
		if sent.Load() {
			return nil, brig.WithRetry(err, brig.RetryContained)
		}
		return nil, err
	case sent.Load():
		return nil, brig.WithRetry(brig.Errorf(brig.Unavailable, "lost the connection to the service during %s", r.Operation).
			WithHint("check whether the request had an effect").Because(err), brig.RetryContained)
	}
	return nil, unreachableError(r.Operation, err)
}

// unreachableError returns the error for a call whose request could not be sent.
func unreachableError(operation string, err error) error {
	e := brig.Errorf(brig.ConnectionFailed, "the service cannot be reached for %s", operation).Because(err)
	if r, ok := errors.AsType[*outbound.Refusal](err); ok {
		e.Message += ": " + brig.AsError(r.Err).Message
		return e.WithHint("have an operator look at the provider's endpoint and allow_private")
	}
	if errors.Is(err, ErrPin) {
		e.Message += ": " + ErrPin.Error()
		return e.WithHint("if the service has a new key, set pin_sha256 to its digest; otherwise another server responds")
	}
	return e.WithHint("have an operator look at the provider's endpoint: brig provider test")
}

func (c *Client) newRequest(ctx context.Context, r Request) (*http.Request, error) {
	u := *c.Endpoint.URL
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return nil, fmt.Errorf("path of %s: %w", r.Operation, err)
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+path, base+r.Path
	u.RawQuery = r.Query.Encode()
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("request of %s: %w", r.Operation, err)
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", version.UserAgent())
	}
	if r.Sign != nil {
		err = r.Sign(req)
	}
	return req, err
}

// errTooLong means that a response exceeds its limit.
var errTooLong = errors.New("the answer is too long")

func (c *Client) roundTrip(req *http.Request, maxSize int64) (*Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Response{Status: resp.StatusCode, Header: resp.Header}
	if a.Body, err = io.ReadAll(io.LimitReader(resp.Body, maxSize+1)); err != nil {
		return a, err
	}
	if int64(len(a.Body)) > maxSize {
		return a, errTooLong
	}
	return a, nil
}

// readRateLimit reads the rate-limit headers of a response.
func readRateLimit(h http.Header) (used, limit float64) {
	limit, err := strconv.ParseFloat(h.Get("X-RateLimit-Limit"), 64)
	remaining, err2 := strconv.ParseFloat(h.Get("X-RateLimit-Remaining"), 64)
	if err != nil || err2 != nil || !(limit >= 0 && remaining >= 0 && remaining <= limit) {
		return 0, 0
	}
	return limit - remaining, limit
}
