package builder

import (
	"context"
	"maps"
	"slices"
	"time"

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

// checkNumberOfTags checks that a template can have more tags.
func checkNumberOfTags(t *brig.BuiltTemplate, more []string) error {
	n := len(t.Tags)
	for _, tag := range more {
		if _, ok := t.Tags[tag]; !ok {
			n++
		}
	}
	if n > maxTags {
		return brig.Errorf(brig.RateLimited, "the template %q would have more than %d tags", t.Name, maxTags).WithHint("remove tags")
	}
	return nil
}

// Tag makes tags refer to the build that ref refers to.
func (b *Builder) Tag(ctx context.Context, ref string, tags []string) (x *brig.TemplateBuild, err error) {
	if len(tags) == 0 {
		return nil, brig.InvalidField("tags", "the request names no tag")
	}
	if tags, err = checkTags("", tags); err != nil {
		return nil, err
	}
	err = b.options.Service.Authorize(ctx, brig.OpTagTemplate, brig.Clip(ref, 200), func(of brig.Tenant) error {
		unlock, err := b.changes.Lock(ctx, of.Name)
		if err != nil {
			return err
		}
		defer unlock()
		var t *brig.BuiltTemplate
		if t, x, err = b.Find(ctx, ref); err != nil {
			return err
		}
		if x == nil {
			_, tag, _ := ParseName(ref)
			return errNoTag(t, tag)
		}
		if err := checkNumberOfTags(t, tags); err != nil {
			return err
		}
		now := b.options.Now().UTC()
		for _, tag := range tags {
			t.Tags[tag] = brig.TemplateTag{Build: x.ID, Assigned: now}
		}
		return b.putTags(ctx, t, now)
	})
	return x, err
}

// putTags writes a template after a change of its tags, with a build that has changed, too. In the same
// transaction, builds to which no tag refers any more lose their sandboxes.
func (b *Builder) putTags(ctx context.Context, t *brig.BuiltTemplate, at time.Time, changed ...*brig.TemplateBuild) error {
	untagged, err := b.discardIf(ctx, t, func(x *brig.TemplateBuild) bool {
		return x.Status == brig.BuildReady && len(tagsOf(t, x.ID)) == 0
	})
	if err != nil {
		return err
	}
	t.Updated = at
	if err := b.options.Store.PutTemplate(ctx, t, append(changed, untagged...)...); err != nil {
		return err
	}
	b.notifyDiscarded()
	return nil
}

// makeReady records that a build is ready, and makes its tags refer to it.
func (b *Builder) makeReady(ctx context.Context, x *brig.TemplateBuild) error {
	t, err := b.template(ctx, x.Tenant, x.Template)
	if err != nil {
		return err
	}
	if err := checkNumberOfTags(t, x.Tags); err != nil {
		return err
	}
	for _, tag := range x.Tags {
		t.Tags[tag] = brig.TemplateTag{Build: x.ID, Assigned: x.Finished}
	}
	x.Status = brig.BuildReady
	return b.putTags(ctx, t, x.Finished, x)
}

// Untag removes tags of a template. Tags that do not exist are an error, and then none is removed.
func (b *Builder) Untag(ctx context.Context, ref string, tags []string) error {
	if len(tags) == 0 {
		return brig.InvalidField("tags", "the request names no tag")
	}
	name, tag, err := ParseName(ref)
	if err != nil {
		return errNoTemplate(ref)
	}
	if tag != "" {
		return brig.InvalidField("name", "%q names a tag", brig.Clip(ref, 200)).WithHint("give the name of the template, and its tags in tags")
	}
	return b.options.Service.Authorize(ctx, brig.OpUntagTemplate, name, func(of brig.Tenant) error {
		unlock, err := b.changes.Lock(ctx, of.Name)
		if err != nil {
			return err
		}
		defer unlock()
		t, err := b.Template(ctx, ref)
		if err != nil {
			return err
		}
		for _, tag := range tags {
			if _, ok := t.Tags[tag]; !ok {
				return errNoTag(t, tag)
			}
		}
		for _, tag := range tags {
			delete(t.Tags, tag)
		}
		return b.putTags(ctx, t, b.options.Now().UTC())
	})
}

func errNoTag(t *brig.BuiltTemplate, tag string) *brig.Error {
	return brig.Errorf(brig.NotFound, "tag '%s' does not exist for template '%s'", brig.Clip(orDefault(tag), 200), t.Name)
}
