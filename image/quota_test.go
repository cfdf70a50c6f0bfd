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

func TestQuotaEvictsLeastRecentlyUsedImages(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	s := a.store
	const quota = 3<<20 + 512<<10 // the content of three images, and their entries
	s.opts.Quota = quota
	now := time.Now()
	s.opts.Now = func() time.Time { return now }
	push := func(name string, size int) string {
		return h.push(imageOf(t, tarOf(t, func(m *maker) { m.addFile("usr/"+name, strings.Repeat(name, size)) })), name+":1")
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
	a.checkRefused(t, err, brig.FailedPrecondition, "", "images.max_size")

	used := users{}
	s.EvictFor(used)
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
	a.checkRefused(t, err, brig.FailedPrecondition, "", "in use")
	// A stored image needs no additional space, and an image above the quota is
	// refused.
	if _, err := a.pull(t, refs["a"]); err != nil {
		t.Error(err)
	}
	_, err = a.pull(t, push("large", 900<<10))
	a.checkRefused(t, err, brig.InvalidArgument, "ref", fmt.Sprint(quota))
	_, err = a.store.Import(t.Context(), "imported", strings.NewReader(string(tarOf(t, func(m *maker) { m.addFile("x", strings.Repeat("x", 1<<20)) }))), nil)
	a.checkRefused(t, err, brig.FailedPrecondition, "", "in use")
}

// users are the digests of images that sandboxes use.
type users map[string]bool

func (u users) UsedImages(context.Context) (map[string]bool, error) { return u, nil }

func (u users) RemoveUnused(_ context.Context, digest string, remove func() error) error {
	if u[digest] {
		return brig.Errorf(brig.FailedPrecondition, "in use")
	}
	return remove()
}

// Entries without content count, so that many images of directories reach the quota.
func TestQuotaCountsEntries(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	s := a.store
	s.opts.Quota, s.opts.MaxFiles = 10<<20, 2000
	s.EvictFor(users{})
	var refs []string
	for i := range 4 {
		refs = append(refs, h.push(imageOf(t, tarOf(t, func(m *maker) {
			m.addFile("usr/x", fmt.Sprint(i))
			for n := range 1000 {
				m.addDir(fmt.Sprintf("usr/%d", n))
			}
		})), fmt.Sprintf("x:%d", i)))
		if _, err := a.pull(t, refs[i]); err != nil {
			t.Fatal(err)
		}
	}
	x, err := s.readIndex()
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for _, ref := range refs {
		if x.find(ref) != "" {
			stored++
		}
	}
	if stored != 2 {
		t.Errorf("%d images of 4 MiB are here, with a quota of 10 MiB", stored)
	}
}

// An image that has an alias or cannot be pulled again is not evicted. If evicting the other images
// does not free enough space, no image is evicted.
func TestEvictionKeepsImagesThatCannotBePulled(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	s := a.store
	s.opts.Quota, s.opts.MaxSize = 10<<20, 10<<20
	content := func(name string, size int) []byte {
		return tarOf(t, func(m *maker) { m.addFile("usr/"+name, strings.Repeat("x", size)) })
	}
	if _, err := s.Import(t.Context(), "golden", strings.NewReader(string(content("golden", 3<<20))), nil); err != nil {
		t.Fatal(err)
	}
	named := h.push(imageOf(t, content("named", 2<<20)), "named:1")
	free := h.push(imageOf(t, content("free", 2<<20)), "free:1")
	for _, ref := range []string{named, free} {
		if _, err := a.pull(t, ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Tag(t.Context(), named, "python:3"); err != nil {
		t.Fatal(err)
	}
	s.EvictFor(users{})
	_, err := a.pull(t, h.push(imageOf(t, content("large", 6<<20)), "large:1"))
	a.checkRefused(t, err, brig.FailedPrecondition, "", "cannot be pulled again")
	for _, ref := range []string{"golden", named, free} {
		if _, err := s.Resolve(t.Context(), ref); err != nil {
			t.Errorf("%s is gone although that did not help: %v", ref, err)
		}
	}
	if _, err := a.pull(t, h.push(imageOf(t, content("small", 4<<20)), "small:1")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), free); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the control: an unused image remains: %v", err)
	}
	for _, ref := range []string{"golden", named, "python:3"} {
		if _, err := s.Resolve(t.Context(), ref); err != nil {
			t.Errorf("%s is gone: %v", ref, err)
		}
	}
}

// A removal does not wait until the files are deleted. Wait does.
func TestRemoveDoesNotWait(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	img, err := a.importBytes(t, smallArchive(t))
	if err != nil {
		t.Fatal(err)
	}
	begin, deleted := make(chan struct{}), false
	a.store.opts.removeAll = func(dir string) error {
		<-begin
		deleted = true
		return os.RemoveAll(dir)
	}
	if err := a.store.Remove(t.Context(), img.Digest); err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.Resolve(t.Context(), img.Digest); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the image is still there: %v", err)
	}
	close(begin)
	a.store.Wait()
	if !deleted {
		t.Error("the files are still there")
	}
}
