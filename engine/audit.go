package engine

import (
	"context"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

// Audit implements brig.Service.
func (g *gate) Audit(ctx context.Context, q brig.AuditQuery) (*brig.AuditPage, error) {
	return do(ctx, g, brig.OpAudit, "", func(v *call) (*brig.AuditPage, error) {
		if q.Limit == 0 {
			q.Limit = 100
		}
		if q.Limit < 1 || q.Limit > 1000 {
			return nil, brig.InvalidField("limit", "%d is out of bounds", q.Limit).WithHint("give 1 to 1000")
		}
		if q.After < 0 {
			return nil, brig.InvalidField("after", "%d is negative", q.After).WithHint("give the number of a line, or leave it out")
		}
		// Read the head first, so that the page ends with it even if lines are
		// appended between the two reads.
		p := &brig.AuditPage{Head: brig.AuditHead{Tenant: v.actor.Tenant, At: g.Now()}}
		heads, err := g.Store.AuditHeads(ctx)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if h.Tenant == v.actor.Tenant {
				p.Head = h
			}
		}
		audit.Sign(&p.Head, g.AuditKey)
		lines, err := g.Store.Audit(ctx, v.actor.Tenant, q)
		if err != nil {
			return nil, err
		}
		if len(lines) == q.Limit {
			p.Next = lines[len(lines)-1].Seq
		}
		p.Lines = slices.DeleteFunc(lines, func(l brig.AuditLine) bool { return l.Seq > p.Head.Seq })
		if len(p.Lines) < len(lines) {
			p.Next = 0
		}
		since, err := g.auditSince(ctx, v.actor)
		if err != nil {
			return nil, err
		}
		p.Lines = slices.DeleteFunc(p.Lines, func(l brig.AuditLine) bool { return l.At.Before(since) })
		return p, nil
	})
}

// auditSince returns the time from which an actor may read the audit log. A tenant that was removed
// and created again continues the chain of its predecessor, which may have belonged to another
// customer. Only an operator may read the predecessor's lines.
func (g *gate) auditSince(ctx context.Context, a brig.Actor) (time.Time, error) {
	if a.Role >= brig.Operator {
		return time.Time{}, nil
	}
	t, err := g.Store.GetTenant(ctx, a.Tenant)
	if brig.KindOf(err) == brig.NotFound {
		return time.Time{}, nil // a tenant without a record was never removed
	}
	if err != nil {
		return time.Time{}, err
	}
	return t.Created, nil
}

// pruneAudit deletes audit lines that are older than AuditRetention. It deletes them at most once
// per AuditRetention/30, because each deletion writes a line. Lines beyond the limit of a tenant
// (AuditLines) are deleted on every call.
func (g *gate) pruneAudit(ctx context.Context, now time.Time) error {
	before := time.Unix(0, 0)
	due := g.AuditRetention > 0 && now.Sub(g.prunedAt) >= g.AuditRetention/30
	if due {
		g.prunedAt = now
		before = now.Add(-g.AuditRetention)
	}
	if !due && g.AuditLines <= 0 {
		return nil
	}
	return g.Store.PruneAudit(ctx, before, g.AuditLines)
}
