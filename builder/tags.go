package builder

import (
	"context"
	"maps"
	"slices"

	"github.com/brig-run/brig"
)

// tagsOf returns the tags that refer to a build, sorted.
func tagsOf(t *brig.BuiltTemplate, build string) (tags []string) {
	for _, tag := range slices.Sorted(maps.Keys(t.Tags)) {
		if t.Tags[tag].Build == build {
			tags = append(tags, tag)
		}
	}
	return tags
}

// Tag makes tags refer to the build that ref refers to.
func (b *Builder) Tag(ctx context.Context, ref string, tags []string) (*brig.TemplateBuild, error) {
	if len(tags) == 0 {
		return nil, brig.InvalidField("tags", "the request names no tag")
	}
	tags, err := checkTags("", tags)
	if err != nil {
		return nil, err
	}
	defer b.changes.lock(brig.ActorFrom(ctx).Tenant)()
	t, x, err := b.Find(ctx, ref)
	if err == nil && x == nil {
		_, tag, _ := ParseName(ref)
		err = ErrNoTag(t, tag)
	}
	if err != nil {
		return nil, err
	}
	return x, b.setTags(ctx, t, x.ID, tags)
}

// setTags makes tags refer to a build, and removes the sandboxes of builds to which no tag refers
// any more. The caller holds the tenant's lock.
func (b *Builder) setTags(ctx context.Context, t *brig.BuiltTemplate, build string, tags []string) error {
	now := b.Now().UTC()
	for _, tag := range tags {
		t.Tags[tag] = brig.TemplateTag{Build: build, Assigned: now}
	}
	if len(t.Tags) > maxTags {
		return brig.Errorf(brig.RateLimited, "the template %q would have more than %d tags", t.Name, maxTags).WithHint("remove tags")
	}
	return b.putTags(ctx, t)
}

// putTags writes a template after a change of its tags.
func (b *Builder) putTags(ctx context.Context, t *brig.BuiltTemplate) error {
	t.Updated = b.Now().UTC()
	if err := b.Store.PutTemplate(ctx, t); err != nil {
		return err
	}
	all, err := b.Builds(ctx, t)
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Status == brig.BuildReady && x.Files != "" && len(tagsOf(t, x.ID)) == 0 {
			b.discard(ctx, x)
		}
	}
	return nil
}

// discard removes the sandboxes of a build that no tag refers to. Its record remains.
func (b *Builder) discard(ctx context.Context, x *brig.TemplateBuild) {
	full, err := b.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
	if err == nil {
		b.removeSandboxes(ctx, full)
		full.Files, full.Sandbox = "", ""
		err = b.Store.PutBuild(ctx, full)
	}
	if err != nil {
		b.Log.WarnContext(ctx, "failed to discard a build", "build", x.ID, "err", err)
	}
}

// Untag removes tags of a template. Tags that do not exist are an error, and then none is removed.
func (b *Builder) Untag(ctx context.Context, ref string, tags []string) error {
	if len(tags) == 0 {
		return brig.InvalidField("tags", "the request names no tag")
	}
	defer b.changes.lock(brig.ActorFrom(ctx).Tenant)()
	t, _, err := b.Find(ctx, ref)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if _, ok := t.Tags[tag]; !ok {
			return ErrNoTag(t, tag)
		}
	}
	for _, tag := range tags {
		delete(t.Tags, tag)
	}
	return b.putTags(ctx, t)
}

// ErrNoTag returns the error for a tag that a template does not have.
func ErrNoTag(t *brig.BuiltTemplate, tag string) *brig.Error {
	return brig.Errorf(brig.NotFound, "tag '%s' does not exist for template '%s'", brig.Clip(orDefault(tag), 200), t.Name)
}
