package engine

import (
	"context"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/brig-run/brig"
)

// Bounds of webhooks.
const (
	maxWebhooks      = 20 // of a tenant
	maxWebhookName   = 200
	maxWebhookURL    = 2048
	maxWebhookSecret = 1024
	minWebhookSecret = 16
	// maxReplay is the age of the oldest event that is delivered again.
	maxReplay = 7 * 24 * time.Hour
	// auditPage is the number of lines that a search for lifecycle events reads at once.
	auditPage = 1000
)

// hooks lists lifecycle events and manages the webhooks that receive them. Package webhook delivers
// the events.
type hooks struct{ *gate }

// Lifecycle implements brig.Service.
func (h *hooks) Lifecycle(ctx context.Context, q brig.LifecycleQuery) ([]brig.LifecycleEvent, error) {
	return do(ctx, h.gate, brig.OpLifecycle, "", func(v *call) ([]brig.LifecycleEvent, error) {
		if q.Limit == 0 {
			q.Limit = 10
		}
		if q.Limit < 1 || q.Limit > 100 {
			return nil, brig.InvalidField("limit", "%d is out of bounds", q.Limit).WithHint("give 1 to 100")
		}
		if q.Offset < 0 || q.Offset > brig.MaxLifecycleOffset {
			return nil, brig.InvalidField("offset", "%d is out of bounds", q.Offset).WithHint("give 0 to %d", brig.MaxLifecycleOffset)
		}
		if err := checkTypes("types", q.Types); err != nil {
			return nil, err
		}
		since, err := h.auditSince(ctx, v.actor)
		if err != nil {
			return nil, err
		}
		return h.findEvents(ctx, v.actor.Tenant, q, brig.AuditQuery{
			Ops: brig.LifecycleOps(q.Types...), Sandbox: q.Sandbox, Labels: q.Labels, Since: since, NewestFirst: !q.OldestFirst, Limit: auditPage,
		})
	})
}

// findEvents reads lines until it has found the events of a query.
func (h *hooks) findEvents(ctx context.Context, tenant string, q brig.LifecycleQuery, lines brig.AuditQuery) ([]brig.LifecycleEvent, error) {
	out, skipped := []brig.LifecycleEvent{}, 0
	for {
		page, err := h.Store.Audit(ctx, tenant, lines)
		if err != nil {
			return nil, err
		}
		for _, l := range page {
			e, ok := brig.LifecycleOf(l)
			if !ok || !q.Includes(e) {
				continue
			}
			if skipped < q.Offset {
				skipped++
				continue
			}
			if out = append(out, e); len(out) == q.Limit {
				return out, nil
			}
		}
		if len(page) < lines.Limit {
			return out, nil
		}
		if last := page[len(page)-1].Seq; lines.NewestFirst {
			lines.Before = last
		} else {
			lines.After = last
		}
	}
}

func checkTypes(field string, types []brig.LifecycleType) error {
	for _, t := range types {
		if !slices.Contains(brig.LifecycleTypes, t) {
			return brig.InvalidField(field, "no type %q", truncate(string(t))).WithHint("use some of: %v", brig.LifecycleTypes)
		}
	}
	return nil
}

// checkWebhook checks the fields that a caller sets.
func (h *hooks) checkWebhook(w *brig.Webhook) error {
	if w.Name == "" || len(w.Name) > maxWebhookName || !utf8.ValidString(w.Name) {
		return brig.InvalidField("name", "%q is not a name", truncate(w.Name)).WithHint("give 1 to %d bytes", maxWebhookName)
	}
	u, err := url.Parse(w.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" || len(w.URL) > maxWebhookURL {
		return brig.InvalidField("url", "%q is not the URL of a web server", truncate(w.URL)).WithHint("for example https://hooks.example/brig; without a user, at most %d bytes", maxWebhookURL)
	}
	if u.Scheme == "http" && !h.PrivateWebhooks {
		return brig.InvalidField("url", "a webhook needs https").WithHint("ask the operator to set webhooks.private if the receiver is in the operator's own network")
	}
	if err := checkLabels(w.Labels); err != nil {
		return err
	}
	return checkTypes("events", w.Types)
}

// seal encrypts the secret of a webhook.
func (h *hooks) seal(w *brig.Webhook, secret string) error {
	if len(secret) < minWebhookSecret || len(secret) > maxWebhookSecret {
		return brig.InvalidField("secret", "a secret of %d bytes", len(secret)).WithHint("give %d to %d bytes", minWebhookSecret, maxWebhookSecret)
	}
	if h.Options.Keys == nil {
		return brig.Errorf(brig.FailedPrecondition, "this process stores no secrets").WithHint("ask a server: brig serve")
	}
	w.SealedSecret.Key, w.SealedSecret.Sealed = h.Options.Keys.Seal([]byte(secret), WebhookSecretLocation(w)...)
	return nil
}

// WebhookSecretLocation returns the location of a webhook's secret, to which its encryption is bound.
func WebhookSecretLocation(w *brig.Webhook) []string { return []string{"webhooks", w.Tenant, w.ID} }

// head returns the Seq of the tenant's newest line.
func (h *hooks) head(ctx context.Context, tenant string) (int64, error) {
	heads, err := h.Store.AuditHeads(ctx)
	if err != nil {
		return 0, err
	}
	for _, one := range heads {
		if one.Tenant == tenant {
			return one.Seq, nil
		}
	}
	return 0, nil
}

// CreateWebhook implements brig.Service.
func (h *hooks) CreateWebhook(ctx context.Context, w brig.Webhook) (*brig.Webhook, error) {
	return doWithDetails(ctx, h.gate, brig.OpCreateWebhook, "", withDetail(brig.DetailName, truncate(w.Name)), func(v *call) (*brig.Webhook, error) {
		now := h.Now().UTC()
		out := &brig.Webhook{
			ID: uuid.NewString(), Tenant: v.actor.Tenant, Name: w.Name, URL: w.URL, Enabled: w.Enabled, Types: slices.Clone(w.Types), Labels: w.Labels,
			Created: now, Updated: now,
		}
		if err := h.checkWebhook(out); err != nil {
			return nil, err
		}
		if err := h.seal(out, w.Secret); err != nil {
			return nil, err
		}
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		all, err := h.Store.Webhooks(ctx, v.actor.Tenant)
		if err != nil {
			return nil, err
		}
		if len(all) >= maxWebhooks {
			return nil, brig.Errorf(brig.RateLimited, "the tenant has %d webhooks, the maximum", maxWebhooks).WithHint("remove one")
		}
		if out.Seq, err = h.head(ctx, v.actor.Tenant); err != nil {
			return nil, err
		}
		return out, h.Store.PutWebhook(ctx, out)
	})
}

// Webhooks implements brig.Service.
func (h *hooks) Webhooks(ctx context.Context) ([]*brig.Webhook, error) {
	return do(ctx, h.gate, brig.OpWebhooks, "", func(v *call) ([]*brig.Webhook, error) {
		return h.Store.Webhooks(ctx, v.actor.Tenant)
	})
}

// withWebhook authorizes a call that names a webhook, and calls f with the webhook.
func (h *hooks) withWebhook(ctx context.Context, op brig.Op, id string, f func(v *call, w *brig.Webhook) error) error {
	return h.doWithDetails(ctx, op, "", withDetail(brig.DetailName, truncate(id)), func(v *call) error {
		w, err := h.Store.GetWebhook(ctx, v.actor.Tenant, id)
		if err != nil {
			return err
		}
		return f(v, w)
	})
}

// GetWebhook implements brig.Service.
func (h *hooks) GetWebhook(ctx context.Context, id string) (out *brig.Webhook, err error) {
	err = h.withWebhook(ctx, brig.OpGetWebhook, id, func(_ *call, w *brig.Webhook) error {
		out = w
		return nil
	})
	return out, err
}

// changeWebhook changes a webhook, again if the delivery of an event has changed it meanwhile.
func (h *hooks) changeWebhook(ctx context.Context, op brig.Op, id string, change func(w *brig.Webhook) error) (out *brig.Webhook, err error) {
	err = h.withWebhook(ctx, op, id, func(v *call, _ *brig.Webhook) error {
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return err
		}
		defer done()
		for {
			w, err := h.Store.GetWebhook(ctx, v.actor.Tenant, id)
			if err != nil {
				return err
			}
			if err := change(w); err != nil {
				return err
			}
			w.Updated = h.Now().UTC()
			if err = h.Store.PutWebhook(ctx, w); brig.KindOf(err) != brig.FailedPrecondition || ctx.Err() != nil {
				out = w
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UpdateWebhook implements brig.Service. A webhook that is enabled again receives only later events.
func (h *hooks) UpdateWebhook(ctx context.Context, id string, c brig.WebhookChange) (*brig.Webhook, error) {
	return h.changeWebhook(ctx, brig.OpUpdateWebhook, id, func(w *brig.Webhook) (err error) {
		if c.Name != nil {
			w.Name = *c.Name
		}
		if c.URL != nil {
			w.URL, w.FailingSince = *c.URL, time.Time{}
		}
		if c.Types != nil {
			w.Types = slices.Clone(c.Types)
		}
		if c.Enabled != nil {
			if *c.Enabled && !w.Enabled {
				if w.Seq, err = h.head(ctx, w.Tenant); err != nil {
					return err
				}
				w.FailingSince = time.Time{}
			}
			w.Enabled = *c.Enabled
		}
		if c.Secret != nil {
			if err := h.seal(w, *c.Secret); err != nil {
				return err
			}
			w.FailingSince = time.Time{}
		}
		return h.checkWebhook(w)
	})
}

// RemoveWebhook implements brig.Service.
func (h *hooks) RemoveWebhook(ctx context.Context, id string) error {
	return h.withWebhook(ctx, brig.OpRemoveWebhook, id, func(v *call, w *brig.Webhook) error {
		return h.Store.DeleteWebhook(ctx, w.Tenant, w.ID)
	})
}

// Deliveries implements brig.Service.
func (h *hooks) Deliveries(ctx context.Context, id string) (out []*brig.Delivery, err error) {
	err = h.withWebhook(ctx, brig.OpDeliveries, id, func(_ *call, w *brig.Webhook) error {
		out, err = h.Store.Deliveries(ctx, w.Tenant, w.ID)
		return err
	})
	return out, err
}

// ReplayWebhook implements brig.Service.
func (h *hooks) ReplayWebhook(ctx context.Context, id string, since time.Time) (*brig.Webhook, error) {
	return h.changeWebhook(ctx, brig.OpReplayWebhook, id, func(w *brig.Webhook) error {
		if !w.Enabled {
			return brig.Errorf(brig.FailedPrecondition, "the webhook is disabled").WithHint("enable it first")
		}
		// Events of the time before the webhook existed are not the webhook's.
		if since.Before(w.Created) {
			since = w.Created
		}
		if oldest := h.Now().Add(-maxReplay); since.Before(oldest) {
			since = oldest
		}
		lines, err := h.Store.Audit(ctx, w.Tenant, brig.AuditQuery{Since: since, Limit: 1})
		if err != nil || len(lines) == 0 {
			return err
		}
		w.Seq, w.FailingSince = min(w.Seq, lines[0].Seq-1), time.Time{}
		return nil
	})
}

// resealWebhooks encrypts the secrets of all webhooks with the newest key.
func (h *hooks) resealWebhooks(ctx context.Context) error {
	all, err := h.Store.Webhooks(ctx, "")
	if err != nil {
		return err
	}
	for _, w := range all {
		for w.SealedSecret.Key != h.Options.Keys.Primary() {
			secret, err := h.Options.Keys.Open(w.SealedSecret.Key, w.SealedSecret.Sealed, WebhookSecretLocation(w)...)
			if err != nil {
				return err
			}
			w.SealedSecret.Key, w.SealedSecret.Sealed = h.Options.Keys.Seal(secret, WebhookSecretLocation(w)...)
			err = h.Store.PutWebhook(ctx, w)
			if brig.KindOf(err) == brig.FailedPrecondition { // a delivery changed it
				w, err = h.Store.GetWebhook(ctx, w.Tenant, w.ID)
			}
			if brig.KindOf(err) == brig.NotFound { // it was removed since it was listed
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
