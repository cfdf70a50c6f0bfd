package storetest

import (
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func newVolume(tenant, id, name string) *brig.Volume {
	return &brig.Volume{ID: id, Tenant: tenant, Name: name, Size: brig.GiB, Created: birth}
}

// volumeRefs lists the volumes of a tenant as "tenant/ID", followed by "-" if they are removed.
func volumeRefs(t *testing.T, s brig.Store, tenant string) (out []string) {
	t.Helper()
	list, err := s.Volumes(t.Context(), tenant)
	mustSucceed(t, err)
	for _, v := range list {
		ref := v.Tenant + "/" + v.ID
		if !v.Removed.IsZero() {
			ref += "-"
		}
		out = append(out, ref)
	}
	return out
}

// testVolumes verifies the names of volumes, and that a removed one is only listed.
func testVolumes(t *testing.T, s brig.Store) {
	ctx := t.Context()
	mustSucceed(t, s.AddVolume(ctx, newVolume("t", "v1", "data")))
	kind(t, s.AddVolume(ctx, newVolume("t", "v1", "other")), brig.AlreadyExists)
	taken := s.AddVolume(ctx, newVolume("t", "v2", "data"))
	kind(t, taken, brig.AlreadyExists)
	checkEqual(t, "the field of a taken name", brig.AsError(taken).Field, "name")
	mustSucceed(t, s.AddVolume(ctx, newVolume("u", "v1", "data"))) // another tenant
	later := newVolume("t", "v0", "v1")                            // its name is the ID of another
	later.Created = birth.Add(1)
	mustSucceed(t, s.AddVolume(ctx, later))
	for ref, want := range map[string]string{"data": "v1", "v1": "v1", "v0": "v0"} {
		v, err := s.GetVolume(ctx, "t", ref)
		mustSucceed(t, err)
		checkEqual(t, "the volume "+ref, v.ID, want)
	}
	for _, ref := range []string{"none", ""} {
		_, err := s.GetVolume(ctx, "t", ref)
		kind(t, err, brig.NotFound)
	}
	_, err := s.GetVolume(ctx, "nobody", "v1")
	kind(t, err, brig.NotFound)

	kind(t, s.MarkVolumeRemoved(ctx, "t", "none", birth), brig.NotFound)
	kind(t, s.MarkVolumeRemoved(ctx, "nobody", "v1", birth), brig.NotFound)
	mustSucceed(t, s.MarkVolumeRemoved(ctx, "t", "v1", birth.Add(time.Hour)))
	kind(t, s.MarkVolumeRemoved(ctx, "t", "v1", birth), brig.NotFound)
	_, err = s.GetVolume(ctx, "t", "data")
	kind(t, err, brig.NotFound)
	v, err := s.GetVolume(ctx, "t", "v1") // now the name of the other one
	mustSucceed(t, err)
	checkEqual(t, "the volume v1 after the removal", v.ID, "v0")
	mustSucceed(t, s.AddVolume(ctx, newVolume("t", "v3", "data"))) // the name is free
	checkEqual(t, "the volumes", volumeRefs(t, s, "t"), []string{"t/v1-", "t/v3", "t/v0"})
	checkEqual(t, "all volumes", volumeRefs(t, s, ""), []string{"t/v1-", "u/v1", "t/v3", "t/v0"})
	checkEqual(t, "the volumes of nobody", volumeRefs(t, s, "nobody"), []string(nil))

	mustSucceed(t, s.DeleteVolume(ctx, "t", "v1"))
	mustSucceed(t, s.DeleteVolume(ctx, "t", "v1"))
	checkEqual(t, "the volumes after a deletion", volumeRefs(t, s, "t"), []string{"t/v3", "t/v0"})

	mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: "t"}))
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	checkEqual(t, "the volumes after the tenant was deleted", volumeRefs(t, s, ""), []string{"u/v1"})
}

// testVolumeRoundTrip verifies that a read returns exactly the written volume, and that the store
// shares no memory with the caller.
func testVolumeRoundTrip(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for name, m := range map[string]func() *brig.Volume{
		"full":  func() *brig.Volume { return filled[brig.Volume](t, false) },
		"empty": func() *brig.Volume { return filled[brig.Volume](t, true) },
		"zero":  func() *brig.Volume { return new(brig.Volume) },
	} {
		t.Run(name, func(t *testing.T) {
			volume := func() *brig.Volume {
				v := m()
				v.ID, v.Tenant, v.Name, v.Removed, v.Used = "id", name, "n", time.Time{}, 0
				return v
			}
			checkRoundTrip(t, volume, func(v *brig.Volume) error {
				mustSucceed(t, s.DeleteVolume(ctx, name, "id"))
				return s.AddVolume(ctx, v)
			}, func() (*brig.Volume, error) { return s.GetVolume(ctx, name, "n") })
		})
	}
}
