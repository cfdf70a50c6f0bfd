package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	s := a.store
	s.opts.Quota = 3 << 20
	now := time.Now()
	s.opts.Now = func() time.Time { return now }
	push := func(name string, size int) string {
		return h.push(imageOf(t, tarOf(t, func(m *maker) { m.file("usr/"+name, strings.Repeat(name, size)) })), name+":1")
	}
	refs := map[string]string{}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		refs[n] = push(n, 1<<20)
	}
	here := func() string {
		var all []string
		for n, ref := range refs {
			if x, err := s.readIndex(); err == nil && x.find(ref) != "" {
				all = append(all, n)
			}
		}
		slices.Sort(all)
		return strings.Join(all, "")
	}
	for _, n := range []string{"a", "b", "c"} {
		now = now.Add(time.Hour)
		if _, err := a.pull(t, refs[n]); err != nil {
			t.Fatal(err)
		}
		// The file's time is the only record of the last use.
		d, _ := s.readIndex()
		if err := os.Chtimes(filepath.Join(s.imageDir(d.find(refs[n])), "meta.json"), now, now); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.pull(t, refs["d"])
	a.refused(t, err, brig.FailedPrecondition, "", "images.max_size")

	used := map[string]bool{}
	s.EvictThrough(func(_ context.Context, digest string, remove func() error) error {
		if used[digest] {
			return brig.Errorf(brig.FailedPrecondition, "in use")
		}
		return remove()
	})
	now = now.Add(time.Hour)
	img, err := s.Resolve(t.Context(), refs["a"]) // counts as a use
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.pull(t, refs["d"]); err != nil || here() != "acd" {
		t.Errorf("%v, and %q is here", err, here())
	}
	used[img.Digest] = true
	x, _ := s.readIndex()
	used[x.find(refs["c"])] = true
	if _, err := a.pull(t, refs["e"]); err != nil || here() != "ace" {
		t.Errorf("%v, and %q is here", err, here())
	}
	used[x.find(refs["e"])] = true
	x, _ = s.readIndex()
	used[x.find(refs["e"])] = true
	_, err = a.pull(t, refs["b"])
	a.refused(t, err, brig.FailedPrecondition, "", "in use")
	// A stored image needs no additional space, and an image above the quota is
	// refused.
	if _, err := a.pull(t, refs["a"]); err != nil {
		t.Error(err)
	}
	_, err = a.pull(t, push("large", 700<<10))
	a.refused(t, err, brig.InvalidArgument, "ref", fmt.Sprint(3<<20))
	_, err = a.store.Import(t.Context(), "imported", strings.NewReader(string(tarOf(t, func(m *maker) { m.file("x", strings.Repeat("x", 1<<20)) }))), nil)
	a.refused(t, err, brig.FailedPrecondition, "", "in use")
}
