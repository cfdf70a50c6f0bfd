package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for volumes.
const (
	insertVolume          = `insert into volumes (tenant, id, name, created_ns, removed_ns, doc, data) values ($1, $2, $3, $4, $5, $6, $7)`
	selectVolumeIDTaken   = `select exists (select 1 from volumes where tenant = $1 and id = $2)`
	selectVolumeNameTaken = `select exists (select 1 from volumes where tenant = $1 and name = $2 and removed_ns = 0)`
	selectVolumeByID      = `select doc, data from volumes where tenant = $1 and id = $2 and removed_ns = 0`
	markVolumeRemoved     = `update volumes set removed_ns = $3, doc = $4, data = $5 where tenant = $1 and id = $2`
	deleteVolume          = `delete from volumes where tenant = $1 and id = $2`
	deleteTenantVolumes   = `delete from volumes where tenant = $1`
)

// AddVolume implements brig.Store.
func (s *volumes) AddVolume(ctx context.Context, v *brig.Volume) error {
	doc, data, err := encode(v)
	if err != nil {
		return wrap(err, "encode volume %s", v.ID)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		taken := false
		if err := t.row(selectVolumeIDTaken, v.Tenant, v.ID).Scan(&taken); err != nil {
			return err
		}
		if taken {
			return contract.VolumeIDTaken(v.ID)
		}
		if v.Removed.IsZero() {
			if err := t.row(selectVolumeNameTaken, v.Tenant, v.Name).Scan(&taken); err != nil {
				return err
			}
		}
		if taken {
			return contract.VolumeNameTaken(v.Name)
		}
		_, err := t.exec(insertVolume, v.Tenant, v.ID, v.Name, toNanos(v.Created), removedNanos(v), doc, data)
		return err
	})
	return wrap(err, "add volume %s", v.ID)
}

// removedNanos returns the time of the removal, or 0.
func removedNanos(v *brig.Volume) int64 {
	if v.Removed.IsZero() {
		return 0
	}
	return toNanos(v.Removed)
}

// GetVolume implements brig.Store. An ID identifies its volume permanently, so it takes precedence over
// an equal name.
func (s *volumes) GetVolume(ctx context.Context, tenant, ref string) (*brig.Volume, error) {
	v, err := scan[brig.Volume](s.readers.QueryRowContext(ctx, `
		select doc, data from volumes where tenant = $1 and removed_ns = 0 and (id = $2 or name = $2)
		order by id = $2 desc limit 1`, tenant, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoVolume(ref)
	}
	return v, wrap(err, "get volume %s", ref)
}

// Volumes implements brig.Store.
func (s *volumes) Volumes(ctx context.Context, tenant string) ([]*brig.Volume, error) {
	out, err := query(ctx, s.readers, scan[brig.Volume], `
		select doc, data from volumes where tenant = $1 or $1 = '' order by created_ns, id, tenant`, tenant)
	return out, wrap(err, "list volumes")
}

// MarkVolumeRemoved implements brig.Store.
func (s *volumes) MarkVolumeRemoved(ctx context.Context, tenant, id string, at time.Time) error {
	err := s.write(ctx, nil, func(t *tx) error {
		v, err := scan[brig.Volume](t.row(selectVolumeByID, tenant, id))
		if errors.Is(err, sql.ErrNoRows) {
			return contract.NoVolume(id)
		}
		if err != nil {
			return err
		}
		v.Removed = at.UTC()
		doc, data, err := encode(v)
		if err != nil {
			return err
		}
		_, err = t.exec(markVolumeRemoved, tenant, id, removedNanos(v), doc, data)
		return err
	})
	return wrap(err, "remove volume %s", id)
}

// DeleteVolume implements brig.Store.
func (s *volumes) DeleteVolume(ctx context.Context, tenant, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		_, err := t.exec(deleteVolume, tenant, id)
		return err
	})
	return wrap(err, "delete volume %s", id)
}
