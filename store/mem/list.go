package mem

import (
	"context"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// List implements brig.Store.
func (s *executions) List(ctx context.Context, tenant string, o brig.ListOptions) ([]*brig.Record, string, error) {
	limit, err := contract.Limit(o)
	if err != nil {
		return nil, "", err
	}
	after, err := contract.ParseCursor(o.Cursor)
	if err != nil {
		return nil, "", err
	}
	if err := s.lock(ctx); err != nil {
		return nil, "", err
	}
	defer s.mu.Unlock()
	var page []*brig.Record
	for _, r := range s.records {
		if r.Tenant == tenant && matchesFilter(o, r) && (after == nil || compareNewest(after.Created, r.Created, after.ID, r.ID) < 0) {
			page = append(page, r)
		}
	}
	slices.SortFunc(page, compare)
	size := 0
	for i, r := range page {
		if i == limit || size >= contract.ListedBytes {
			last := page[i-1]
			return page[:i], contract.Position{Created: last.Created, ID: last.ID}.EncodeCursor(), nil
		}
		size += contract.RecordSize(r)
		page[i] = contract.CloneRecord(r)
	}
	return page, "", nil
}

// compare orders records newest first.
func compare(a, b *brig.Record) int { return compareNewest(a.Created, b.Created, a.ID, b.ID) }

func matchesFilter(o brig.ListOptions, r *brig.Record) bool {
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
