// Package remote is what providers share that have their machines elsewhere:
// how another service is called. An answer is bounded, redirects lead nowhere,
// addresses are judged when they are connected to, certificates can be pinned,
// and an error says whether the service may have begun to do what it was asked.
package remote

import (
	"bytes"
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
	"syscall"
	"time"

	"github.com/brig-run/brig"
)

// The bounds of a call.
const (
	dialTimeout = 5 * time.Second
	// Servers close connections that are not used, some after 5 s, and a request
	// that crosses such an end may have been done or not.
	idleTimeout = 4 * time.Second
	defaultMax  = 256 << 20 // bytes of an answer
)

// Options are what a Client is made of. Endpoint is needed.
type Options struct {
	Endpoint *brig.Endpoint
	// Pin is that of the service's certificate; see Pin.
	Pin string
	// Authority is PEM of authorities that are trusted besides the system's.
	Authority string
	// Max bounds the bytes of an answer. Default 256 MiB.
	Max int64
	// Region is where the service is, for Called.
	Region string
	// Called is told of every call. Default: nobody is.
	Called func(brig.Call)
}

// Client calls one service.
type Client struct {
	Options
	http *http.Client
}

// New returns a client. What is wrong with the pin or the authority is an
// InvalidArgument.
func New(o Options) (*Client, error) {
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.Called == nil {
		o.Called = func(brig.Call) {}
	}
	trust, err := trusted(o.Pin, o.Authority)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", address, err)
		}
		if err := o.Endpoint.Judge(ap.Addr()); err != nil {
			return &misled{err}
		}
		return nil
	}}
	return &Client{Options: o, http: &http.Client{
		// No proxy of the environment: it would resolve the name, and connect.
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: trust, TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// misled is an endpoint whose name leads to where it may not.
type misled struct{ error }

// Unwrap implements errors' interface.
func (m *misled) Unwrap() error { return m.error }

// Close lets go of connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Request is one call.
type Request struct {
	// Operation is what it is, for Called and for errors.
	Operation, Method string
	// Path is below the endpoint's, escaped already.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
	// Sign is called last, if it is set.
	Sign func(*http.Request) error
}

// Answer is what a service answered, whatever its status is. No redirect is
// followed.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do makes one call. Its errors are of kind ConnectionFailed, before anything
// was sent, or Unavailable with brig.ErrBegan; if ctx ended, its cause.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	}))
	begin := time.Now()
	a, err := c.exchange(req)
	call := brig.Call{Operation: r.Operation, Region: c.Region, Seconds: time.Since(begin).Seconds()}
	if a != nil {
		call.Status = a.Status
		call.Used, call.Limit = rate(a.Header)
	}
	c.Called(call)
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", r.Operation, errors.Join(context.Cause(ctx), began(sent.Load())))
	case sent.Load():
		return nil, brig.Errorf(brig.Unavailable, "the service went away during %s", r.Operation).
			WithHint("look whether what was asked for was done").Because(errors.Join(err, brig.ErrBegan))
	}
	return nil, unreachable(r.Operation, err)
}

func began(sent bool) error {
	if sent {
		return brig.ErrBegan
	}
	return nil
}

// unreachable explains why nothing could be sent.
func unreachable(operation string, err error) error {
	e := brig.Errorf(brig.ConnectionFailed, "the service cannot be reached for %s", operation).Because(err)
	if m, ok := errors.AsType[*misled](err); ok {
		e.Message += ": " + brig.AsError(m.error).Message
		return e.WithHint("have an operator look at the provider's endpoint and allow_private")
	}
	if errors.Is(err, ErrPin) {
		e.Message += ": " + ErrPin.Error()
		return e.WithHint("if the service has a new key, set pin_sha256 to its digest; otherwise somebody else answers")
	}
	return e.WithHint("have an operator look at the provider's endpoint: brig provider test")
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
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
		req.Header.Set("User-Agent", "brig")
	}
	if r.Sign != nil {
		err = r.Sign(req)
	}
	return req, err
}

// errTooLong is an answer that is longer than anything sensible.
var errTooLong = errors.New("the answer is too long")

func (c *Client) exchange(req *http.Request) (*Answer, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Answer{Status: resp.StatusCode, Header: resp.Header}
	if a.Body, err = io.ReadAll(io.LimitReader(resp.Body, c.Max+1)); err != nil {
		return a, err
	}
	if int64(len(a.Body)) > c.Max {
		return a, errTooLong
	}
	return a, nil
}

// rate reads the headers by which services tell how much is left.
func rate(h http.Header) (used, limit float64) {
	limit, err := strconv.ParseFloat(h.Get("X-RateLimit-Limit"), 64)
	left, err2 := strconv.ParseFloat(h.Get("X-RateLimit-Remaining"), 64)
	if err != nil || err2 != nil || !(limit >= 0 && left >= 0 && left <= limit) {
		return 0, 0
	}
	return limit - left, limit
}
