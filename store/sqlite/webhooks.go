package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// These are the statements for webhooks.
const (
	putWebhook = `
		insert into webhooks (tenant, id, created_ns, rev, doc, data) values ($1, $2, $3, $4, $5, $6)
		on conflict (tenant, id) do update set
			created_ns = excluded.created_ns, rev = excluded.rev, doc = excluded.doc, data = excluded.data`
	selectWebhookRev     = `select rev from webhooks where tenant = $1 and id = $2`
	deleteWebhook        = `delete from webhooks where tenant = $1 and id = $2`
	deleteTenantWebhooks = `delete from webhooks where tenant = $1`
	putDelivery          = `
		insert into deliveries (tenant, webhook, id, at_ns, seq, doc, data) values ($1, $2, $3, $4, $5, $6, $7)
		on conflict (tenant, webhook, id) do update set at_ns = excluded.at_ns, seq = excluded.seq, doc = excluded.doc, data = excluded.data`
	trimDeliveries = `
		delete from deliveries where tenant = $1 and webhook = $2 and id in (
			select id from deliveries where tenant = $1 and webhook = $2 order by at_ns desc, seq desc, id desc limit -1 offset $3)`
)

// PutWebhook implements brig.Store.
func (s *webhooks) PutWebhook(ctx context.Context, w *brig.Webhook) error {
	kept := *w
	kept.Rev++
	doc, data, err := encode(&kept)
	if err != nil {
		return wrap(err, "encode webhook %s", w.ID)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		rev, err := t.rev(selectWebhookRev, w.Tenant, w.ID)
		if err != nil {
			return err
		}
		if w.Rev != rev {
			return contract.WebhookConflict(w)
		}
		_, err = t.exec(putWebhook, w.Tenant, w.ID, toNanos(w.Created), kept.Rev, doc, data)
		return err
	})
	if err != nil {
		return wrap(err, "put webhook %s", w.ID)
	}
	w.Rev = kept.Rev
	return nil
}

// GetWebhook implements brig.Store.
func (s *webhooks) GetWebhook(ctx context.Context, tenant, id string) (*brig.Webhook, error) {
	w, err := scan[brig.Webhook](s.readers.QueryRowContext(ctx, `select doc, data from webhooks where tenant = $1 and id = $2`, tenant, id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, contract.NoWebhook(id)
	}
	return w, wrap(err, "get webhook %s", id)
}

// Webhooks implements brig.Store.
func (s *webhooks) Webhooks(ctx context.Context, tenant string) ([]*brig.Webhook, error) {
	out, err := query(ctx, s.readers, scan[brig.Webhook], `
		select doc, data from webhooks where tenant = $1 or $1 = '' order by created_ns, id, tenant`, tenant)
	return out, wrap(err, "list webhooks")
}

// DeleteWebhook implements brig.Store. A foreign key deletes the deliveries.
func (s *webhooks) DeleteWebhook(ctx context.Context, tenant, id string) error {
	err := s.write(ctx, nil, func(t *tx) error {
		n, err := t.exec(deleteWebhook, tenant, id)
		if err == nil && n == 0 {
			return contract.NoWebhook(id)
		}
		return err
	})
	return wrap(err, "delete webhook %s", id)
}

// PutDelivery implements brig.Store.
func (s *webhooks) PutDelivery(ctx context.Context, d *brig.Delivery) error {
	doc, data, err := encode(d)
	if err != nil {
		return wrap(err, "encode delivery %s", d.ID)
	}
	err = s.write(ctx, nil, func(t *tx) error {
		rev, err := t.rev(selectWebhookRev, d.Tenant, d.Webhook)
		if err != nil {
			return err
		}
		if rev == 0 {
			return contract.NoWebhook(d.Webhook)
		}
		if _, err := t.exec(putDelivery, d.Tenant, d.Webhook, d.ID, toNanos(d.At), d.Seq, doc, data); err != nil {
			return err
		}
		_, err = t.exec(trimDeliveries, d.Tenant, d.Webhook, brig.KeptDeliveries)
		return err
	})
	return wrap(err, "put delivery %s", d.ID)
}

// Deliveries implements brig.Store.
func (s *webhooks) Deliveries(ctx context.Context, tenant, webhook string) ([]*brig.Delivery, error) {
	out, err := query(ctx, s.readers, scan[brig.Delivery], `
		select doc, data from deliveries where tenant = $1 and webhook = $2 order by at_ns desc, seq desc, id desc`, tenant, webhook)
	return out, wrap(err, "list deliveries")
}
