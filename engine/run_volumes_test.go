package engine_test

import (
	"context"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A program with volumes gets a new instance, because a pooled one cannot mount anything.
func TestRunWithVolumesIsNotPooled(t *testing.T) {
	h, _ := newVolumeFixture(t, func(o *engine.Options) { o.Pool = newPoolOptions(1).Pool })
	ctx := withRole(t, brig.Operator)
	h.mustCreateVolume(t, ctx, "data")
	if err := h.Recover(ctx); err != nil { // it fills the pool
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(h.provider.Machines()) == 1 })
	p := newPythonProgram("ann")
	p.Volumes = mounts("data")
	for range 2 {
		mustRun(t, h, p, "")
	}
	mustRun(t, h, newPythonProgram("bob"), brig.PoolHit)
}

// A run can mount what a sandbox can mount.
func TestMountsOfRunsAreChecked(t *testing.T) {
	h, _ := newVolumeFixture(t, nil)
	h.mustCreateVolume(t, withRole(t, brig.Member), "data")
	run := func(ctx context.Context, list []brig.VolumeMount) error {
		_, err := h.Run(ctx, brig.Program{Command: []string{"echo"}, Volumes: list}, brig.IO{})
		return err
	}
	ctx := withRole(t, brig.Member)
	checkField(t, "an unknown volume", run(ctx, mounts("none")), brig.InvalidArgument, "volumes[0].name")
	checkField(t, "a reserved path", run(ctx, []brig.VolumeMount{{Name: "data", Path: "/proc/a"}}), brig.InvalidArgument, "volumes[0].path")
	readOnly := []brig.VolumeMount{{Name: "data", Path: "/data", ReadOnly: true}}
	reader := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Scopes: []string{"run", "volume.file.read"}})
	if err := run(reader, mounts("data")); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("a run that may write, without the right: %v", err)
	}
	if err := run(reader, readOnly); err != nil {
		t.Errorf("a run that may only read: %v", err)
	}
	h.provider.Volumes = false
	checkField(t, "a provider without volumes", run(ctx, readOnly), brig.Unimplemented, "volumes")
}

// A removed volume keeps its data until the program and its instance have ended.
func TestRemovedVolumeOutlivesItsRun(t *testing.T) {
	h, dir := newVolumeFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.mustCreateVolume(t, ctx, "data")
	h.provider.OnCreate = func(brig.ID) {
		if err := h.RemoveVolume(ctx, "data"); err != nil {
			t.Error(err)
		}
		if n := imagesIn(t, dir); n != 1 {
			t.Errorf("%d images while the program runs", n)
		}
	}
	if _, err := h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}, Volumes: mounts("data")}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return h.DeleteUnusedVolumes(ctx) == nil && imagesIn(t, dir) == 0 })
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("the volume is deleted while there are the instances %v", machines)
	}
}
