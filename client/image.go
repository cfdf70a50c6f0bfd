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
	"github.com/brig-run/brig/api/v1"
)

// imageCalls are the calls for images and templates.
type imageCalls struct{ *conn }

// Images implements brig.Service.
func (c imageCalls) Images(ctx context.Context) ([]*brig.Image, error) {
	var out v1.Images
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/images"}, nil, &out); err != nil {
		return nil, err
	}
	var images []*brig.Image
	for _, i := range out.Images {
		images = append(images, i.Domain())
	}
	return images, nil
}

// GetImage implements brig.Service.
func (c imageCalls) GetImage(ctx context.Context, ref string) (*brig.Image, error) {
	var out v1.Image
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/images/" + escapeSegment(ref)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// RemoveImage implements brig.Service.
func (c imageCalls) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/images/" + escapeSegment(ref)}, nil, nil)
}

// ImportImage implements brig.Service.
func (c imageCalls) ImportImage(ctx context.Context, name string, r io.Reader, report func(brig.Progress)) (*brig.Image, error) {
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/import", query: url.Values{"name": {name}},
		body: io.NopCloser(r), contentType: v1.Tar, // the caller closes the reader
	}, report)
}

// BuildImage implements brig.Service.
func (c imageCalls) BuildImage(ctx context.Context, b brig.ImageBuild, report func(brig.Progress)) (*brig.Image, error) {
	body, err := encode(v1.BuildRequest{Name: b.Name, Packages: b.Packages, Suite: b.Suite})
	if err != nil {
		return nil, err
	}
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/build", body: bytes.NewReader(body), contentType: v1.JSON,
	}, report)
}

// PullImage implements brig.Service.
func (c imageCalls) PullImage(ctx context.Context, p brig.ImagePull, report func(brig.Progress)) (*brig.Image, error) {
	body, err := encode(v1.PullRequest(p))
	if err != nil {
		return nil, err
	}
	return c.makeImage(ctx, request{
		method: http.MethodPost, path: "/v1/images/pull", body: bytes.NewReader(body), contentType: v1.JSON,
	}, report)
}

// TagImage implements brig.Service.
func (c imageCalls) TagImage(ctx context.Context, ref, name string) (*brig.Image, error) {
	var out v1.Image
	if err := c.call(ctx, request{method: http.MethodPost, path: "/v1/images/tag"}, v1.TagRequest{Image: ref, Name: name}, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// makeImage sends a request whose response is progress events and then an
// image.
func (c imageCalls) makeImage(ctx context.Context, rq request, report func(brig.Progress)) (*brig.Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rq.accept = v1.NDJSON
	resp, err := c.send(ctx, rq)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out v1.Image
	err = c.readEvents(ctx, resp.Body, &out, func(event string, line []byte) error {
		if event != v1.EventProgress || report == nil {
			return nil
		}
		var p v1.Progress
		if err := json.Unmarshal(line, &p); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		report(brig.Progress{Step: p.Step, Done: p.Done, Total: p.Total})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out.Domain(), nil
}
