package builder

import (
	"context"
	"slices"
	"time"

	"github.com/brig-run/brig"
)

// A build does not need its sandboxes any more when it fails, when its last tag is removed, and when its template is
// removed. They are recorded as discarded in the transaction of that change, and removed after it, without the
// tenant's lock. A sandbox that cannot be removed remains recorded, and is tried again.

// removeInterval is the time between two attempts to remove a sandbox.
const removeInterval = 10 * time.Minute

// discard moves the sandboxes of a build to the discarded ones.
func discard(x *brig.TemplateBuild) {
	for _, id := range []brig.ID{x.Files, x.Sandbox} {
		if id != "" && !slices.Contains(x.Discarded, id) {
			x.Discarded = append(x.Discarded, id)
		}
	}
	x.Files, x.Sandbox = "", ""
}

func hasSandboxes(x *brig.TemplateBuild) bool {
	return x.Files != "" || x.Sandbox != "" || len(x.Discarded) > 0
}

// discardIf discards the sandboxes of the builds of a template that which selects. The caller writes the builds,
// and then calls notifyDiscarded.
func (b *Builder) discardIf(ctx context.Context, t *brig.BuiltTemplate, which func(*brig.TemplateBuild) bool) (changed []*brig.TemplateBuild, err error) {
	all, err := b.Builds(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if x.Files == "" && x.Sandbox == "" || !which(x) {
			continue
		}
		full, err := b.options.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
		if err != nil {
			return nil, err
		}
		discard(full)
		changed = append(changed, full)
	}
	return changed, nil
}

// notifyDiscarded starts the removal of discarded sandboxes in the background.
func (b *Builder) notifyDiscarded() {
	select {
	case b.discarded <- struct{}{}:
	default: // it starts already
	}
}

// removeDiscarded removes discarded sandboxes until the Builder is closed. It begins with those of an earlier
// process, and with the templates whose removal that process has not finished.
func (b *Builder) removeDiscarded() {
	b.finishRemovals(b.ctx)
	retry := time.NewTicker(removeInterval)
	defer retry.Stop()
	for {
		b.removeAll(b.ctx)
		select {
		case <-b.discarded:
		case <-retry.C:
		case <-b.ctx.Done():
			return
		}
	}
}

// removeAll removes the discarded sandboxes of all tenants.
func (b *Builder) removeAll(ctx context.Context) {
	list, err := b.options.Store.Builds(ctx, brig.BuildFilter{Discarded: true})
	if err != nil && ctx.Err() == nil {
		b.options.Log.ErrorContext(ctx, "failed to list discarded builds of templates; retrying", "err", err)
	}
	for _, x := range list {
		if ctx.Err() != nil {
			return // the next server continues
		}
		b.removeOf(ctx, x)
		b.deleteRemoved(ctx, x.Tenant, x.Template)
	}
}

// removeOf removes the discarded sandboxes of a build. The caller does not hold the tenant's lock, because
// a removal can take a minute.
func (b *Builder) removeOf(ctx context.Context, x *brig.TemplateBuild) {
	left := b.removeSandboxes(ctx, x)
	if len(left) == len(x.Discarded) {
		return
	}
	err := b.underLock(ctx, x.Tenant, func(ctx context.Context) error {
		full, err := b.options.Store.GetBuild(ctx, x.Tenant, x.Template, x.ID)
		if err != nil {
			return err
		}
		full.Discarded = slices.DeleteFunc(full.Discarded, func(id brig.ID) bool {
			return slices.Contains(x.Discarded, id) && !slices.Contains(left, id)
		})
		return b.options.Store.PutBuild(ctx, full)
	})
	if err != nil && brig.KindOf(err) != brig.NotFound { // the next attempt finds no sandbox
		b.options.Log.WarnContext(ctx, "failed to record the removal of sandboxes; retrying", "build", x.ID, "err", err)
	}
}

// underLock calls f with the lock of a tenant, and a context that does not end.
func (b *Builder) underLock(ctx context.Context, tenant string, f func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	unlock, err := b.changes.Lock(ctx, tenant)
	if err != nil {
		return err
	}
	defer unlock()
	return f(ctx)
}

// removeSandboxes removes the discarded sandboxes of a build, and returns those that it could not remove. A
// sandbox that its tenant has removed is no error.
func (b *Builder) removeSandboxes(ctx context.Context, x *brig.TemplateBuild) (left []brig.ID) {
	for _, id := range x.Discarded {
		if err := b.removeSandbox(ctx, x.Tenant, id); err != nil {
			if ctx.Err() != nil {
				return x.Discarded // the next server continues
			}
			b.options.Log.WarnContext(ctx, "failed to remove a sandbox of a template; retrying", "build", x.ID, "sandbox", id, "err", err)
			left = append(left, id)
		}
	}
	return left
}

func (b *Builder) removeSandbox(ctx context.Context, tenant string, id brig.ID) error {
	ctx, cancel := context.WithTimeout(b.internal(ctx, tenant), removeTimeout)
	defer cancel()
	if err := b.options.Service.Remove(ctx, string(id)); brig.KindOf(err) != brig.NotFound {
		return err
	}
	return nil
}

// markRemoved records that a template was removed, and discards the sandboxes of its builds. It returns all
// builds. The record of the template remains until its sandboxes are removed. Its name is free: no other
// template can have the one of the record.
func (b *Builder) markRemoved(ctx context.Context, ref string) (t *brig.BuiltTemplate, all []*brig.TemplateBuild, err error) {
	err = b.underLock(ctx, brig.ActorFrom(ctx).Tenant, func(ctx context.Context) error {
		if t, err = b.Template(ctx, ref); err != nil {
			return err
		}
		changed, err := b.discardIf(ctx, t, func(x *brig.TemplateBuild) bool { return x.Status != brig.BuildRunning })
		if err != nil {
			return err
		}
		t.Name, t.Tags, t.Removed = "removed/"+t.ID, nil, b.options.Now().UTC()
		if err := b.options.Store.PutTemplate(ctx, t, changed...); err != nil {
			return err
		}
		all, err = b.Builds(ctx, t)
		return err
	})
	return t, all, err
}

// deleteRemoved deletes a template that was removed, unless a build still runs or has sandboxes.
func (b *Builder) deleteRemoved(ctx context.Context, tenant, template string) {
	err := b.underLock(ctx, tenant, func(ctx context.Context) error {
		t, err := b.options.Store.GetTemplate(ctx, tenant, template)
		if err != nil || t.Removed.IsZero() {
			return err
		}
		all, err := b.Builds(ctx, t)
		if err != nil || slices.ContainsFunc(all, func(x *brig.TemplateBuild) bool { return x.Status == brig.BuildRunning || hasSandboxes(x) }) {
			return err
		}
		return b.options.Store.DeleteTemplate(ctx, tenant, template)
	})
	if err != nil && brig.KindOf(err) != brig.NotFound {
		b.options.Log.WarnContext(ctx, "failed to delete a removed template", "template", template, "err", err)
	}
}

// finishRemovals deletes the templates that an earlier process has removed.
func (b *Builder) finishRemovals(ctx context.Context) {
	all, err := b.options.Store.BuiltTemplates(ctx, "")
	if err != nil && ctx.Err() == nil {
		b.options.Log.ErrorContext(ctx, "failed to list removed templates", "err", err)
	}
	for _, t := range all {
		if !t.Removed.IsZero() {
			b.deleteRemoved(ctx, t.Tenant, t.ID)
		}
	}
}
