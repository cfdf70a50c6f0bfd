package builder_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/store/mem"
)

// readsStore counts the builds that are read, and those that are read with their logs.
type readsStore struct {
	brig.Store
	builds, logs atomic.Int64
}

func (s *readsStore) GetBuild(ctx context.Context, tenant, template, id string) (*brig.TemplateBuild, error) {
	s.logs.Add(1)
	return s.Store.GetBuild(ctx, tenant, template, id)
}

func (s *readsStore) Builds(ctx context.Context, f brig.BuildFilter) ([]*brig.TemplateBuild, error) {
	list, err := s.Store.Builds(ctx, f)
	s.builds.Add(int64(len(list)))
	return list, err
}

// A creation reads one build, and a list of templates the newest one of each. Neither reads a log.
func TestOnlyNeededBuildsAreRead(t *testing.T) {
	store := &readsStore{Store: mem.New()}
	f := newFixture(t, store, nil)
	ctx := as(t, "acme")
	for _, name := range []string{"web", "api"} {
		for range 3 {
			f.wait(t, ctx, f.start(t, ctx, name, builder.Plan{Image: "base"}))
		}
	}
	f.service.wantLeft(t, "paused paused")
	f.Close() // after it has recorded the removals
	var newest map[string]*brig.TemplateBuild
	for what, c := range map[string]struct {
		want int64
		call func() error
	}{
		"a creation": {1, func() error { _, err := f.Create(ctx, "web", brig.ForkSpec{}); return err }},
		"a list":     {2, func() (err error) { newest, err = f.NewestBuilds(ctx); return err }},
	} {
		store.builds.Store(0)
		store.logs.Store(0)
		if err := c.call(); err != nil {
			t.Fatal(err)
		}
		if builds, logs := store.builds.Load(), store.logs.Load(); builds != c.want || logs != 0 {
			t.Errorf("%s reads %d builds, want %d, and %d logs", what, builds, c.want, logs)
		}
	}
	list, err := f.List(ctx)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, x := range list {
		if n := newest[x.ID]; n == nil || n.ID != x.Tags["default"].Build || x.Builds != 3 {
			t.Errorf("the newest of %d builds of %s is %+v", x.Builds, x.Name, n)
		}
	}
}
