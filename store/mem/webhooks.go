package mem

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/contract"
)

// deliveryKey identifies a delivery of a webhook.
type deliveryKey struct{ tenant, webhook, id string }

// PutWebhook implements brig.Store.
func (s *webhooks) PutWebhook(ctx context.Context, w *brig.Webhook) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	key, rev := name{w.Tenant, w.ID}, int64(0)
	if old := s.hooks[key]; old != nil {
		rev = old.Rev
	}
	if w.Rev != rev {
		return contract.WebhookConflict(w)
	}
	kept := cloneWebhook(w)
	kept.Rev++
	s.hooks[key] = kept
	w.Rev = kept.Rev
	return nil
}

// GetWebhook implements brig.Store.
func (s *webhooks) GetWebhook(ctx context.Context, tenant, id string) (*brig.Webhook, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if w := s.hooks[name{tenant, id}]; w != nil {
		return cloneWebhook(w), nil
	}
	return nil, contract.NoWebhook(id)
}

// Webhooks implements brig.Store.
func (s *webhooks) Webhooks(ctx context.Context, tenant string) ([]*brig.Webhook, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Webhook
	for _, w := range s.hooks {
		if tenant == "" || w.Tenant == tenant {
			out = append(out, cloneWebhook(w))
		}
	}
	slices.SortFunc(out, func(a, b *brig.Webhook) int {
		return cmp.Or(compareOldest(a.Created, b.Created, a.ID, b.ID), cmp.Compare(a.Tenant, b.Tenant))
	})
	return out, nil
}

// DeleteWebhook implements brig.Store.
func (s *webhooks) DeleteWebhook(ctx context.Context, tenant, id string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.hooks[name{tenant, id}] == nil {
		return contract.NoWebhook(id)
	}
	delete(s.hooks, name{tenant, id})
	maps.DeleteFunc(s.deliveries, func(k deliveryKey, _ *brig.Delivery) bool { return k.tenant == tenant && k.webhook == id })
	return nil
}

// PutDelivery implements brig.Store.
func (s *webhooks) PutDelivery(ctx context.Context, d *brig.Delivery) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.hooks[name{d.Tenant, d.Webhook}] == nil {
		return contract.NoWebhook(d.Webhook)
	}
	s.deliveries[deliveryKey{d.Tenant, d.Webhook, d.ID}] = cloneDelivery(d)
	all := s.deliveriesOf(d.Tenant, d.Webhook)
	for _, old := range all[min(len(all), brig.KeptDeliveries):] {
		delete(s.deliveries, deliveryKey{d.Tenant, d.Webhook, old.ID})
	}
	return nil
}

// deliveriesOf returns the stored deliveries of a webhook, the newest first. The caller must hold s.mu.
func (s *webhooks) deliveriesOf(tenant, webhook string) (out []*brig.Delivery) {
	for k, d := range s.deliveries {
		if k.tenant == tenant && k.webhook == webhook {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *brig.Delivery) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Seq, a.Seq), cmp.Compare(b.ID, a.ID))
	})
	return out
}

// Deliveries implements brig.Store.
func (s *webhooks) Deliveries(ctx context.Context, tenant, webhook string) ([]*brig.Delivery, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []*brig.Delivery
	for _, d := range s.deliveriesOf(tenant, webhook) {
		out = append(out, cloneDelivery(d))
	}
	return out, nil
}

func cloneWebhook(w *brig.Webhook) *brig.Webhook {
	c := *w
	c.Created, c.Updated, c.FailingSince = w.Created.UTC(), w.Updated.UTC(), w.FailingSince.UTC()
	c.Types, c.Labels, c.Secret = slices.Clone(w.Types), maps.Clone(w.Labels), ""
	c.SealedSecret.Sealed = slices.Clone(w.SealedSecret.Sealed)
	return &c
}

func cloneDelivery(d *brig.Delivery) *brig.Delivery {
	c := *d
	c.At = d.At.UTC()
	return &c
}
