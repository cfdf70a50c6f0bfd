package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func builtTemplate(tenant, id, name string) *brig.BuiltTemplate {
	return &brig.BuiltTemplate{
		ID: id, Tenant: tenant, Name: name, Created: birth, Updated: birth,
		Tags: map[string]brig.TemplateTag{"default": {Build: "b1", Assigned: birth}},
	}
}

func templateBuild(tenant, template, id string) *brig.TemplateBuild {
	return &brig.TemplateBuild{
		ID: id, Template: template, Tenant: tenant, Status: brig.BuildWaiting, Created: birth,
		Env: map[string]string{"A": "\xff"}, Actor: "ann",
		Log: []brig.BuildLine{{Time: birth, Level: "info", Step: "base", Text: "line \xff"}},
	}
}

// putTemplates inserts a template of a tenant for each ID.
func putTemplates(t *testing.T, s brig.Store, tenant string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		mustSucceed(t, s.PutTemplate(t.Context(), builtTemplate(tenant, id, "name-"+id)))
	}
}

// templateRefs lists the templates of a tenant as "tenant/ID".
func templateRefs(t *testing.T, s brig.Store, tenant string) (out []string) {
	t.Helper()
	list, err := s.BuiltTemplates(t.Context(), tenant)
	mustSucceed(t, err)
	for _, x := range list {
		out = append(out, x.Tenant+"/"+x.ID)
	}
	return out
}

// buildRefs lists the selected builds as "tenant/template/ID".
func buildRefs(t *testing.T, s brig.Store, f brig.BuildFilter) (out []string) {
	t.Helper()
	list, err := s.Builds(t.Context(), f)
	mustSucceed(t, err)
	for _, b := range list {
		out = append(out, b.Tenant+"/"+b.Template+"/"+b.ID)
	}
	return out
}

// testTemplatesWithBuilds verifies that a template and its builds are written together or not at all.
func testTemplatesWithBuilds(t *testing.T, s brig.Store) {
	ctx := t.Context()
	putTemplates(t, s, "t", "t1")
	x, err := s.GetTemplate(ctx, "t", "t1")
	mustSucceed(t, err)
	first, stale := templateBuild("t", "t1", "b1"), templateBuild("t", "t1", "b2")
	stale.Rev = 7
	x.Uses = 1
	kind(t, s.PutTemplate(ctx, x, first, stale), brig.FailedPrecondition)
	checkEqual(t, "the refused Revs", []int64{x.Rev, first.Rev, stale.Rev}, []int64{1, 0, 7})
	got, err := s.GetTemplate(ctx, "t", "t1")
	mustSucceed(t, err)
	checkEqual(t, "the uses after the refused write", got.Uses, int64(0))
	_, err = s.GetBuild(ctx, "t", "t1", "b1")
	kind(t, err, brig.NotFound)

	stale.Rev = 0
	mustSucceed(t, s.PutTemplate(ctx, x, first, stale))
	checkEqual(t, "the Revs", []int64{x.Rev, first.Rev, stale.Rev}, []int64{2, 1, 1})
	for _, want := range []*brig.TemplateBuild{first, stale} {
		b, err := s.GetBuild(ctx, "t", "t1", want.ID)
		mustSucceed(t, err)
		checkEqual(t, "the Rev of "+want.ID, b.Rev, int64(1))
	}
}

// testTemplates verifies the revisions and the names of templates.
func testTemplates(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.GetTemplate(ctx, "t", "t1")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteTemplate(ctx, "t", "t1"), brig.NotFound)
	stale := builtTemplate("t", "t1", "web")
	stale.Rev = 1
	kind(t, s.PutTemplate(ctx, stale), brig.FailedPrecondition)
	checkEqual(t, "the refused template's Rev", stale.Rev, int64(1))

	x := builtTemplate("t", "t1", "web")
	mustSucceed(t, s.PutTemplate(ctx, x))
	checkEqual(t, "the first Rev", x.Rev, int64(1))
	kind(t, s.PutTemplate(ctx, builtTemplate("t", "t1", "other")), brig.AlreadyExists)
	x.Uses, x.LastUsed, x.Tags = 7, birth.Add(time.Hour), nil
	mustSucceed(t, s.PutTemplate(ctx, x))
	checkEqual(t, "the second Rev", x.Rev, int64(2))
	kind(t, s.PutTemplate(ctx, stale), brig.FailedPrecondition)
	for _, ref := range []string{"t1", "web"} {
		got, err := s.GetTemplate(ctx, "t", ref)
		mustSucceed(t, err)
		checkEqual(t, "the template by "+ref, got, x)
	}

	second := builtTemplate("t", "t2", "web")
	if e := kind(t, s.PutTemplate(ctx, second), brig.AlreadyExists); e.Field != "name" {
		t.Errorf("the error for a taken name has the field %q", e.Field)
	}
	checkEqual(t, "the refused template's Rev", second.Rev, int64(0))
	second.Name = "t1" // equal to the ID of the other template, which takes precedence
	mustSucceed(t, s.PutTemplate(ctx, second))
	got, err := s.GetTemplate(ctx, "t", "t1")
	mustSucceed(t, err)
	checkEqual(t, "the template whose ID is the name of another", got, x)
	second.Name = "web"
	if e := kind(t, s.PutTemplate(ctx, second), brig.AlreadyExists); e.Field != "name" {
		t.Errorf("the error of a change to a taken name has the field %q", e.Field)
	}
	x.Name = "renamed"
	mustSucceed(t, s.PutTemplate(ctx, x))
	mustSucceed(t, s.PutTemplate(ctx, second)) // the name is free now
	got, err = s.GetTemplate(ctx, "t", "web")
	mustSucceed(t, err)
	checkEqual(t, "the template with the name of the renamed one", got, second)

	mustSucceed(t, s.DeleteTemplate(ctx, "t", "t2"))
	kind(t, s.DeleteTemplate(ctx, "t", "t2"), brig.NotFound)
	kind(t, s.DeleteTemplate(ctx, "t", "renamed"), brig.NotFound) // not by name
	_, err = s.GetTemplate(ctx, "t", "web")
	kind(t, err, brig.NotFound)
	kind(t, s.PutTemplate(ctx, second), brig.FailedPrecondition) // a change does not restore it
	mustSucceed(t, s.PutTemplate(ctx, builtTemplate("t", "t3", "web")))
	mustSucceed(t, s.PutTemplate(ctx, builtTemplate("t", "t2", "again")))
}

// testTemplateLists verifies the order of templates, and that a tenant has no access to those of
// other tenants, even if the IDs and names are equal.
func testTemplateLists(t *testing.T, s brig.Store) {
	ctx := t.Context()
	checkEqual(t, "no templates", templateRefs(t, s, ""), []string(nil))
	late := builtTemplate("t", "a", "late")
	late.Created = birth.Add(time.Second)
	mustSucceed(t, s.PutTemplate(ctx, late))
	putTemplates(t, s, "t", "c", "b")
	theirs := builtTemplate("u", "b", "name-b")
	theirs.Uses = 3
	mustSucceed(t, s.PutTemplate(ctx, theirs))
	mustSucceed(t, s.PutBuild(ctx, templateBuild("u", "b", "b1")))
	checkEqual(t, "a tenant's templates", templateRefs(t, s, "t"), []string{"t/b", "t/c", "t/a"})
	checkEqual(t, "all templates", templateRefs(t, s, ""), []string{"t/b", "u/b", "t/c", "t/a"})
	checkEqual(t, "nobody's templates", templateRefs(t, s, "nobody"), []string(nil))

	_, err := s.GetTemplate(ctx, "u", "c")
	kind(t, err, brig.NotFound)
	_, err = s.GetTemplate(ctx, "u", "late")
	kind(t, err, brig.NotFound)
	_, err = s.GetBuild(ctx, "t", "b", "b1")
	kind(t, err, brig.NotFound)
	kind(t, s.PutBuild(ctx, templateBuild("u", "c", "b2")), brig.NotFound)
	kind(t, s.DeleteTemplate(ctx, "u", "c"), brig.NotFound)
	kind(t, s.DeleteBuild(ctx, "t", "b", "b1"), brig.NotFound)
	stolen := *late
	stolen.Tenant = "u"
	kind(t, s.PutTemplate(ctx, &stolen), brig.FailedPrecondition)
	mustSucceed(t, s.DeleteTemplate(ctx, "t", "b"))
	got, err := s.GetTemplate(ctx, "u", "b")
	mustSucceed(t, err)
	checkEqual(t, "the template of the other tenant", got, theirs)
	_, err = s.GetBuild(ctx, "u", "b", "b1")
	mustSucceed(t, err)
}

// testBuilds verifies the revisions of builds, and that deleting a template deletes its builds.
func testBuilds(t *testing.T, s brig.Store) {
	ctx := t.Context()
	b := templateBuild("t", "t1", "b1")
	kind(t, s.PutBuild(ctx, b), brig.NotFound)
	_, err := s.GetBuild(ctx, "t", "t1", "b1")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteBuild(ctx, "t", "t1", "b1"), brig.NotFound)
	putTemplates(t, s, "t", "t1", "t2")
	b.Rev = 1
	kind(t, s.PutBuild(ctx, b), brig.FailedPrecondition)
	b.Rev = 0
	mustSucceed(t, s.PutBuild(ctx, b))
	checkEqual(t, "the first Rev", b.Rev, int64(1))
	kind(t, s.PutBuild(ctx, templateBuild("t", "t1", "b1")), brig.AlreadyExists)
	stale := *b
	b.Status, b.Failure = brig.BuildFailed, &brig.BuildFailure{Step: "2", Message: "exit status 1"}
	b.Log = append(b.Log, brig.BuildLine{Time: birth.Add(1), Level: "error", Step: "2", Text: "failed"})
	mustSucceed(t, s.PutBuild(ctx, b))
	checkEqual(t, "the second Rev", b.Rev, int64(2))
	kind(t, s.PutBuild(ctx, &stale), brig.FailedPrecondition)
	checkEqual(t, "the refused build's Rev", stale.Rev, int64(1))
	got, err := s.GetBuild(ctx, "t", "t1", "b1")
	mustSucceed(t, err)
	checkEqual(t, "the build", got, b)
	mustSucceed(t, s.PutBuild(ctx, templateBuild("t", "t1", "b2")))
	mustSucceed(t, s.PutBuild(ctx, templateBuild("t", "t2", "b1"))) // IDs belong to a template

	// A change of the template keeps its builds.
	x, err := s.GetTemplate(ctx, "t", "t1")
	mustSucceed(t, err)
	mustSucceed(t, s.PutTemplate(ctx, x))
	checkEqual(t, "builds after the template was changed", buildRefs(t, s, brig.BuildFilter{Template: "t1"}), []string{"t/t1/b2", "t/t1/b1"})
	mustSucceed(t, s.DeleteBuild(ctx, "t", "t1", "b2"))
	kind(t, s.DeleteBuild(ctx, "t", "t1", "b2"), brig.NotFound)
	mustSucceed(t, s.DeleteTemplate(ctx, "t", "t1"))
	_, err = s.GetBuild(ctx, "t", "t1", "b1")
	kind(t, err, brig.NotFound)
	kind(t, s.PutBuild(ctx, b), brig.NotFound)
	checkEqual(t, "builds after the template was deleted", buildRefs(t, s, brig.BuildFilter{}), []string{"t/t2/b1"})
}

// testBuildLists verifies the filters and the order of builds.
func testBuildLists(t *testing.T, s brig.Store) {
	ctx := t.Context()
	putTemplates(t, s, "t", "t1", "t2")
	putTemplates(t, s, "u", "t1")
	for i, c := range []struct {
		tenant, template string
		status           brig.BuildStatus
	}{
		{"t", "t1", brig.BuildReady},
		{"t", "t2", brig.BuildRunning},
		{"t", "t1", brig.BuildWaiting},
		{"u", "t1", brig.BuildFailed},
		{"u", "t1", brig.BuildRunning},
		{"t", "t1", brig.BuildFailed},
	} {
		b := templateBuild(c.tenant, c.template, fmt.Sprint("b", i))
		b.Status, b.Created = c.status, birth.Add(time.Duration(i/2)) // pairs have the same time
		mustSucceed(t, s.PutBuild(ctx, b))
	}
	for _, c := range []struct {
		filter brig.BuildFilter
		want   []string
	}{
		{brig.BuildFilter{}, []string{"t/t1/b5", "u/t1/b4", "u/t1/b3", "t/t1/b2", "t/t2/b1", "t/t1/b0"}},
		{brig.BuildFilter{Tenant: "t"}, []string{"t/t1/b5", "t/t1/b2", "t/t2/b1", "t/t1/b0"}},
		{brig.BuildFilter{Template: "t1"}, []string{"t/t1/b5", "u/t1/b4", "u/t1/b3", "t/t1/b2", "t/t1/b0"}},
		{brig.BuildFilter{Unfinished: true}, []string{"u/t1/b4", "t/t1/b2", "t/t2/b1"}},
		{brig.BuildFilter{Tenant: "t", Template: "t1"}, []string{"t/t1/b5", "t/t1/b2", "t/t1/b0"}},
		{brig.BuildFilter{Tenant: "t", Unfinished: true}, []string{"t/t1/b2", "t/t2/b1"}},
		{brig.BuildFilter{Tenant: "t", Template: "t1", Unfinished: true}, []string{"t/t1/b2"}},
		{brig.BuildFilter{Tenant: "t", Template: "t1", ID: "b2"}, []string{"t/t1/b2"}},
		{brig.BuildFilter{Tenant: "t", ID: "b3"}, nil},
		{brig.BuildFilter{Newest: true}, []string{"t/t1/b5", "u/t1/b4", "t/t2/b1"}},
		{brig.BuildFilter{Tenant: "t", Newest: true}, []string{"t/t1/b5", "t/t2/b1"}},
		{brig.BuildFilter{Tenant: "t", Newest: true, Unfinished: true}, []string{"t/t2/b1"}},
		{brig.BuildFilter{Discarded: true}, nil},
		{brig.BuildFilter{Tenant: "u", Template: "t2"}, nil},
		{brig.BuildFilter{Tenant: "nobody"}, nil},
	} {
		checkEqual(t, fmt.Sprintf("builds of %+v", c.filter), buildRefs(t, s, c.filter), c.want)
	}
	b, err := s.GetBuild(ctx, "t", "t1", "b2")
	mustSucceed(t, err)
	b.Status, b.Discarded = brig.BuildReady, []brig.ID{"sb1"}
	mustSucceed(t, s.PutBuild(ctx, b))
	checkEqual(t, "builds with discarded sandboxes", buildRefs(t, s, brig.BuildFilter{Discarded: true}), []string{"t/t1/b2"})
	b.Discarded = []brig.ID{}
	mustSucceed(t, s.PutBuild(ctx, b))
	checkEqual(t, "builds with discarded sandboxes after their removal", buildRefs(t, s, brig.BuildFilter{Discarded: true}), []string(nil))
	checkEqual(t, "unfinished builds after one ended", buildRefs(t, s, brig.BuildFilter{Unfinished: true}), []string{"u/t1/b4", "t/t2/b1"})
}

// testTemplateRoundTrip verifies that a read returns exactly the written template or build, that
// lists return the same without the logs, and that the store shares no memory with the caller.
func testTemplateRoundTrip(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for name, m := range map[string]struct {
		template func() *brig.BuiltTemplate
		build    func() *brig.TemplateBuild
	}{
		"full":  {func() *brig.BuiltTemplate { return filled[brig.BuiltTemplate](t, false) }, func() *brig.TemplateBuild { return filled[brig.TemplateBuild](t, false) }},
		"empty": {func() *brig.BuiltTemplate { return filled[brig.BuiltTemplate](t, true) }, func() *brig.TemplateBuild { return filled[brig.TemplateBuild](t, true) }},
		"zero":  {func() *brig.BuiltTemplate { return new(brig.BuiltTemplate) }, func() *brig.TemplateBuild { return new(brig.TemplateBuild) }},
	} {
		t.Run(name, func(t *testing.T) {
			var rev, buildRev int64
			template := func() *brig.BuiltTemplate {
				x := m.template()
				x.ID, x.Tenant, x.Name, x.Rev = "id-"+name, name, "n", rev
				return x
			}
			build := func() *brig.TemplateBuild {
				b := m.build()
				b.ID, b.Template, b.Tenant, b.Rev = "b", "id-"+name, name, buildRev
				return b
			}
			checkRoundTrip(t, template, func(x *brig.BuiltTemplate) error {
				err := s.PutTemplate(ctx, x)
				rev = x.Rev
				return err
			}, func() (*brig.BuiltTemplate, error) { return s.GetTemplate(ctx, name, "n") })
			checkRoundTrip(t, build, func(b *brig.TemplateBuild) error {
				err := s.PutBuild(ctx, b)
				buildRev = b.Rev
				return err
			}, func() (*brig.TemplateBuild, error) { return s.GetBuild(ctx, name, "id-"+name, "b") })
			short := build()
			short.Log = nil
			for range 2 {
				templates, err := s.BuiltTemplates(ctx, name)
				mustSucceed(t, err)
				checkEqual(t, "the list of templates", templates, []*brig.BuiltTemplate{template()})
				builds, err := s.Builds(ctx, brig.BuildFilter{Tenant: name})
				mustSucceed(t, err)
				checkEqual(t, "the list of builds", builds, []*brig.TemplateBuild{short})
				mutate(reflect.ValueOf(templates))
				mutate(reflect.ValueOf(builds))
			}
		})
	}
}

// testTemplatesOfTenants verifies that deleting a tenant deletes its templates with their builds
// and none of other tenants.
func testTemplatesOfTenants(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for _, tenant := range []string{"t", "u"} {
		mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: tenant}))
		putTemplates(t, s, tenant, "t1")
		mustSucceed(t, s.PutBuild(ctx, templateBuild(tenant, "t1", "b1")))
	}
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	_, err := s.GetTemplate(ctx, "t", "t1")
	kind(t, err, brig.NotFound)
	_, err = s.GetBuild(ctx, "t", "t1", "b1")
	kind(t, err, brig.NotFound)
	checkEqual(t, "templates that are left", templateRefs(t, s, ""), []string{"u/t1"})
	checkEqual(t, "builds that are left", buildRefs(t, s, brig.BuildFilter{}), []string{"u/t1/b1"})
	// A later tenant with the same name and template does not inherit the builds.
	putTemplates(t, s, "t", "t1")
	checkEqual(t, "builds of the later tenant", buildRefs(t, s, brig.BuildFilter{Tenant: "t"}), []string(nil))
}

// testTemplateConflict changes one template and one build from several goroutines with the same
// Rev, and inserts the same name. Only one call may succeed.
func testTemplateConflict(t *testing.T, s brig.Store) {
	ctx := t.Context()
	errs := runConcurrently(func(i int) error {
		return s.PutTemplate(ctx, builtTemplate("t", fmt.Sprint("t", i), "web"))
	})
	if n := countSuccesses(t, errs, brig.AlreadyExists); n != 1 {
		t.Fatalf("%d of %d have the name", n, concurrency)
	}
	x, err := s.GetTemplate(ctx, "t", "web")
	mustSucceed(t, err)
	errs = runConcurrently(func(int) error {
		mine := *x
		mine.Uses++
		return s.PutTemplate(ctx, &mine)
	})
	if n := countSuccesses(t, errs, brig.FailedPrecondition); n != 1 {
		t.Errorf("%d of %d changed the template", n, concurrency)
	}
	b := templateBuild("t", x.ID, "b1")
	mustSucceed(t, s.PutBuild(ctx, b))
	errs = runConcurrently(func(int) error {
		mine := *b
		mine.Status = brig.BuildRunning
		return s.PutBuild(ctx, &mine)
	})
	if n := countSuccesses(t, errs, brig.FailedPrecondition); n != 1 {
		t.Errorf("%d of %d changed the build", n, concurrency)
	}
}

// testTemplatesCanceled verifies that a call with a canceled context changes nothing.
func testTemplatesCanceled(t *testing.T, s brig.Store) {
	end := canceled(t)
	putTemplates(t, s, "t", "t1")
	mustSucceed(t, s.PutBuild(t.Context(), templateBuild("t", "t1", "b1")))
	x, b := builtTemplate("t", "t2", "name"), templateBuild("t", "t1", "b2")
	for name, f := range map[string]func() error{
		"PutTemplate":    func() error { return s.PutTemplate(end, x) },
		"GetTemplate":    func() error { _, err := s.GetTemplate(end, "t", "t1"); return err },
		"BuiltTemplates": func() error { _, err := s.BuiltTemplates(end, "t"); return err },
		"DeleteTemplate": func() error { return s.DeleteTemplate(end, "t", "t1") },
		"PutBuild":       func() error { return s.PutBuild(end, b) },
		"GetBuild":       func() error { _, err := s.GetBuild(end, "t", "t1", "b1"); return err },
		"Builds":         func() error { _, err := s.Builds(end, brig.BuildFilter{}); return err },
		"DeleteBuild":    func() error { return s.DeleteBuild(end, "t", "t1", "b1") },
	} {
		if err := f(); brig.KindOf(err) != brig.Canceled {
			t.Errorf("%s under an ended context: %v, of kind %q", name, err, brig.KindOf(err))
		}
	}
	checkEqual(t, "the refused revisions", []int64{x.Rev, b.Rev}, []int64{0, 0})
	checkEqual(t, "the templates", templateRefs(t, s, ""), []string{"t/t1"})
	checkEqual(t, "the builds", buildRefs(t, s, brig.BuildFilter{}), []string{"t/t1/b1"})
}
