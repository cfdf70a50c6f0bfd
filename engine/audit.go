package engine

import (
	"context"
	"slices"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

// Audit implements brig.Service.
func (e *Engine) Audit(ctx context.Context, q brig.AuditQuery) (_ *brig.AuditPage, err error) {
	v, err := e.enter(ctx, brig.OpAudit, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > 1000 {
		return nil, brig.InvalidField("limit", "%d is out of bounds", q.Limit).WithHint("give 1 to 1000")
	}
	if q.After < 0 {
		return nil, brig.InvalidField("after", "%d is negative", q.After).WithHint("give the number of a line, or leave it out")
	}
	// The head first: a page ends with it, whatever is written meanwhile.
	p := &brig.AuditPage{Head: brig.AuditHead{Tenant: v.actor.Tenant, At: e.Now()}}
	heads, err := e.Store.AuditHeads(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		if h.Tenant == v.actor.Tenant {
			p.Head = h
		}
	}
	audit.Sign(&p.Head, e.AuditKey)
	lines, err := e.Store.Audit(ctx, v.actor.Tenant, q)
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
	return p, nil
}

// pruneAudit forgets what is older than it must be, now and then: each time
// leaves a line.
func (e *Engine) pruneAudit(ctx context.Context, now time.Time) error {
	if e.KeepAudit <= 0 || now.Sub(e.prunedAt) < e.KeepAudit/30 {
		return nil
	}
	e.prunedAt = now
	return e.Store.PruneAudit(ctx, now.Add(-e.KeepAudit))
}
