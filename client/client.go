// Package client is brig.Service over the network: code written against the
// interface cannot tell it from the engine, and one suite (servicetest) runs
// on both. The server is the one at api/rest.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// mostError bounds how much of an answer that is an error is read.
const mostError = 1 << 20

// Options say where the server is and who is calling.
type Options struct {
	// URL is the server's, for example "http://127.0.0.1:2744". It may have a
	// path, which comes before the API's own.
	URL string
	// Key is the caller's API key.
	Key string
	// InsecureHTTP admits a plain http URL of another machine than this one.
	InsecureHTTP bool
	// HTTP makes the requests. Default: one without a timeout, since a
	// context bounds each call. No redirect is followed: the key is for the
	// server at URL.
	HTTP *http.Client
}

// Client is a brig.Service that asks a server. The actor is the key's owner,
// whatever the context says.
type Client struct {
	base, key string
	http      *http.Client
}

var _ brig.Service = (*Client)(nil)

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	if err := checkAddress(o); err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimRight(o.URL, "/"), key: o.Key, http: requester(o.HTTP)}, nil
}

// request is one request that is to be made.
type request struct {
	method, path string
	query        url.Values
	body         io.Reader
	contentType  string
	accept       string
	header       http.Header // others, if there are any
}

// send makes a request and returns an answer that is a success. The caller
// closes its body.
func (c *Client) send(ctx context.Context, rq request) (*http.Response, error) {
	target := c.base + rq.path
	if len(rq.query) > 0 {
		target += "?" + rq.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, rq.method, target, rq.body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
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
		return nil, c.lost(ctx, "cannot reach the server", err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refused(resp)
}

// call makes a request with in as its JSON body, unless in is nil, and reads
// the answer into out, unless out is nil.
func (c *Client) call(ctx context.Context, rq request, in, out any) error {
	if in != nil {
		b, err := encode(in)
		if err != nil {
			return err
		}
		rq.body, rq.contentType = bytes.NewReader(b), wire.JSON
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
		return c.lost(ctx, "the server's answer ended early", err)
	}
	return nil
}

// lost translates an error of the connection. When the caller has gone away
// the error is the caller's own.
func (c *Client) lost(ctx context.Context, message string, err error) error {
	if ctx.Err() != nil {
		return brig.AsError(ctx.Err())
	}
	if e, ok := errors.AsType[*brig.Error](err); ok {
		return e
	}
	return brig.Errorf(brig.ConnectionFailed, "%s", message).Because(err).
		WithHint("is the server running at %s? brig serve", c.base)
}

// refused restores the error that an answer carries.
func (c *Client) refused(resp *http.Response) error {
	var answer wire.ErrorAnswer
	err := json.NewDecoder(io.LimitReader(resp.Body, mostError)).Decode(&answer)
	if err != nil || answer.Error.Kind == "" {
		return brig.Errorf(brig.ConnectionFailed, "what answered is not a Brig server (HTTP %d)", resp.StatusCode).Because(err).
			WithHint("is the server running at %s? brig serve", c.base)
	}
	told := restore(answer.Error)
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && told.Kind == brig.RateLimited {
		told.RetryAfter = time.Duration(s) * time.Second
	}
	return told
}

// restore makes the error that the server had of the one on the wire. A kind
// that only a newer server knows is Internal.
func restore(e wire.Error) *brig.Error {
	kind := brig.Kind(e.Kind)
	if !slices.Contains(brig.Kinds, kind) {
		kind = brig.Internal
	}
	return &brig.Error{Kind: kind, Message: e.Message, Field: e.Field, Hint: e.Hint, Fields: e.Fields}
}
