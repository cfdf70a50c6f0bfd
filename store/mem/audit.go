package mem

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/store/contract"
)

// chain is the audit log of a tenant.
type chain struct {
	lines []brig.AuditLine
	end   brig.AuditLine
}

// appendEvents appends events. The caller must hold the lock.
func (s *db) appendEvents(events []brig.Event) {
	for _, e := range events {
		c := s.chains[e.Tenant]
		if c == nil {
			c = &chain{}
			s.chains[e.Tenant] = c
		}
		c.end = audit.NewLine(c.end, e)
		c.lines = append(c.lines, c.end)
		s.events = append(s.events, c.end.Event)
	}
}

// Events implements brig.Store.
func (s *tenancy) Events(ctx context.Context, n int) ([]brig.Event, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []brig.Event
	for i := len(s.events) - 1; i >= 0 && len(out) < n; i-- {
		e := s.events[i]
		e.Detail = maps.Clone(e.Detail)
		out = append(out, e)
	}
	return out, nil
}

// Audit implements brig.Store.
func (s *tenancy) Audit(ctx context.Context, tenant string, q brig.AuditQuery) ([]brig.AuditLine, error) {
	limit, err := contract.AuditLimit(q)
	if err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []brig.AuditLine
	if c := s.chains[tenant]; c != nil {
		lines := slices.All(c.lines)
		if q.NewestFirst {
			lines, q.After = slices.Backward(c.lines), 0
		}
		for _, l := range lines {
			if l.Seq > q.After && matches(q, l) && len(out) < limit {
				l.Detail = maps.Clone(l.Detail)
				out = append(out, l)
			}
		}
	}
	return out, nil
}

func matches(q brig.AuditQuery, l brig.AuditLine) bool {
	for k, want := range q.Labels {
		if got, ok := l.Detail[brig.DetailLabel+k]; !ok || got != want {
			return false
		}
	}
	return (len(q.Ops) == 0 || slices.Contains(q.Ops, l.Op)) && (q.Before == 0 || l.Seq < q.Before) && (q.Since.IsZero() || !l.At.Before(q.Since)) && (q.Until.IsZero() || l.At.Before(q.Until)) &&
		(q.Sandbox == "" || l.Sandbox != "" && (string(l.Sandbox) == q.Sandbox || l.Detail[brig.DetailName] == q.Sandbox))
}

// AuditHeads implements brig.Store.
func (s *tenancy) AuditHeads(ctx context.Context) ([]brig.AuditHead, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []brig.AuditHead
	for _, tenant := range slices.Sorted(maps.Keys(s.chains)) {
		end := s.chains[tenant].end
		out = append(out, brig.AuditHead{Tenant: tenant, Seq: end.Seq, Hash: end.Hash, At: end.At})
	}
	return out, nil
}

// PruneAudit implements brig.Store.
func (s *tenancy) PruneAudit(ctx context.Context, t time.Time, maxLines int64) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for tenant, c := range s.chains {
		n := slices.IndexFunc(c.lines, func(l brig.AuditLine) bool { return !l.At.Before(t) })
		if n < 0 {
			n = len(c.lines)
		}
		n = max(n, int(contract.PruneLimit(int64(len(c.lines)), 0, maxLines)))
		if n == 0 {
			continue
		}
		last := c.lines[n-1]
		c.lines = slices.Clone(c.lines[n:])
		s.appendEvents([]brig.Event{contract.Pruned(tenant, s.Now(), last.Seq, last.Hash[:])})
	}
	return nil
}
