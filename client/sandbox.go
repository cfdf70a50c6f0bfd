package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func sandboxPath(name string, rest ...string) string {
	p := "/v1/sandboxes/" + segment(name)
	for _, r := range rest {
		p += "/" + segment(r)
	}
	return p
}

// segment escapes one part of a path so that nothing on the way takes it for
// more than that.
func segment(s string) string {
	switch s {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	case "":
		return "%00" // names nothing, where an empty part would name the list
	}
	return url.PathEscape(s)
}

func (c *Client) sandbox(ctx context.Context, method, path string, in any) (*brig.Sandbox, error) {
	var out wire.Sandbox
	if err := c.call(ctx, request{method: method, path: path}, in, &out); err != nil {
		return nil, err
	}
	return toSandbox(out), nil
}

// Create implements brig.Service.
func (c *Client) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	return c.sandbox(ctx, http.MethodPost, "/v1/sandboxes", fromSpec(spec))
}

// Get implements brig.Service.
func (c *Client) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sandbox(ctx, http.MethodGet, sandboxPath(name), nil)
}

// List implements brig.Service.
func (c *Client) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	q := url.Values{}
	for k, v := range o.Labels {
		q.Add("label", k+"="+v)
	}
	for _, s := range o.States {
		q.Add("state", string(s))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		q.Set("cursor", o.Cursor)
	}
	var out wire.Sandboxes
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/sandboxes", query: q}, nil, &out); err != nil {
		return nil, err
	}
	page := &brig.Page{Next: out.NextCursor}
	for _, s := range out.Sandboxes {
		page.Sandboxes = append(page.Sandboxes, toSandbox(s))
	}
	return page, nil
}

// SetEgress implements brig.Service.
func (c *Client) SetEgress(ctx context.Context, name string, rules brig.Egress) (*brig.Sandbox, error) {
	in := wire.FromEgress(rules)
	if in == nil {
		in = &wire.Egress{Rules: []wire.EgressRule{}}
	}
	return c.sandbox(ctx, http.MethodPut, sandboxPath(name, "egress"), in)
}

// Extend implements brig.Service.
func (c *Client) Extend(ctx context.Context, name string, ttl time.Duration) (*brig.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandboxPath(name, "extend"), wire.ExtendRequest{TTLMS: millis(ttl)})
}

// Stop implements brig.Service.
func (c *Client) Stop(ctx context.Context, name string, grace time.Duration) (*brig.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandboxPath(name, "stop"), wire.StopRequest{GraceMS: millis(grace)})
}

// Kill implements brig.Service.
func (c *Client) Kill(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandboxPath(name, "kill"), nil)
}

// Remove implements brig.Service.
func (c *Client) Remove(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(name)}, nil, nil)
}

// Logs implements brig.Service.
func (c *Client) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	q := url.Values{}
	if o.Tail != 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Times {
		q.Set("times", "true")
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, path: sandboxPath(name, "logs"), query: q})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// GetExec implements brig.Service.
func (c *Client) GetExec(ctx context.Context, name, execID string) (*brig.Execution, error) {
	var out wire.Execution
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "execs", execID)}, nil, &out); err != nil {
		return nil, err
	}
	return toExecution(out), nil
}

// ListExecs implements brig.Service.
func (c *Client) ListExecs(ctx context.Context, name string) ([]*brig.Execution, error) {
	var out wire.Executions
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "execs")}, nil, &out); err != nil {
		return nil, err
	}
	var xs []*brig.Execution
	for _, x := range out.Execs {
		xs = append(xs, toExecution(x))
	}
	return xs, nil
}
