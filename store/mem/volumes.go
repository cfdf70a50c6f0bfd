package mem

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// AddVolume implements brig.Store.
func (s *volumes) AddVolume(ctx context.Context, v *brig.Volume) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key := name{v.Tenant, v.ID}
	if _, ok := s.volumeRecords[key]; ok {
		return contract.VolumeIDTaken(v.ID)
	}
	if v.Removed.IsZero() && s.volumeNamed(v.Tenant, v.Name) != nil {
		return contract.VolumeNameTaken(v.Name)
	}
	s.volumeRecords[key] = cloneVolume(v)
	return nil
}

// volumeNamed returns the stored volume with a name that is not removed, or nil. The caller must hold
// s.mu.
func (s *volumes) volumeNamed(tenant, name string) *brig.Volume {
	for _, v := range s.volumeRecords {
		if v.Tenant == tenant && v.Name == name && v.Removed.IsZero() {
			return v
		}
	}
	return nil
}

// GetVolume implements brig.Store.
func (s *volumes) GetVolume(ctx context.Context, tenant, ref string) (*brig.Volume, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	// An ID identifies its volume permanently, so it takes precedence over an equal name.
	if v, ok := s.volumeRecords[name{tenant, ref}]; ok && v.Removed.IsZero() {
		return cloneVolume(v), nil
	}
	if v := s.volumeNamed(tenant, ref); v != nil {
		return cloneVolume(v), nil
	}
	return nil, contract.NoVolume(ref)
}

// Volumes implements brig.Store.
func (s *volumes) Volumes(ctx context.Context, tenant string) ([]*brig.Volume, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Volume
	for _, v := range s.volumeRecords {
		if tenant == "" || v.Tenant == tenant {
			out = append(out, cloneVolume(v))
		}
	}
	slices.SortFunc(out, func(a, b *brig.Volume) int {
		return cmp.Or(compareOldest(a.Created, b.Created, a.ID, b.ID), cmp.Compare(a.Tenant, b.Tenant))
	})
	return out, nil
}

// MarkVolumeRemoved implements brig.Store.
func (s *volumes) MarkVolumeRemoved(ctx context.Context, tenant, id string, at time.Time) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	v, ok := s.volumeRecords[name{tenant, id}]
	if !ok || !v.Removed.IsZero() {
		return contract.NoVolume(id)
	}
	v.Removed = at.UTC()
	return nil
}

// DeleteVolume implements brig.Store.
func (s *volumes) DeleteVolume(ctx context.Context, tenant, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.volumeRecords, name{tenant, id})
	return nil
}

func cloneVolume(v *brig.Volume) *brig.Volume {
	c := *v
	c.Created, c.Removed, c.Used = v.Created.UTC(), v.Removed.UTC(), 0
	return &c
}
