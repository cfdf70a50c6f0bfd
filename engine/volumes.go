package engine

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// maxVolumes is the maximum number of volumes of a tenant, including removed ones that sandboxes
// still use.
const maxVolumes = 100

// volumes manages directories that several sandboxes mount at the same time.
type volumes struct {
	*gate
	// changes is held while a volume is created, because the quotas and the space of the disk are
	// shared, and while data is deleted.
	changes ctxMutex

	mu sync.Mutex // guards the field below
	// holds counts, by ID, the calls that are about to record a sandbox with the volume.
	holds map[string]int
	// held counts all calls of hold, and lastHold has its value at the last one for a volume.
	held     int
	lastHold map[string]int
}

// checkVolumesKept returns an error if this engine keeps no volumes.
func (vs *volumes) checkVolumesKept() error {
	if vs.Options.Volumes == nil {
		return brig.Errorf(brig.FailedPrecondition, "this process keeps no volumes").WithHint("ask a server: brig serve")
	}
	return vs.Options.Volumes.Check()
}

// doWithVolume authorizes a call that names a volume and calls f.
func (vs *volumes) doWithVolume(ctx context.Context, op brig.Op, ref string, f func(v *call) error) error {
	return vs.doWithDetails(ctx, op, "", withDetail(brig.DetailVolume, truncate(ref)), func(v *call) error {
		if err := vs.checkVolumesKept(); err != nil {
			return err
		}
		return f(v)
	})
}

// CreateVolume implements brig.Service.
func (vs *volumes) CreateVolume(ctx context.Context, name string, size int64) (out *brig.Volume, err error) {
	err = vs.doWithVolume(ctx, brig.OpCreateVolume, name, func(v *call) error {
		if !brig.ValidVolumeName(name) {
			return brig.InvalidField("name", "%q is not a name", truncate(name)).
				WithHint("use 1 to %d of a-z, A-Z, 0-9, _ and -", brig.MaxVolumeName)
		}
		if isVolumeID(name) {
			// A token for a removed volume's ID must not open a volume that has the ID as its name.
			return brig.InvalidField("name", "%q has the form of a volume's ID", name).WithHint("use another name")
		}
		if size == 0 {
			size = vs.Options.VolumeSize
		}
		if size < brig.MinVolumeSize || size > brig.MaxVolumeSize {
			return brig.InvalidField("size", "%s is out of bounds", brig.FormatBytes(size)).
				WithHint("give %s to %s, or leave it out for %s", brig.FormatBytes(brig.MinVolumeSize), brig.FormatBytes(brig.MaxVolumeSize), brig.FormatBytes(vs.Options.VolumeSize))
		}
		unlock, err := vs.changes.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		out = &brig.Volume{ID: newVolumeID(), Tenant: v.actor.Tenant, Name: name, Size: size, Created: vs.Now().UTC()}
		if err := vs.create(ctx, v, out); err != nil {
			return err
		}
		vs.measure(ctx, out)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// newVolumeID returns an unguessable ID.
func newVolumeID() string { return "vol" + strings.ToLower(rand.Text()) }

// isVolumeID reports whether a text has the form of a volume's ID.
func isVolumeID(s string) bool { return strings.HasPrefix(s, "vol") && len(s) == len(newVolumeID()) }

// create creates a volume. Its image gets its name after the record is written, so that a crash leaves
// no volume without an image (see volume.Store.Recover).
func (vs *volumes) create(ctx context.Context, v *call, x *brig.Volume) error {
	all, err := vs.Store.Volumes(ctx, "")
	if err != nil {
		return err
	}
	number, bytes, limit := 0, int64(0), v.account.Quota().MaxVolumeBytes()
	for _, other := range all {
		if other.Tenant == x.Tenant {
			if other.Name == x.Name && other.Removed.IsZero() {
				return contract.VolumeNameTaken(x.Name)
			}
			number++
			bytes += other.Size
		}
	}
	if number >= maxVolumes {
		return brig.Errorf(brig.RateLimited, "the tenant has %d volumes, the maximum", maxVolumes).
			WithHint("remove one; a removed volume counts until the sandboxes that mounted it have ended")
	}
	if bytes+x.Size > limit {
		return brig.QuotaExceededError("volumes", brig.FormatBytes(limit), 0)
	}
	store := vs.Options.Volumes
	if err := store.CheckRoom(all, x.Size); err != nil {
		return err
	}
	if err := store.Prepare(ctx, x.ID, x.Size); err != nil {
		return err
	}
	done, err := v.account.lockRecords(ctx) // a tenant that is being removed gets no record
	if err != nil {
		_ = store.Remove(x.ID) // the next start removes it otherwise
		return err
	}
	defer done()
	if err := vs.Store.AddVolume(ctx, x); err != nil {
		return err // the record may exist: the next start removes the image or completes the volume
	}
	return store.Commit(x.ID)
}

// Volumes implements brig.Service.
func (vs *volumes) Volumes(ctx context.Context) (out []*brig.Volume, err error) {
	err = vs.doWithVolume(ctx, brig.OpVolumes, "", func(v *call) error {
		out, err = vs.Store.Volumes(ctx, v.actor.Tenant)
		out = slices.DeleteFunc(out, func(x *brig.Volume) bool { return !x.Removed.IsZero() })
		for _, x := range out {
			vs.measure(ctx, x)
		}
		return err
	})
	return out, err
}

// GetVolume implements brig.Service.
func (vs *volumes) GetVolume(ctx context.Context, ref string) (out *brig.Volume, err error) {
	err = vs.doWithVolume(ctx, brig.OpGetVolume, ref, func(v *call) error {
		if out, err = vs.Store.GetVolume(ctx, v.actor.Tenant, ref); err == nil {
			vs.measure(ctx, out)
		}
		return err
	})
	return out, err
}

// measure sets Used.
func (vs *volumes) measure(ctx context.Context, x *brig.Volume) {
	var err error
	if x.Used, err = vs.Options.Volumes.Used(x.ID); err != nil {
		vs.Log.WarnContext(ctx, "failed to measure a volume", "volume", x.ID, "err", err)
	}
}

// RemoveVolume implements brig.Service.
func (vs *volumes) RemoveVolume(ctx context.Context, ref string) error {
	return vs.doWithVolume(ctx, brig.OpRemoveVolume, ref, func(v *call) error {
		x, err := vs.Store.GetVolume(ctx, v.actor.Tenant, ref)
		if err != nil {
			return err
		}
		if err := vs.Store.MarkVolumeRemoved(ctx, x.Tenant, x.ID, vs.Now()); err != nil {
			return err
		}
		if err := vs.deleteUnused(context.WithoutCancel(ctx)); err != nil {
			vs.Log.WarnContext(ctx, "failed to delete a removed volume; retrying", "volume", x.ID, "err", err)
		}
		return nil
	})
}

// deleteUnused deletes the removed volumes that no sandbox uses. It reads the volumes before the
// sandboxes: no sandbox can begin to use a removed volume, except as a copy of one that uses it.
func (vs *volumes) deleteUnused(ctx context.Context) error {
	if vs.Options.Volumes == nil {
		return nil
	}
	unlock, err := vs.changes.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	begin := vs.countHolds()
	all, err := vs.Store.Volumes(ctx, "")
	all = slices.DeleteFunc(all, func(x *brig.Volume) bool { return x.Removed.IsZero() || vs.isHeld(x.ID) })
	if err != nil || len(all) == 0 {
		return err
	}
	used := map[string]bool{}
	if err := vs.Store.All(ctx, func(r *brig.Record) error {
		for _, m := range r.Spec.Volumes {
			if r.State != brig.Ended {
				used[m.ID] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, x := range all {
		// The scan is no snapshot: a copy that was recorded meanwhile may be missing in it.
		if used[x.ID] || vs.wasHeld(x.ID, begin) {
			continue
		}
		if err := vs.delete(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes the data of a volume, and then its record.
func (vs *volumes) delete(ctx context.Context, x *brig.Volume) error {
	if err := vs.Options.Volumes.Remove(x.ID); err != nil {
		return err
	}
	vs.mu.Lock()
	delete(vs.lastHold, x.ID)
	vs.mu.Unlock()
	return vs.Store.DeleteVolume(ctx, x.Tenant, x.ID)
}

// dropVolumes deletes all volumes of a tenant that is being removed.
func (vs *volumes) dropVolumes(ctx context.Context, tenant string) error {
	all, err := vs.Store.Volumes(ctx, tenant)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := vs.checkVolumesKept(); err != nil {
		return err
	}
	for _, x := range all {
		if err := vs.delete(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// recoverVolumes completes or reverts the creations that a crash interrupted.
func (vs *volumes) recoverVolumes(ctx context.Context) error {
	if vs.Options.Volumes == nil || vs.Options.Volumes.Check() != nil {
		return nil //nolint:nilerr // a machine that cannot have volumes has none to recover
	}
	all, err := vs.Store.Volumes(ctx, "")
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, x := range all {
		known[x.ID] = true
	}
	return vs.Options.Volumes.Recover(known)
}

// admitMounts checks the mounts of a new sandbox and sets the IDs of the volumes. Until done is called,
// the volumes are not deleted.
func (vs *volumes) admitMounts(ctx context.Context, v *call, spec *brig.Spec) (done func(), err error) {
	none := func() {}
	if len(spec.Volumes) == 0 {
		return none, nil
	}
	if err := brig.CheckVolumeMounts(spec.Volumes); err != nil {
		return none, err
	}
	if err := vs.checkVolumesKept(); err != nil {
		return none, volumesError("volumes", err)
	}
	mounts := slices.Clone(spec.Volumes)
	for i := range mounts {
		m := &mounts[i]
		if err := v.authorizeMount(*m); err != nil {
			return none, err
		}
		field := "volumes[" + strconv.Itoa(i) + "]"
		if spec.Workspace.Name != "" && brig.PathsOverlap(m.Path, workspaceDir) {
			return none, brig.InvalidField(field+".path", "%s has the files of the workspace %q", workspaceDir, spec.Workspace.Name).WithHint("mount the volume elsewhere")
		}
		x, err := vs.Store.GetVolume(ctx, v.actor.Tenant, m.Name)
		if err != nil {
			return none, volumesError(field+".name", err)
		}
		m.Name, m.ID = x.Name, x.ID
	}
	spec.Volumes = mounts
	done = vs.hold(mounts)
	// A removal may have come between.
	for i, m := range mounts {
		if _, err := vs.Store.GetVolume(ctx, v.actor.Tenant, m.ID); err != nil {
			done()
			return none, volumesError("volumes["+strconv.Itoa(i)+"].name", err)
		}
	}
	return done, nil
}

// volumesError names the field of an error about the volumes of a request. A volume that does not exist
// makes the request invalid.
func volumesError(field string, err error) error {
	known := *brig.AsError(err)
	if known.Kind == brig.NotFound {
		known.Kind = brig.InvalidArgument
	}
	known.Field = field
	return &known
}

// authorizeMount checks that the caller may use a volume through a sandbox: a right to create sandboxes does
// not include the rights to read and write volumes.
func (v *call) authorizeMount(m brig.VolumeMount) error {
	if err := v.actor.Authorize(brig.OpReadVolume); err != nil || m.ReadOnly {
		return err
	}
	return v.actor.Authorize(brig.OpWriteVolume)
}

// hold keeps volumes from being deleted until done is called.
func (vs *volumes) hold(mounts []brig.VolumeMount) (done func()) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.held++
	for _, m := range mounts {
		vs.holds[m.ID]++
		vs.lastHold[m.ID] = vs.held
	}
	return sync.OnceFunc(func() {
		vs.mu.Lock()
		defer vs.mu.Unlock()
		for _, m := range mounts {
			if vs.holds[m.ID]--; vs.holds[m.ID] == 0 {
				delete(vs.holds, m.ID)
			}
		}
	})
}

func (vs *volumes) isHeld(id string) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.holds[id] > 0
}

// countHolds returns the number of calls of hold until now.
func (vs *volumes) countHolds() int {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.held
}

// wasHeld reports whether a volume is held, or was since the given number of calls of hold.
func (vs *volumes) wasHeld(id string, since int) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.holds[id] > 0 || vs.lastHold[id] > since
}
