package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/volume"
)

const testVolume = 16 * brig.MiB

// newVolumeFixture returns a fixture with volumes, and the directory of their images.
func newVolumeFixture(t *testing.T, change func(*engine.Options)) (h *fixture, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "volumes")
	store, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Check(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(store.Close)
	h = newFixture(t, func(o *engine.Options) {
		o.Volumes, o.VolumeSize = store, testVolume
		if change != nil {
			change(o)
		}
	})
	h.provider.Volumes = true
	return h, dir
}

func (h *fixture) mustCreateVolume(t *testing.T, ctx context.Context, name string) *brig.Volume {
	t.Helper()
	v, err := h.CreateVolume(ctx, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// images returns the number of images in a directory.
func imagesIn(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func mounts(names ...string) (out []brig.VolumeMount) {
	for _, name := range names {
		out = append(out, brig.VolumeMount{Name: name, Path: "/mnt/" + name})
	}
	return out
}

func checkField(t *testing.T, what string, err error, kind brig.Kind, field string) {
	t.Helper()
	if e := brig.AsError(err); err == nil || e.Kind != kind || e.Field != field {
		t.Errorf("%s: %v, want %v of %q", what, err, kind, field)
	}
}

func TestVolumesHaveNames(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	v := h.mustCreateVolume(t, ctx, "My_data-1")
	if !strings.HasPrefix(v.ID, "vol") || v.Size != testVolume || v.Used == 0 || v.Tenant != "acme" {
		t.Errorf("volume %+v", v)
	}
	_, err := h.CreateVolume(ctx, "My_data-1", 0)
	checkField(t, "a taken name", err, brig.AlreadyExists, "name")
	for _, name := range []string{"", "a/b", "..", "ä", strings.Repeat("a", 129)} {
		_, err := h.CreateVolume(ctx, name, 0)
		checkField(t, name, err, brig.InvalidArgument, "name")
	}
	for _, size := range []int64{-1, brig.MinVolumeSize - 1, brig.MaxVolumeSize + 1} {
		_, err := h.CreateVolume(ctx, "sized", size)
		checkField(t, "a wrong size", err, brig.InvalidArgument, "size")
	}
	for _, ref := range []string{"My_data-1", v.ID} {
		if got, err := h.GetVolume(ctx, ref); err != nil || got.ID != v.ID || got.Used == 0 {
			t.Errorf("get %s: %+v, %v", ref, got, err)
		}
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Admin})
	if _, err := h.GetVolume(rival, v.ID); brig.KindOf(err) != brig.NotFound {
		t.Errorf("another tenant: %v", err)
	}
	if err := h.RemoveVolume(rival, v.ID); brig.KindOf(err) != brig.NotFound {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := h.VolumeFiles(v.ID).List(rival, "/", 1); brig.KindOf(err) != brig.NotFound {
		t.Errorf("another tenant: %v", err)
	}
	if all, err := h.Volumes(ctx); err != nil || len(all) != 1 {
		t.Errorf("volumes %v, %v", all, err)
	}
}

// A removed volume keeps its data while a sandbox that mounted it exists, and is deleted after that.
func TestRemovedVolumeOutlivesItsSandboxes(t *testing.T) {
	h, dir := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	v := h.mustCreateVolume(t, ctx, "data")
	box, err := h.Create(ctx, brig.Spec{Name: "one", Volumes: mounts("data")})
	if err != nil {
		t.Fatal(err)
	}
	if m := box.Spec.Volumes; len(m) != 1 || m[0].ID != v.ID {
		t.Errorf("mounts %+v", m)
	}
	if err := h.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.GetVolume(ctx, v.ID); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the removed volume: %v", err)
	}
	_, err = h.Create(ctx, brig.Spec{Volumes: mounts("data")})
	checkField(t, "a mount of the removed volume", err, brig.InvalidArgument, "volumes[0].name")
	if n := imagesIn(t, dir); n != 1 {
		t.Errorf("%d images while the sandbox runs", n)
	}
	again := h.mustCreateVolume(t, ctx, "data")
	if again.ID == v.ID {
		t.Error("the new volume has the ID of the removed one")
	}
	if _, err := h.Kill(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if err := h.DeleteUnusedVolumes(ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := h.store.Volumes(ctx, "acme"); err != nil || len(all) != 1 || all[0].ID != again.ID || imagesIn(t, dir) != 1 {
		t.Errorf("after the sandbox has ended: %v, %d images, %v", all, imagesIn(t, dir), err)
	}
	if err := h.RemoveVolume(ctx, "data"); err != nil || imagesIn(t, dir) != 0 {
		t.Errorf("an unused volume: %v, %d images", err, imagesIn(t, dir))
	}
}

// The sizes of a tenant's volumes stay within its quota, also if they are created at the same time.
func TestVolumeQuotaIsExact(t *testing.T) {
	h, dir := newVolumeFixture(t, nil)
	if err := h.store.PutTenant(t.Context(), &brig.Tenant{Name: "acme", Quota: brig.Quota{Volumes: 3*testVolume + 1}}); err != nil {
		t.Fatal(err)
	}
	ctx := withRole(t, brig.Member)
	box := func() error {
		h.mustCreateVolume(t, ctx, "used")
		_, err := h.Create(ctx, brig.Spec{Name: "one", Volumes: mounts("used")})
		return errors.Join(err, h.RemoveVolume(ctx, "used"))
	}
	if err := box(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for _, name := range strings.Fields("a b c d e f") {
		group.Go(func() {
			_, err := h.CreateVolume(ctx, name, 0)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created++
			} else {
				checkField(t, "a volume beyond the quota", err, brig.RateLimited, "quota.volumes")
			}
		})
	}
	group.Wait()
	if created != 2 || imagesIn(t, dir) != 3 {
		t.Errorf("%d volumes beside a removed one that is in use, %d images", created, imagesIn(t, dir))
	}
	if err := h.Remove(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if err := h.DeleteUnusedVolumes(ctx); err != nil {
		t.Fatal(err)
	}
	h.mustCreateVolume(t, ctx, "more")
}

// A mount needs the rights to the files of the volume, in addition to the right to create sandboxes.
func TestMountsNeedRights(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	h.mustCreateVolume(t, withRole(t, brig.Member), "data")
	with := func(scopes ...string) context.Context {
		return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Scopes: scopes})
	}
	readOnly := []brig.VolumeMount{{Name: "data", Path: "/data", ReadOnly: true}}
	for _, c := range []struct {
		ctx    context.Context
		mounts []brig.VolumeMount
		want   brig.Kind
	}{
		{with("sandbox."), mounts("data"), brig.PermissionDenied},
		{with("sandbox."), readOnly, brig.PermissionDenied},
		{with("sandbox.", "volume.file.read"), mounts("data"), brig.PermissionDenied},
		{with("sandbox.", "volume.file.read"), readOnly, ""},
		{with("sandbox.", "volume."), mounts("data"), ""},
	} {
		_, err := h.Create(c.ctx, brig.Spec{Volumes: c.mounts})
		if (err != nil) != (c.want != "") || c.want != "" && brig.KindOf(err) != c.want {
			t.Errorf("%v with %v: %v", c.mounts, brig.ActorFrom(c.ctx).Scopes, err)
		}
	}
	if _, err := h.Create(with("sandbox.", "volume."), brig.Spec{Name: "origin", Volumes: mounts("data"), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Fork(with("sandbox."), "origin", brig.ForkSpec{}); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("a fork without the rights: %v", err)
	}
	copies, err := h.Fork(with("sandbox.", "volume."), "origin", brig.ForkSpec{})
	if err != nil || len(copies[0].Spec.Volumes) != 1 {
		t.Errorf("a fork: %+v, %v", copies, err)
	}
}

func TestMountsAreChecked(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.mustCreateVolume(t, ctx, "data")
	if _, err := h.CreateWorkspace(ctx, "work"); err != nil {
		t.Fatal(err)
	}
	mount := func(path string) []brig.VolumeMount { return []brig.VolumeMount{{Name: "data", Path: path}} }
	for field, list := range map[string][]brig.VolumeMount{
		"volumes[0].name": {{Name: "none", Path: "/a"}},
		"volumes[1].name": {{Name: "data", Path: "/a"}, {Path: "/b"}},
		"volumes[1].path": {{Name: "data", Path: "/a"}, {Name: "data", Path: "/a"}},
		"volumes":         make([]brig.VolumeMount, brig.MaxVolumeMounts+1),
	} {
		_, err := h.Create(ctx, brig.Spec{Volumes: list})
		checkField(t, field, err, brig.InvalidArgument, field)
	}
	for _, path := range []string{"", "data", "/", "/a/", "/a/../b", "/a//b", "/proc", "/proc/1", "/sys/x", "/dev/shm", "/.brig", "/a\x00", "/" + strings.Repeat("a", 1024)} {
		_, err := h.Create(ctx, brig.Spec{Volumes: mount(path)})
		checkField(t, path, err, brig.InvalidArgument, "volumes[0].path")
	}
	for _, path := range []string{"/workspace", "/workspace/data"} {
		_, err := h.Create(ctx, brig.Spec{Volumes: mount(path), Workspace: brig.WorkspaceUse{Name: "work"}})
		checkField(t, path, err, brig.InvalidArgument, "volumes[0].path")
		if _, err := h.Create(ctx, brig.Spec{Volumes: mount(path)}); err != nil {
			t.Errorf("%s without a workspace: %v", path, err)
		}
	}
	h.provider.Volumes = false
	_, err := h.Create(ctx, brig.Spec{Volumes: mount("/data")})
	checkField(t, "a provider without volumes", err, brig.Unimplemented, "volumes")
	none := newFixture(t, nil)
	_, err = none.Create(ctx, brig.Spec{Volumes: mount("/data")})
	checkField(t, "a server without volumes", err, brig.FailedPrecondition, "volumes")
}

// Copies of memory have the mounts of the original. Copies that boot can have others.
func TestForksMountVolumes(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.mustCreateVolume(t, ctx, "data")
	h.mustCreateVolume(t, ctx, "other")
	if _, err := h.Create(ctx, brig.Spec{Name: "one", Volumes: mounts("data"), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	_, err := h.Fork(ctx, "one", brig.ForkSpec{Volumes: mounts("other")})
	checkField(t, "other mounts for copies of memory", err, brig.InvalidArgument, "volumes")
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Volumes: mounts("data")}); err != nil {
		t.Errorf("the same mounts: %v", err)
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Volumes: mounts("other")})
	if err != nil || len(copies[0].Spec.Volumes) != 1 || copies[0].Spec.Volumes[0].Name != "other" {
		t.Errorf("other mounts: %+v, %v", copies, err)
	}
	if copies, err = h.Fork(ctx, "one", brig.ForkSpec{Volumes: []brig.VolumeMount{}}); err != nil || len(copies[0].Spec.Volumes) != 0 {
		t.Errorf("no mounts: %+v, %v", copies, err)
	}
	// The original is paused and uses its volume, so a removed volume stays.
	if err := h.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	if copies, err = h.Fork(ctx, "one", brig.ForkSpec{}); err != nil || len(copies[0].Spec.Volumes) != 1 {
		t.Errorf("the mounts of the original: %+v, %v", copies, err)
	}
}

func TestFilesOfVolumes(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	v := h.mustCreateVolume(t, ctx, "data")
	files := h.VolumeFiles("data")
	if _, err := files.Write(ctx, "a.txt", brig.VolumeWrite{}, strings.NewReader("text")); err != nil {
		t.Fatal(err)
	}
	e, r, err := h.VolumeFiles(v.ID).Read(ctx, "/a.txt")
	if err != nil || e.Size != 4 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := h.RemoveVolume(ctx, "data"); err != nil { // an open file stays readable
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "text" {
		t.Errorf("read %q, %v", b, err)
	}
	r.Close()
	if _, err := files.Stat(ctx, "a.txt"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a file of a removed volume: %v", err)
	}
	events, err := h.store.Events(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, ev := range events {
		found = found || ev.Op == brig.OpWriteVolume.Name && ev.Detail[brig.DetailVolume] == "data" && ev.Detail[brig.DetailPath] == "a.txt"
	}
	if !found {
		t.Errorf("the audit log lacks the write: %+v", events)
	}
}

// A tenant's volumes are deleted with it.
func TestRemovedTenantLeavesNoVolumes(t *testing.T) {
	h, dir := newVolumeFixture(t, nil)
	op := withRole(t, brig.Operator)
	if _, err := h.CreateTenant(op, brig.Tenant{Name: "fresh"}); err != nil {
		t.Fatal(err)
	}
	h.mustCreateVolume(t, brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "fresh", Role: brig.Member}), "data")
	if err := h.RemoveTenant(op, "fresh"); err != nil || imagesIn(t, dir) != 0 {
		t.Errorf("%v, %d images", err, imagesIn(t, dir))
	}
}

// The next start completes or reverts a creation that a crash interrupted.
func TestInterruptedCreationOfVolume(t *testing.T) {
	h, dir := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	known, unknown := h.mustCreateVolume(t, ctx, "known"), h.mustCreateVolume(t, ctx, "unknown")
	kept := h.mustCreateVolume(t, ctx, "kept") // without a record, but complete
	for _, v := range []*brig.Volume{known, unknown} {
		path := filepath.Join(dir, v.ID+".ext4")
		if err := os.Rename(path, path+".new"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.store.DeleteVolume(ctx, "acme", unknown.ID), h.store.DeleteVolume(ctx, "acme", kept.ID)); err != nil {
		t.Fatal(err)
	}
	if err := h.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	if n := imagesIn(t, dir); n != 2 {
		t.Errorf("%d images", n)
	}
	if _, err := h.VolumeFiles("known").List(ctx, "/", 1); err != nil {
		t.Error(err)
	}
}
