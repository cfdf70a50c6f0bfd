package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// LifecycleEvent is a change of the state of a sandbox.
type LifecycleEvent struct {
	ID      string            `json:"id" doc:"the same in each response and delivery"`
	Type    string            `json:"type" doc:"created, updated, paused, resumed, copied or ended"`
	At      time.Time         `json:"at"`
	Sandbox string            `json:"sandbox" doc:"ID of the sandbox"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels" nullable:"false" doc:"labels of the sandbox"`
	Reason  string            `json:"reason,omitempty" doc:"why it ended, or why it was paused or resumed without a call"`
	Origin  string            `json:"origin,omitempty" doc:"ID of the sandbox that it is a copy of"`
}

// LifecycleEvents is a page of events.
type LifecycleEvents struct {
	Events []LifecycleEvent `json:"events" nullable:"false"`
}

// WebhookRequest is the request to create a webhook.
type WebhookRequest struct {
	Name    string            `json:"name" doc:"any text" minLength:"1" maxLength:"200"`
	URL     string            `json:"url" doc:"address that receives a POST for each event; https" minLength:"1" maxLength:"2048" format:"uri" example:"https://hooks.example/brig"`
	Secret  string            `json:"secret" doc:"key of the signatures" minLength:"16" maxLength:"1024"`
	Enabled *bool             `json:"enabled,omitempty" doc:"default true"`
	Events  []string          `json:"events,omitempty" doc:"types of events; default: all" items:"^(?:created|updated|paused|resumed|copied|ended)$"`
	Labels  map[string]string `json:"labels,omitempty" doc:"only events of sandboxes that have all of these labels" maxItems:"64" keys:"^[^\\x00\\n]{1,128}$" items:"^[^\\x00\\n]*$"`
}

// WebhookChange changes a webhook. Missing fields keep their values.
type WebhookChange struct {
	Name    *string  `json:"name,omitempty" minLength:"1" maxLength:"200"`
	URL     *string  `json:"url,omitempty" minLength:"1" maxLength:"2048" format:"uri"`
	Secret  *string  `json:"secret,omitempty" minLength:"16" maxLength:"1024"`
	Enabled *bool    `json:"enabled,omitempty" doc:"a webhook that is enabled again receives only later events"`
	Events  []string `json:"events,omitzero" doc:"an empty list means all" items:"^(?:created|updated|paused|resumed|copied|ended)$"`
}

// Webhook is an address that receives lifecycle events.
type Webhook struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Enabled bool              `json:"enabled"`
	Events  []string          `json:"events" nullable:"false" doc:"types of events; empty means all"`
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	Updated time.Time         `json:"updated"`
	Failing time.Time         `json:"failing_since,omitzero" doc:"when the delivery of the next event first failed"`
}

// Webhooks is the list of a tenant's webhooks.
type Webhooks struct {
	Webhooks []Webhook `json:"webhooks" nullable:"false"`
}

// Delivery is the delivery of one event to a webhook.
type Delivery struct {
	ID        string    `json:"id" doc:"the same for each attempt; the header E2b-Delivery-Id"`
	Event     string    `json:"event" doc:"ID of the event"`
	Type      string    `json:"type"`
	Sandbox   string    `json:"sandbox"`
	At        time.Time `json:"at" doc:"time of the last attempt"`
	Attempts  int       `json:"attempts"`
	Status    int       `json:"status" doc:"HTTP status of the last response; 0 if there was none"`
	Error     string    `json:"error,omitempty"`
	MS        int64     `json:"duration_ms"`
	Delivered bool      `json:"delivered"`
}

// Deliveries is the list of a webhook's newest deliveries.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries" nullable:"false"`
}

// ReplayRequest is the request to deliver events again.
type ReplayRequest struct {
	Since string `json:"since" doc:"events from this time on, at most as old as the webhook" format:"date-time" example:"2026-11-29T00:00:00Z"`
}

// FromLifecycleEvents converts a list to its wire type.
func FromLifecycleEvents(list []brig.LifecycleEvent) LifecycleEvents {
	out := LifecycleEvents{Events: []LifecycleEvent{}}
	for _, e := range list {
		out.Events = append(out.Events, LifecycleEvent{
			ID: e.ID, Type: string(e.Type), At: e.At, Sandbox: string(e.Sandbox), Name: e.Name, Labels: e.Labels, Reason: e.Reason, Origin: string(e.Origin),
		})
	}
	return out
}

// Domain converts l to its domain type.
func (l LifecycleEvents) Domain() []brig.LifecycleEvent {
	out := []brig.LifecycleEvent{}
	for _, e := range l.Events {
		out = append(out, brig.LifecycleEvent{
			ID: e.ID, Type: brig.LifecycleType(e.Type), At: e.At, Sandbox: brig.ID(e.Sandbox), Name: e.Name, Labels: e.Labels, Reason: e.Reason, Origin: brig.ID(e.Origin),
		})
	}
	return out
}

func fromTypes(list []brig.LifecycleType) []string {
	out := []string{}
	for _, t := range list {
		out = append(out, string(t))
	}
	return out
}

// toTypes distinguishes an empty list from a missing one.
func toTypes(list []string) (out []brig.LifecycleType) {
	if list != nil {
		out = []brig.LifecycleType{}
	}
	for _, t := range list {
		out = append(out, brig.LifecycleType(t))
	}
	return out
}

// FromWebhookRequest returns the request that creates w.
func FromWebhookRequest(w brig.Webhook) WebhookRequest {
	return WebhookRequest{Name: w.Name, URL: w.URL, Secret: w.Secret, Enabled: &w.Enabled, Events: fromTypes(w.Types), Labels: w.Labels}
}

// Domain converts w to its domain type.
func (w WebhookRequest) Domain() brig.Webhook {
	return brig.Webhook{
		Name: w.Name, URL: w.URL, Secret: w.Secret, Enabled: w.Enabled == nil || *w.Enabled, Types: toTypes(w.Events), Labels: w.Labels,
	}
}

// FromWebhookChange converts c to its wire type.
func FromWebhookChange(c brig.WebhookChange) WebhookChange {
	out := WebhookChange{Name: c.Name, URL: c.URL, Secret: c.Secret, Enabled: c.Enabled}
	if c.Types != nil {
		out.Events = fromTypes(c.Types)
	}
	return out
}

// Domain converts c to its domain type.
func (c WebhookChange) Domain() brig.WebhookChange {
	return brig.WebhookChange{Name: c.Name, URL: c.URL, Secret: c.Secret, Enabled: c.Enabled, Types: toTypes(c.Events)}
}

// FromWebhook converts w to its wire type.
func FromWebhook(w *brig.Webhook) Webhook {
	return Webhook{
		ID: w.ID, Name: w.Name, URL: w.URL, Enabled: w.Enabled, Events: fromTypes(w.Types), Labels: w.Labels,
		Created: w.Created, Updated: w.Updated, Failing: w.FailingSince,
	}
}

// Domain converts w to its domain type.
func (w Webhook) Domain() *brig.Webhook {
	return &brig.Webhook{
		ID: w.ID, Name: w.Name, URL: w.URL, Enabled: w.Enabled, Types: toTypes(w.Events), Labels: w.Labels,
		Created: w.Created, Updated: w.Updated, FailingSince: w.Failing,
	}
}

// FromWebhooks converts a list to its wire type.
func FromWebhooks(list []*brig.Webhook) Webhooks {
	out := Webhooks{Webhooks: []Webhook{}}
	for _, w := range list {
		out.Webhooks = append(out.Webhooks, FromWebhook(w))
	}
	return out
}

// FromDeliveries converts a list to its wire type.
func FromDeliveries(list []*brig.Delivery) Deliveries {
	out := Deliveries{Deliveries: []Delivery{}}
	for _, d := range list {
		out.Deliveries = append(out.Deliveries, Delivery{
			ID: d.ID, Event: d.Event, Type: string(d.Type), Sandbox: string(d.Sandbox), At: d.At, Attempts: d.Attempts, Status: d.Status,
			Error: d.Error, MS: FromDuration(d.Duration), Delivered: d.Delivered,
		})
	}
	return out
}

// Domain converts l to its domain type.
func (l Deliveries) Domain(webhook string) []*brig.Delivery {
	out := []*brig.Delivery{}
	for _, d := range l.Deliveries {
		out = append(out, &brig.Delivery{
			ID: d.ID, Webhook: webhook, Event: d.Event, Type: brig.LifecycleType(d.Type), Sandbox: brig.ID(d.Sandbox), At: d.At, Attempts: d.Attempts,
			Status: d.Status, Error: d.Error, Duration: ToDuration(d.MS), Delivered: d.Delivered,
		})
	}
	return out
}
