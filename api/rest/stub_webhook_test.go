package rest_test

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

func (s *stub) Lifecycle(_ context.Context, q brig.LifecycleQuery) ([]brig.LifecycleEvent, error) {
	s.record(q)
	return []brig.LifecycleEvent{{ID: "e1", Type: brig.LifecycleEnded, At: epoch, Sandbox: "sb1", Name: "one", Labels: map[string]string{}, Reason: "killed"}}, nil
}

func (s *stub) webhook() *brig.Webhook {
	return &brig.Webhook{ID: "w1", Name: "hook", URL: "https://hooks.example/brig", Enabled: true, Created: epoch, Updated: epoch}
}

func (s *stub) CreateWebhook(_ context.Context, w brig.Webhook) (*brig.Webhook, error) {
	s.record(w)
	return s.webhook(), nil
}

func (s *stub) Webhooks(context.Context) ([]*brig.Webhook, error) {
	return []*brig.Webhook{s.webhook()}, nil
}

func (s *stub) GetWebhook(_ context.Context, id string) (*brig.Webhook, error) {
	if s.record(id); id == "none" {
		return nil, brig.Errorf(brig.NotFound, "no webhook")
	}
	return s.webhook(), nil
}

func (s *stub) UpdateWebhook(_ context.Context, id string, c brig.WebhookChange) (*brig.Webhook, error) {
	s.record(c)
	return s.webhook(), nil
}

func (s *stub) RemoveWebhook(_ context.Context, id string) error {
	s.record(id)
	return nil
}

func (s *stub) Deliveries(_ context.Context, id string) ([]*brig.Delivery, error) {
	s.record(id)
	return []*brig.Delivery{{ID: "d1", Webhook: id, Event: "e1", Type: brig.LifecycleEnded, Sandbox: "sb1", At: epoch, Attempts: 2, Status: 200, Delivered: true}}, nil
}

func (s *stub) ReplayWebhook(_ context.Context, id string, since time.Time) (*brig.Webhook, error) {
	s.record(since)
	return s.webhook(), nil
}
