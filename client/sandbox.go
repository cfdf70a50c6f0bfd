package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// sandboxCalls are the calls for sandboxes.
type sandboxCalls struct{ *conn }

func sandboxPath(name string, rest ...string) string {
	p := "/v1/sandboxes/" + escapeSegment(name)
	for _, r := range rest {
		p += "/" + escapeSegment(r)
	}
	return p
}

// escapeSegment escapes one path segment so that proxies and routers treat it as a
// single segment.
func escapeSegment(s string) string {
	switch s {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	case "":
		return "%00" // an invalid name, because an empty segment would refer to the list
	}
	return url.PathEscape(s)
}

func (c *conn) sendSandbox(ctx context.Context, method, path string, in any) (*brig.Sandbox, error) {
	var out v1.Sandbox
	if err := c.call(ctx, request{method: method, path: path}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Create implements brig.Service.
func (c sandboxCalls) Create(ctx context.Context, spec brig.Spec) (*brig.Sandbox, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	return c.sendSandbox(ctx, http.MethodPost, "/v1/sandboxes", v1.FromSpec(spec))
}

// Fork implements brig.Service.
func (c sandboxCalls) Fork(ctx context.Context, name string, o brig.ForkSpec) ([]*brig.Sandbox, error) {
	var out v1.Copies
	if err := c.call(ctx, request{method: http.MethodPost, path: sandboxPath(name, "fork")}, v1.FromForkSpec(o), &out); err != nil {
		return nil, err
	}
	var copies []*brig.Sandbox
	for _, s := range out.Sandboxes {
		copies = append(copies, s.Domain())
	}
	return copies, nil
}

// Get implements brig.Service.
func (c sandboxCalls) Get(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodGet, sandboxPath(name), nil)
}

// pageQuery returns the parameters that select a page of a list.
func pageQuery(limit int, cursor string) url.Values {
	q := url.Values{}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

// List implements brig.Service.
func (c sandboxCalls) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	q := pageQuery(o.Limit, o.Cursor)
	for k, v := range o.Labels {
		q.Add("label", k+"="+v)
	}
	for _, s := range o.States {
		q.Add("state", string(s))
	}
	var out v1.Sandboxes
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/sandboxes", query: q}, nil, &out); err != nil {
		return nil, err
	}
	page := &brig.Page{Next: out.NextCursor}
	for _, s := range out.Sandboxes {
		page.Sandboxes = append(page.Sandboxes, s.Domain())
	}
	return page, nil
}

// SetEgress implements brig.Service.
func (c sandboxCalls) SetEgress(ctx context.Context, name string, rules brig.Egress) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPut, sandboxPath(name, "egress"), v1.FromEgressChange(rules))
}

// Extend implements brig.Service.
func (c sandboxCalls) Extend(ctx context.Context, name string, ttl time.Duration) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "extend"), v1.ExtendRequest{TTLMS: v1.FromDuration(ttl)})
}

// Pause implements brig.Service.
func (c sandboxCalls) Pause(ctx context.Context, name string, o brig.PauseOptions) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "pause"), v1.PauseRequest{FilesOnly: o.FilesOnly})
}

// Resume implements brig.Service.
func (c sandboxCalls) Resume(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "resume"), nil)
}

// Stop implements brig.Service.
func (c sandboxCalls) Stop(ctx context.Context, name string, grace time.Duration) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "stop"), v1.StopRequest{GraceMS: v1.FromDuration(grace)})
}

// Kill implements brig.Service.
func (c sandboxCalls) Kill(ctx context.Context, name string) (*brig.Sandbox, error) {
	return c.sendSandbox(ctx, http.MethodPost, sandboxPath(name, "kill"), nil)
}

// Remove implements brig.Service.
func (c sandboxCalls) Remove(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(name)}, nil, nil)
}

// Logs implements brig.Service.
func (c sandboxCalls) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	q := url.Values{}
	if o.Tail != 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Times {
		q.Set("times", "true")
	}
	rq := request{method: http.MethodGet, path: sandboxPath(name, "logs"), query: q}
	if o.Follow {
		return c.followLogs(ctx, rq)
	}
	resp, err := c.send(ctx, rq)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// followLogs returns the log output from a stream of events.
func (c sandboxCalls) followLogs(ctx context.Context, rq request) (io.ReadCloser, error) {
	rq.query.Set("follow", "true")
	rq.accept = v1.NDJSON
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, rq) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		cancel()
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		defer resp.Body.Close()
		w.CloseWithError(c.readEvents(ctx, resp.Body, &v1.LogEnd{}, func(event string, line []byte) error {
			if event != v1.EventLog {
				return nil
			}
			var chunk v1.Chunk
			if err := json.Unmarshal(line, &chunk); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			_, err := w.Write(chunk.Bytes())
			return err
		}))
	}()
	return followedLogs{r, cancel}, nil
}

// followedLogs is the output of a followed log. Close ends the request.
type followedLogs struct {
	*io.PipeReader
	cancel func()
}

// Close implements io.Closer.
func (f followedLogs) Close() error {
	f.cancel()
	return f.PipeReader.Close()
}

// Usage implements brig.Service.
func (c sandboxCalls) Usage(ctx context.Context, name string) (*brig.Usage, error) {
	var out v1.SandboxUsage
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "usage")}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// GetExec implements brig.Service.
func (c sandboxCalls) GetExec(ctx context.Context, name, execID string) (*brig.Execution, error) {
	var out v1.Execution
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "execs", execID)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// ListExecs implements brig.Service.
func (c sandboxCalls) ListExecs(ctx context.Context, name string) ([]*brig.Execution, error) {
	var out v1.Executions
	if err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(name, "execs")}, nil, &out); err != nil {
		return nil, err
	}
	var xs []*brig.Execution
	for _, x := range out.Execs {
		xs = append(xs, x.Domain())
	}
	return xs, nil
}
