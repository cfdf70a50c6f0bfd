package mem

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// large is the minimum size at which an execution's output counts toward
// Keep.Outputs.
const large = 4 << 10

// Trim implements brig.Store.
func (s *executions) Trim(ctx context.Context, tenant string, sandbox brig.ID, keep brig.Keep) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for id, r := range s.records {
		if r.Tenant == tenant && (id == sandbox || sandbox == "") {
			s.trimExecs(r, keep)
		}
	}
	s.trimRuns(tenant, keep.Runs)
	s.trimBytes(tenant, keep.Bytes)
	return nil
}

// Tidy implements brig.Store. It does nothing, because a store in memory has no disk space to
// release.
func (s *executions) Tidy(ctx context.Context) error { return ctx.Err() }

// hasEnded reports whether an execution can no longer change.
func hasEnded(r *brig.Record, x *brig.Execution) bool { return x.Done || r.State == brig.Ended }

func (s *executions) trimExecs(r *brig.Record, keep brig.Keep) {
	list := slices.Collect(maps.Values(s.execs[r.ID]))
	slices.SortFunc(list, func(a, b *brig.Execution) int { return compareNewest(a.Started, b.Started, a.ExecID, b.ExecID) })
	outputs := 0
	for i, x := range list {
		if outputSize(x) > large {
			outputs++
		}
		switch {
		case !hasEnded(r, x):
		case i >= keep.Executions:
			delete(s.execs[r.ID], x.ExecID)
		case outputs > keep.Outputs && outputSize(x) > large:
			x.Stdout.Head, x.Stdout.Tail, x.Stderr.Head, x.Stderr.Tail = nil, nil, nil, nil
		}
	}
}

func outputSize(x *brig.Execution) int {
	return len(x.Stdout.Head) + len(x.Stdout.Tail) + len(x.Stderr.Head) + len(x.Stderr.Tail)
}

func (s *executions) trimRuns(tenant string, maxRuns int) {
	var names []name
	for n := range s.runs {
		if n.tenant == tenant {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b name) int { return compareNewest(s.runs[a].put, s.runs[b].put, a.name, b.name) })
	for i, n := range names {
		if i >= maxRuns {
			delete(s.runs, n)
		}
	}
}

// trimItem is an execution or an outcome that trimming may delete.
type trimItem struct {
	at   time.Time
	size int64
	drop func()
}

func (s *executions) trimBytes(tenant string, maxBytes int64) {
	var parts []trimItem
	var sum int64
	for id, xs := range s.execs {
		r := s.records[id]
		if r == nil || r.Tenant != tenant {
			continue
		}
		for _, x := range xs {
			size := sizeOf(x)
			sum += size
			if hasEnded(r, x) {
				parts = append(parts, trimItem{x.Started, size, func() { delete(xs, x.ExecID) }})
			}
		}
	}
	for n, r := range s.runs {
		if n.tenant == tenant {
			size := sizeOf(r.outcome)
			sum += size
			parts = append(parts, trimItem{r.put, size, func() { delete(s.runs, n) }})
		}
	}
	slices.SortFunc(parts, func(a, b trimItem) int { return a.at.Compare(b.at) })
	for _, p := range parts {
		if sum <= maxBytes {
			return
		}
		p.drop()
		sum -= p.size
	}
}

// sizeOf returns the approximate size of a value.
func sizeOf(v any) int64 {
	b, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return int64(len(b))
}
