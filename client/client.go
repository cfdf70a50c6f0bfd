// Package client is a brig.Service over the network. The client and the engine are interchangeable
// behind the interface, and both pass the same test suite (servicetest). The server is implemented
// by api/rest.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/internal/version"
)

// maxError is the maximum number of bytes that are read from an error response.
const maxError = 1 << 20

// Options are the address of the server and the credentials of the caller.
type Options struct {
	// URL is the server's URL, for example "http://127.0.0.1:2744". It may have
	// a path, which becomes the prefix of the API's paths.
	URL string
	// Key is the caller's API key.
	Key string
	// Name names the server in errors. Default: URL.
	Name string
	// InsecureHTTP allows plain HTTP to other machines.
	InsecureHTTP bool
	// HTTP sends the requests. Default: a client without a timeout, because the context of each
	// call limits it. The client never follows redirects, because only the server at URL may
	// receive the key.
	HTTP *http.Client
	// RetryTimeout limits how long the client retries a call that a server at capacity has
	// rejected. Such a call has not started. The client retries after the time that the server
	// requests. Default: 30 s. A negative value disables retries.
	RetryTimeout time.Duration
}

// Client is a brig.Service that calls a server. The actor is the owner of the
// key; an actor in the context is ignored.
type Client struct {
	*conn
	auditCalls
	codeCalls
	portCalls
	execCalls
	fileCalls
	imageCalls
	processCalls
	providerCalls
	sandboxCalls
	secretCalls
	sessionCalls
	tenancyCalls
	toolCalls
	workspaceCalls
	volumeCalls
	webhookCalls
}

// conn sends requests to the server.
type conn struct {
	base, key    string
	name         string // the server's name in errors
	http         *http.Client
	retryTimeout time.Duration
}

var _ brig.Service = (*Client)(nil)

// New returns a client, without connecting to the server.
func New(o Options) (*Client, error) {
	if err := checkAddress(o); err != nil {
		return nil, err
	}
	base := strings.TrimRight(o.URL, "/")
	c := &conn{base: base, key: o.Key, name: cmp.Or(o.Name, base), http: newHTTPClient(o.HTTP), retryTimeout: cmp.Or(o.RetryTimeout, defaultRetryTimeout)}
	return &Client{c, auditCalls{c}, codeCalls{c}, portCalls{c}, execCalls{c}, fileCalls{c}, imageCalls{c}, processCalls{c}, providerCalls{c}, sandboxCalls{c}, secretCalls{c}, sessionCalls{c}, tenancyCalls{c}, toolCalls{c}, workspaceCalls{c}, volumeCalls{c}, webhookCalls{c}}, nil
}

// request is one HTTP request.
type request struct {
	method, path string
	query        url.Values
	body         io.Reader
	contentType  string
	accept       string
	header       http.Header // additional headers, if any
}

// defaultRetryTimeout is the default of Options.RetryTimeout.
const defaultRetryTimeout = 30 * time.Second

// send sends a request and returns a successful response. The caller closes its
// body. send retries if the server is at capacity.
func (c *conn) send(ctx context.Context, rq request) (*http.Response, error) {
	body, seekable := rq.body.(io.Seeker)
	for begin := time.Now(); ; {
		resp, err := c.sendOnce(ctx, rq)
		reply := brig.AsError(err)
		if err == nil || !(seekable || rq.body == nil) || reply.Kind != brig.RateLimited || reply.Field != "capacity" || reply.RetryAfter == 0 {
			return resp, err
		}
		// Add jitter, so that clients do not all retry at the same time.
		wait := reply.RetryAfter + rand.N(reply.RetryAfter/4+time.Millisecond) //nolint:gosec // needs no cryptographic randomness
		if time.Since(begin)+wait > c.retryTimeout {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, brig.AsError(ctx.Err())
		case <-time.After(wait):
		}
		if seekable {
			if _, err := body.Seek(0, io.SeekStart); err != nil {
				return nil, fmt.Errorf("send again: %w", err)
			}
		}
	}
}

// sendOnce sends a request once.
func (c *conn) sendOnce(ctx context.Context, rq request) (*http.Response, error) {
	target := c.base + rq.path
	if len(rq.query) > 0 {
		target += "?" + rq.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, rq.method, target, rq.body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("User-Agent", version.UserAgent())
	for name, values := range rq.header {
		req.Header[name] = values
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if rq.contentType != "" {
		req.Header.Set("Content-Type", rq.contentType)
	}
	if rq.accept != "" {
		req.Header.Set("Accept", rq.accept)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.connectionError(ctx, "cannot reach the server", err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.decodeError(resp)
}

// call sends a request with in as its JSON body, unless in is nil, and decodes
// the response into out, unless out is nil.
func (c *conn) call(ctx context.Context, rq request, in, out any) error {
	if in != nil {
		b, err := encode(in)
		if err != nil {
			return err
		}
		rq.body, rq.contentType = bytes.NewReader(b), v1.JSON
	}
	resp, err := c.send(ctx, rq)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return c.connectionError(ctx, "the server's answer ended early", err)
	}
	return nil
}

// connectionError translates a connection error. If the caller's context has ended, it
// returns the error of the context.
func (c *conn) connectionError(ctx context.Context, message string, err error) error {
	if ctx.Err() != nil {
		return brig.AsError(ctx.Err())
	}
	if e, ok := errors.AsType[*brig.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL of the call, which is in the hint
	}
	return brig.Errorf(brig.ConnectionFailed, "%s", message).Because(err).
		WithHint("check that a server runs at %s; brig serve starts one", c.name)
}

// decodeError decodes the error in a response.
func (c *conn) decodeError(resp *http.Response) error {
	var errBody v1.ErrorAnswer
	err := json.NewDecoder(io.LimitReader(resp.Body, maxError)).Decode(&errBody)
	if err != nil || errBody.Error.Kind == "" {
		return brig.Errorf(brig.ConnectionFailed, "%s is not a Brig server (HTTP %d)", c.name, resp.StatusCode).Because(err).
			WithHint("check that a server runs at %s; brig serve starts one", c.name)
	}
	apiErr := restore(errBody.Error)
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && apiErr.Kind == brig.RateLimited {
		apiErr.RetryAfter = time.Duration(s) * time.Second
	}
	return apiErr
}

// restore converts an error from the wire to the server's error. An unknown kind becomes Internal.
func restore(e v1.Error) *brig.Error {
	kind := brig.Kind(e.Kind)
	if !slices.Contains(brig.Kinds, kind) {
		kind = brig.Internal
	}
	return &brig.Error{Kind: kind, Message: e.Message, Field: e.Field, Hint: e.Hint, Fields: e.Fields}
}

// Alerts implements brig.Service.
func (c *conn) Alerts(ctx context.Context) ([]brig.Alert, error) {
	var out v1.Alerts
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/alerts"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Capabilities implements brig.Service.
func (c *conn) Capabilities(ctx context.Context) (*brig.Capabilities, error) {
	var in v1.Capabilities
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/capabilities"}, nil, &in); err != nil {
		return nil, err
	}
	return in.Domain(), nil
}

// Attest implements brig.Service.
func (c *conn) Attest(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "attest"), nil)
}

// Templates implements brig.Service.
func (c *conn) Templates(ctx context.Context) ([]brig.Template, error) {
	var in v1.Templates
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/templates"}, nil, &in); err != nil {
		return nil, err
	}
	var out []brig.Template
	for _, t := range in.Templates {
		out = append(out, t.Domain())
	}
	return out, nil
}
