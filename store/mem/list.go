package mem

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// Page sizes of List.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// List implements brig.Store.
func (s *Store) List(ctx context.Context, tenant string, o brig.ListOptions) ([]*brig.Record, string, error) {
	limit := o.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if limit < 1 || limit > maxLimit {
		return nil, "", errLimit(limit)
	}
	after, err := parseCursor(o.Cursor)
	if err != nil {
		return nil, "", err
	}
	if err := s.enter(ctx); err != nil {
		return nil, "", err
	}
	defer s.mu.Unlock()
	var page []*brig.Record
	for _, r := range s.records {
		if r.Tenant == tenant && selects(o, r) && (after == nil || compare(after, r) < 0) {
			page = append(page, r)
		}
	}
	slices.SortFunc(page, compare)
	next := ""
	if len(page) > limit {
		page = page[:limit]
		next = formatCursor(page[limit-1])
	}
	for i, r := range page {
		page[i] = cloneRecord(r)
	}
	return page, next, nil
}

// compare orders records newest first.
func compare(a, b *brig.Record) int { return newest(a.Created, b.Created, a.ID, b.ID) }

func selects(o brig.ListOptions, r *brig.Record) bool {
	if len(o.States) > 0 && !slices.Contains(o.States, r.State) {
		return false
	}
	for k, want := range o.Labels {
		if got, ok := r.Spec.Labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// A cursor is the place of a page's last record in the order of List, not the
// record itself, which may be gone by the next call: time, id and a
// checksum that tells our cursors from what a caller made up.

func formatCursor(r *brig.Record) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Created.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Created.Nanosecond()))
	b = append(b, r.ID...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor returns a record that stands at c's place, nil for no cursor.
func parseCursor(c string) (*brig.Record, error) {
	if c == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(c)
	if err != nil || len(b) < 16 {
		return nil, errCursor()
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, errCursor()
	}
	r := &brig.Record{}
	r.Created = time.Unix(int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint32(body[8:]))).UTC()
	r.ID = brig.ID(body[12:])
	return r, nil
}
