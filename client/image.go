package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// Images implements brig.Service.
func (c *Client) Images(ctx context.Context) ([]*brig.Image, error) {
	var out wire.Images
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/images"}, nil, &out); err != nil {
		return nil, err
	}
	var images []*brig.Image
	for _, i := range out.Images {
		images = append(images, toImage(i))
	}
	return images, nil
}

// GetImage implements brig.Service.
func (c *Client) GetImage(ctx context.Context, ref string) (*brig.Image, error) {
	var out wire.Image
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/images/" + segment(ref)}, nil, &out); err != nil {
		return nil, err
	}
	return toImage(out), nil
}

// RemoveImage implements brig.Service.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/images/" + segment(ref)}, nil, nil)
}

// ImportImage implements brig.Service.
func (c *Client) ImportImage(ctx context.Context, name string, r io.Reader, report func(brig.Progress)) (*brig.Image, error) {
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/import", query: url.Values{"name": {name}},
		body: io.NopCloser(r), contentType: wire.Tar, // the reader stays the caller's to close
	}, report)
}

// BuildImage implements brig.Service.
func (c *Client) BuildImage(ctx context.Context, b brig.ImageBuild, report func(brig.Progress)) (*brig.Image, error) {
	body, err := encode(wire.BuildRequest{Name: b.Name, Packages: b.Packages, Suite: b.Suite})
	if err != nil {
		return nil, err
	}
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/build", body: bytes.NewReader(body), contentType: wire.JSON,
	}, report)
}

// PullImage implements brig.Service.
func (c *Client) PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	body, err := encode(wire.PullRequest(p))
	if err != nil {
		return nil, err
	}
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/pull", body: bytes.NewReader(body), contentType: wire.JSON,
	}, report)
}

// makeImage makes a request whose answer is progress and then an image.
func (c *Client) makeImage(ctx context.Context, rq request, report func(brig.Progress)) (*brig.Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rq.accept = wire.NDJSON
	resp, err := c.send(ctx, rq)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out wire.Image
	err = c.events(ctx, resp.Body, &out, func(event string, line []byte) error {
		if event != wire.EventProgress || report == nil {
			return nil
		}
		var p wire.Progress
		if err := json.Unmarshal(line, &p); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		report(brig.Progress{Step: p.Step, Done: p.Done, Total: p.Total})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return toImage(out), nil
}
