package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// webhookCalls are the calls for lifecycle events and webhooks.
type webhookCalls struct{ *conn }

// Lifecycle implements brig.Service.
func (c webhookCalls) Lifecycle(ctx context.Context, q brig.LifecycleQuery) ([]brig.LifecycleEvent, error) {
	query := url.Values{}
	if q.Sandbox != "" {
		query.Set("sandbox", q.Sandbox)
	}
	if len(q.Types) > 0 {
		var types []string
		for _, t := range q.Types {
			types = append(types, string(t))
		}
		query.Set("types", strings.Join(types, ","))
	}
	for k, v := range q.Labels {
		query.Add("label", k+"="+v)
	}
	if q.OldestFirst {
		query.Set("oldest_first", "true")
	}
	for name, n := range map[string]int{"offset": q.Offset, "limit": q.Limit} {
		if n != 0 {
			query.Set(name, strconv.Itoa(n))
		}
	}
	var out v1.LifecycleEvents
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/events", query: query}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// sendWebhook sends a request whose response is a webhook.
func (c webhookCalls) sendWebhook(ctx context.Context, method, path string, in any) (*brig.Webhook, error) {
	var out v1.Webhook
	if err := c.call(ctx, request{method: method, path: "/v1/webhooks" + path}, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// CreateWebhook implements brig.Service.
func (c webhookCalls) CreateWebhook(ctx context.Context, w brig.Webhook) (*brig.Webhook, error) {
	return c.sendWebhook(ctx, http.MethodPost, "", v1.FromWebhookRequest(w))
}

// Webhooks implements brig.Service.
func (c webhookCalls) Webhooks(ctx context.Context) ([]*brig.Webhook, error) {
	var out v1.Webhooks
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/webhooks"}, nil, &out); err != nil {
		return nil, err
	}
	list := []*brig.Webhook{}
	for _, w := range out.Webhooks {
		list = append(list, w.Domain())
	}
	return list, nil
}

// GetWebhook implements brig.Service.
func (c webhookCalls) GetWebhook(ctx context.Context, id string) (*brig.Webhook, error) {
	return c.sendWebhook(ctx, http.MethodGet, "/"+escapeSegment(id), nil)
}

// UpdateWebhook implements brig.Service.
func (c webhookCalls) UpdateWebhook(ctx context.Context, id string, change brig.WebhookChange) (*brig.Webhook, error) {
	return c.sendWebhook(ctx, http.MethodPut, "/"+escapeSegment(id), v1.FromWebhookChange(change))
}

// RemoveWebhook implements brig.Service.
func (c webhookCalls) RemoveWebhook(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/webhooks/" + escapeSegment(id)}, nil, nil)
}

// Deliveries implements brig.Service.
func (c webhookCalls) Deliveries(ctx context.Context, id string) ([]*brig.Delivery, error) {
	var out v1.Deliveries
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/webhooks/" + escapeSegment(id) + "/deliveries"}, nil, &out); err != nil {
		return nil, err
	}
	return out.Domain(id), nil
}

// ReplayWebhook implements brig.Service.
func (c webhookCalls) ReplayWebhook(ctx context.Context, id string, since time.Time) (*brig.Webhook, error) {
	return c.sendWebhook(ctx, http.MethodPost, "/"+escapeSegment(id)+"/replay", v1.ReplayRequest{Since: since.UTC().Format(time.RFC3339Nano)})
}
