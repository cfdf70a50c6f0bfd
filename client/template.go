package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

var _ brig.TemplateService = (*Client)(nil)

// templateCalls are the calls for the templates that the tenant has built.
type templateCalls struct{ *conn }

// templatePath returns the path of a template, or of an object below it.
func templatePath(template string, below ...string) string {
	path := "/v1/templates/" + escapeSegment(template)
	for _, s := range below {
		path += "/" + escapeSegment(s)
	}
	return path
}

// BuildTemplate implements brig.TemplateService.
func (c templateCalls) BuildTemplate(ctx context.Context, spec brig.BuildSpec) (*brig.TemplateBuild, error) {
	if spec.Name == "" {
		return nil, brig.InvalidField("name", "the build needs the name of a template")
	}
	var out v1.TemplateBuild
	rq := request{method: http.MethodPost, path: templatePath(spec.Name, "builds")}
	if err := c.call(ctx, rq, v1.FromBuildSpec(spec), &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// GetTemplateBuild implements brig.TemplateService.
func (c templateCalls) GetTemplateBuild(ctx context.Context, template, id string) (*brig.TemplateBuild, error) {
	var out v1.TemplateBuildLog
	if err := c.call(ctx, request{method: http.MethodGet, path: templatePath(template, "builds", id, "log")}, nil, &out); err != nil {
		return nil, err
	}
	b := out.Build.Domain()
	for _, l := range out.Lines {
		b.Log = append(b.Log, l.Domain())
	}
	return b, nil
}

// FollowTemplateBuild implements brig.TemplateService. If the connection breaks, it connects again, and
// continues with the next line.
func (c templateCalls) FollowTemplateBuild(ctx context.Context, template, id string, skip int, on func(brig.BuildLine) error) (*brig.TemplateBuild, error) {
	for broken := false; ; {
		lines := 0
		var stopped error
		err := c.followBuild(ctx, template, id, skip, func(l brig.BuildLine) error {
			lines++
			stopped = on(l)
			return stopped
		})
		skip += lines
		switch {
		case stopped != nil:
			return nil, stopped
		case err == nil:
			return c.GetTemplateBuild(ctx, template, id) // with its log
		case ctx.Err() != nil || brig.KindOf(err) != brig.ConnectionFailed || broken && lines == 0:
			return nil, err
		}
		broken = true
	}
}

// followBuild calls on with each line of one stream of a build's log.
func (c templateCalls) followBuild(ctx context.Context, template, id string, skip int, on func(brig.BuildLine) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, request{
		method: http.MethodGet, path: templatePath(template, "builds", id, "log"), accept: v1.NDJSON, query: url.Values{"offset": {strconv.Itoa(skip)}},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.readEvents(ctx, resp.Body, new(v1.TemplateBuildLog), func(event string, line []byte) error {
		if event != v1.EventLine {
			return nil
		}
		var l v1.TemplateBuildLine
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		return on(l.Domain())
	})
}

// CancelTemplateBuild implements brig.TemplateService.
func (c templateCalls) CancelTemplateBuild(ctx context.Context, template, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: templatePath(template, "builds", id, "cancel")}, nil, nil)
}

// HasTemplateFiles implements brig.TemplateService.
func (c templateCalls) HasTemplateFiles(ctx context.Context, digest string) (bool, error) {
	var out v1.TemplateFiles
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/template-files/" + escapeSegment(digest)}, nil, &out)
	return out.Present, err
}

// PutTemplateFiles implements brig.TemplateService.
func (c templateCalls) PutTemplateFiles(ctx context.Context, digest string, size int64, r io.Reader) error {
	if size <= 0 {
		return brig.InvalidField("size", "an archive has at least one byte")
	}
	return c.call(ctx, request{
		method: http.MethodPut, path: "/v1/template-files/" + escapeSegment(digest), body: io.NopCloser(r), size: size, contentType: v1.Octets,
	}, nil, nil)
}

// GetTemplate implements brig.TemplateService.
func (c templateCalls) GetTemplate(ctx context.Context, template string) (*brig.TemplateDetails, error) {
	var out v1.TemplateDetails
	if err := c.call(ctx, request{method: http.MethodGet, path: templatePath(template)}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// TagTemplate implements brig.TemplateService.
func (c templateCalls) TagTemplate(ctx context.Context, template, from, tag string) error {
	return c.call(ctx, request{method: http.MethodPost, path: templatePath(template, "tags")}, v1.TagTemplateRequest{Tag: tag, From: from}, nil)
}

// UntagTemplate implements brig.TemplateService.
func (c templateCalls) UntagTemplate(ctx context.Context, template, tag string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: templatePath(template, "tags", tag)}, nil, nil)
}

// RemoveTemplate implements brig.TemplateService.
func (c templateCalls) RemoveTemplate(ctx context.Context, template string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: templatePath(template)}, nil, nil)
}
