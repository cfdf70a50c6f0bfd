package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// TestVersionsCountAgainstQuota restores two versions alternately. Each new
// version uses a part of the quota, although its content already exists. A
// restore of the newest version creates no version.
func TestVersionsCountAgainstQuota(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"one", "two"} {
			if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": content}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if v, err := s.Restore(ctx, "acme", "ann", "data", 2, 1); err != nil || v.Number != 2 {
				t.Errorf("the newest: %+v, %v", v, err)
			}
		}
		quota := wantStored(t, s, a) + 3*4096 + 100
		made := 0
		for i := range 6 {
			old := 2 // not the newest
			if i < 3 {
				old = 1 + i%2
			}
			v, err := s.Restore(ctx, "acme", "ann", "data", old, quota)
			if err == nil && v.Number == 3+i {
				made++
			} else if e := brig.AsError(err); e == nil || e.Kind != brig.RateLimited || e.Field != "quota.workspaces" {
				t.Errorf("restore %d: %+v, %v", i, v, err)
			}
		}
		if made != 3 {
			t.Errorf("%d versions fit, want 3", made)
		}
		if _, err := commitWithin(ctx, s, quota, resolveUse(t, s, "acme", "data", 0), tree{}); brig.KindOf(err) != brig.RateLimited {
			t.Errorf("a small commit: %v", err)
		}
		wantStored(t, s, a)
	})
}

// TestOldestVersionsAreRemoved checks that a workspace keeps its newest versions.
// Older versions are removed in batches, without a sweep after each, and a sweep
// removes the contents that only they referenced.
func TestOldestVersionsAreRemoved(t *testing.T) {
	const limit, batch = 5, 3
	workspace.SetMaxVersions(t, limit, batch)
	o, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stored(ctx, "acme"); err != nil { // from now on, the ledger counts the versions
		t.Fatal(err)
	}
	for i := range 8 {
		if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		want := []int{1, 2, 3, 4, 5, 5, 6, 7}[i] // the commits of versions 6 and 9 remove old versions
		if n := len(listKeys(t, o, "t/acme/versions/")); n != want {
			t.Errorf("after %d commits there are %d versions, want %d", i+1, n, want)
		}
		if s.NeedsSweep("acme") {
			t.Errorf("commit %d needs a sweep", i+1)
		}
	}
	if v, err := s.Restore(ctx, "acme", "ann", "data", 4, 0); err != nil || v.Number != 9 {
		t.Errorf("%+v, %v", v, err)
	}
	vs, err := s.Versions(ctx, "acme", "data")
	if err != nil || len(vs) != limit || vs[0].Number != 9 || vs[limit-1].Number != 5 {
		t.Errorf("%+v, %v", vs, err)
	}
	if _, err := s.Restore(ctx, "acme", "ann", "data", 4, 0); brig.KindOf(err) != brig.NotFound || !strings.Contains(err.Error(), "no version 4") {
		t.Errorf("a removed version: %v", err)
	}
	// The contents of removed versions count until a sweep, so a tenant without
	// space needs one.
	stored, err := s.Stored(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commitWithin(ctx, s, stored, resolveUse(t, s, "acme", "data", 0), tree{"a": "new"}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("without space: %v", err)
	}
	if !s.NeedsSweep("acme") {
		t.Error("removed versions take the quota, and no sweep is needed")
	}
	if _, err := s.Sweep(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	if n := len(listKeys(t, o, "t/acme/blobs/")); n != 2*limit { // version 9 shares the objects of version 4
		t.Errorf("%d contents and manifests are left of %d versions", n, limit)
	}
}
