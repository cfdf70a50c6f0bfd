package rest_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// stubTemplates is a scripted brig.TemplateService that records its calls.
type stubTemplates struct{ *stub }

func errNoStubTemplate(name string) error {
	return brig.Errorf(brig.NotFound, "template '%s' not found", name)
}

func (stubTemplates) build() *brig.TemplateBuild {
	return &brig.TemplateBuild{
		ID: "b1", Template: "t1", Status: brig.BuildFailed, Tags: []string{"default"}, Created: epoch, Started: epoch, Finished: epoch.Add(time.Second), Actor: "ann",
		Failure: &brig.BuildFailure{Step: "1", Message: "exit status 3"},
		Log: []brig.BuildLine{
			{Time: epoch, Level: "info", Step: "1", Text: "[1/1] RUN false"}, {Time: epoch.Add(time.Second), Level: "error", Step: "1", Text: "exit status 3"},
		},
	}
}

func (s stubTemplates) BuildTemplate(_ context.Context, spec brig.BuildSpec) (*brig.TemplateBuild, error) {
	s.record(spec)
	b := s.build()
	b.Status, b.Finished, b.Failure = brig.BuildRunning, time.Time{}, nil
	return b, nil
}

func (s stubTemplates) GetTemplateBuild(_ context.Context, template, _ string) (*brig.TemplateBuild, error) {
	if template != "web" {
		return nil, errNoStubTemplate(template)
	}
	return s.build(), nil
}

func (s stubTemplates) FollowTemplateBuild(ctx context.Context, template, id string, skip int, on func(brig.BuildLine) error) (*brig.TemplateBuild, error) {
	b, err := s.GetTemplateBuild(ctx, template, id)
	if err != nil {
		return nil, err
	}
	for _, l := range b.Log[skip:] {
		if err := on(l); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (s stubTemplates) CancelTemplateBuild(_ context.Context, _, id string) error {
	s.record(id)
	return brig.Errorf(brig.FailedPrecondition, "the build is not running")
}

func (stubTemplates) HasTemplateFiles(_ context.Context, digest string) (bool, error) {
	return strings.HasPrefix(digest, "a"), nil
}

func (s stubTemplates) PutTemplateFiles(_ context.Context, digest string, _ int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	s.record(digest[:1] + " " + string(b))
	return err
}

func (s stubTemplates) GetTemplate(_ context.Context, template string) (*brig.TemplateDetails, error) {
	if template != "web" {
		return nil, errNoStubTemplate(template)
	}
	return &brig.TemplateDetails{
		BuiltTemplate: brig.BuiltTemplate{ID: "t1", Name: "web", Created: epoch, Updated: epoch, Tags: map[string]brig.TemplateTag{"default": {Build: "b1", Assigned: epoch}}},
		Builds:        []*brig.TemplateBuild{s.build()},
	}, nil
}

func (s stubTemplates) TagTemplate(_ context.Context, template, from, tag string) error {
	s.record([]string{template, from, tag})
	return nil
}

func (s stubTemplates) UntagTemplate(_ context.Context, template, tag string) error {
	s.record([]string{template, tag})
	return nil
}

func (s stubTemplates) RemoveTemplate(_ context.Context, template string) error {
	if template != "web" {
		return errNoStubTemplate(template)
	}
	return nil
}

// fullTemplates is a TemplateService whose responses have values in all fields.
type fullTemplates struct {
	stubTemplates
	t *testing.T
}

// fullBuild returns a build with values in all fields that clients receive.
func fullBuild(t *testing.T) *brig.TemplateBuild {
	b := full[brig.TemplateBuild](t)
	b.Log = []brig.BuildLine{*full[brig.BuildLine](t)}
	return b
}

func (f fullTemplates) GetTemplate(context.Context, string) (*brig.TemplateDetails, error) {
	return full[brig.TemplateDetails](f.t), nil
}

func (f fullTemplates) GetTemplateBuild(context.Context, string, string) (*brig.TemplateBuild, error) {
	return fullBuild(f.t), nil
}
