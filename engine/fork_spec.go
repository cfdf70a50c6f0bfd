package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// specOfCopy returns the spec of the copies of a sandbox.
func specOfCopy(spec brig.Spec, o brig.ForkSpec) brig.Spec {
	spec.Name = o.Name
	if o.Labels != nil {
		spec.Labels = o.Labels
	}
	spec.TTL = cmp.Or(o.TTL, spec.TTL)
	if len(o.Env) > 0 {
		env := map[string]string{}
		maps.Copy(env, spec.Env)
		maps.Copy(env, o.Env)
		spec.Env = env
	}
	if len(o.Secrets) > 0 {
		spec.Secrets = slices.Concat(spec.Secrets, o.Secrets)
	}
	if o.Egress != nil {
		spec.Egress = *o.Egress
	}
	spec.User, spec.Dir = cmp.Or(o.User, spec.User), cmp.Or(o.Dir, spec.Dir)
	if o.AtEnd != nil {
		spec.PauseAtEnd = o.AtEnd.Pause
		spec.PauseFilesOnly = o.AtEnd.FilesOnly || !o.AtEnd.Pause && spec.PauseAfter != 0 && spec.PauseFilesOnly
	}
	if o.FixedLease != nil {
		spec.FixedLease = *o.FixedLease
	}
	if o.Volumes != nil {
		spec.Volumes = o.Volumes
	}
	spec.Limits, spec.BuildRights = o.Limits.Or(spec.Limits), o.BuildRights
	return spec
}

// checkCopy checks the properties of copies that their request may have changed, and those that may
// be out of the tenant's bounds since the original was created.
func checkCopy(bounds brig.LimitRange, spec brig.Spec, o brig.ForkSpec) (brig.Spec, error) {
	if err := checkLabels(spec.Labels); err != nil {
		return spec, err
	}
	var err error
	if spec.TTL, err = bounds.FillTTL("ttl_ms", spec.TTL); err != nil {
		return spec, err
	}
	if err := checkPauses(spec); err != nil {
		return spec, err
	}
	if spec.Limits, err = bounds.Fill(spec.Limits); err != nil {
		return spec, err
	}
	// The environment of the original has the variables of its image, which are not checked.
	if err := brig.CheckEnv("env", o.Env); err != nil {
		return spec, err
	}
	if spec.Secrets, err = checkSecretMounts(spec.Secrets, o.Env); err != nil {
		return spec, err
	}
	if err := spec.Egress.Check(); err != nil {
		return spec, err
	}
	if err := checkUser("default_user", spec.User); err != nil {
		return spec, err
	}
	return spec, checkDir("default_cwd", spec.Dir)
}

// checkMemoryCopy checks the spec of copies of a sandbox's memory.
func checkMemoryCopy(rec *brig.Record, spec brig.Spec) error {
	if limit := firstDifference(spec.Limits, rec.Spec.Limits); limit != "" {
		return brig.InvalidField("limits."+limit, "the memory of sandbox %q has the limits of the original", rec.Spec.Name).
			WithHint("leave it out, or pause the sandbox with files_only first")
	}
	if !sameMounts(spec.Volumes, rec.Spec.Volumes) {
		return brig.InvalidField("volumes", "the memory of sandbox %q has the mounts of the original", rec.Spec.Name).
			WithHint("leave it out, or pause the sandbox with files_only first")
	}
	if spec.BuildRights {
		return brig.Errorf(brig.FailedPrecondition, "only a copy that boots can have the rights of a build")
	}
	return nil
}

// sameMounts reports whether two sandboxes mount the same volumes. A request has no IDs yet.
func sameMounts(a, b []brig.VolumeMount) bool {
	return slices.EqualFunc(a, b, func(x, y brig.VolumeMount) bool {
		return x.Name == y.Name && x.Path == y.Path && x.ReadOnly == y.ReadOnly && (x.ID == "" || x.ID == y.ID)
	})
}

// admitCopyMounts checks the mounts of copies. The mounts of the original need no volume that still exists
// for the tenant, but the caller must have the rights to use them.
func (f *forks) admitCopyMounts(ctx context.Context, v *call, spec *brig.Spec, o brig.ForkSpec) (done func(), err error) {
	if o.Volumes != nil && isFilesOnly(v.rec) {
		return f.volumes.admitMounts(ctx, v, spec)
	}
	spec.Volumes = v.rec.Spec.Volumes
	for _, m := range spec.Volumes {
		if err := v.authorizeMount(m); err != nil {
			return nil, err
		}
	}
	return f.volumes.hold(spec.Volumes), nil
}

// firstDifference returns the name of the first limit that differs, or "".
func firstDifference(a, b brig.Limits) string {
	for _, l := range []struct {
		name    string
		differs bool
	}{
		{"memory", a.Memory != b.Memory}, {"cpus", a.CPUs != b.CPUs}, {"processes", a.Processes != b.Processes},
		{"open_files", a.OpenFiles != b.OpenFiles}, {"disk", a.Disk != b.Disk}, {"output", a.Output != b.Output},
	} {
		if l.differs {
			return l.name
		}
	}
	return ""
}

// checkOrigin repeats checkMemoryCopy, because a resume may have ended a pause without memory since.
func checkOrigin(v *call, o *forkOrigin, spec brig.Spec) error {
	if o.save.FilesOnly {
		return nil
	}
	return checkMemoryCopy(v.rec, spec)
}

// changesOf returns the names of the properties that o changes, for the audit log.
func changesOf(o brig.ForkSpec) (changes []string) {
	for name, changed := range map[string]bool{
		"env": len(o.Env) > 0, "egress": o.Egress != nil, "user": o.User != "" || o.Dir != "", "pauses": o.AtEnd != nil, "lease": o.FixedLease != nil,
		"secrets": len(o.Secrets) > 0, "limits": o.Limits != (brig.Limits{}), "volumes": o.Volumes != nil, "build_rights": o.BuildRights,
	} {
		if changed {
			changes = append(changes, name)
		}
	}
	slices.Sort(changes)
	return changes
}

// checkChanges checks that the caller may change what o changes: a right to fork must not include the
// rights to connect, to run commands as another user, or to create other sandboxes.
func checkChanges(v *call, o brig.ForkSpec) error {
	_, runs := o.Env[restoredEnv] // the engine runs this script
	for _, need := range []struct {
		changed bool
		op      brig.Op
	}{
		{o.Egress != nil, brig.OpSetEgress}, {runs || o.User != "" || o.Dir != "", brig.OpExec}, {len(changesOf(o)) > 0, brig.OpCreate},
	} {
		if !need.changed {
			continue
		}
		if err := v.actor.Authorize(need.op); err != nil {
			return err
		}
	}
	return nil
}

// postponeAfter is the minimum by which postponeEnd postpones an end, so that few copies write it.
func postponeAfter(maxPause time.Duration) time.Duration { return min(time.Hour, maxPause/24) }

// postponeEnd postpones the end of a paused sandbox that was copied, as its use would: the tenant
// may keep a paused sandbox for a time after its last use.
func (f *forks) postponeEnd(ctx context.Context, rec *brig.Record, maxPause time.Duration) {
	end := f.Now().UTC().Add(maxPause)
	if rec.State != brig.Paused || end.Sub(rec.Expires) < postponeAfter(maxPause) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	_, err := f.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		if r.State == brig.Paused && r.Expires.Before(end) {
			r.Expires = end
		}
		return nil
	})
	if err != nil {
		f.Log.WarnContext(ctx, "failed to postpone the end of a paused sandbox", "sandbox", rec.ID, "err", err)
	}
}
