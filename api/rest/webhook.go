package rest

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// webhookAPI has the handlers for lifecycle events and webhooks.
type webhookAPI struct{ *base }

// routes returns the routes of lifecycle events and webhooks.
func (a webhookAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	types := []string{}
	for _, t := range brig.LifecycleTypes {
		types = append(types, string(t))
	}
	return []route{
		{id: "list-events", method: get, pattern: "/v1/events", tag: "webhooks", summary: "List lifecycle events, newest first",
			large: true, handle: a.events, out: v1.LifecycleEvents{}, query: []parameter{
				{name: "sandbox", doc: "only events of the sandbox with this ID or name", example: "one"},
				{name: "types", doc: "only these types, separated by commas", enum: types, example: "created,ended"},
				{name: "label", doc: "KEY=VALUE; only events of sandboxes with this label", repeated: true, example: "team=red"},
				{name: "oldest_first", doc: "true to reverse the order", boolean: true},
				{name: "offset", doc: "events to leave out; default 0", number: true, max: brig.MaxLifecycleOffset, example: 0},
				{name: "limit", doc: "number of events; default 10", number: true, min: 1, max: 100, example: 10},
			}},
		{id: "create-webhook", method: post, pattern: "/v1/webhooks", tag: "webhooks", summary: "Create a webhook",
			handle: a.create, op: brig.OpCreateWebhook, in: v1.WebhookRequest{}, out: v1.Webhook{}, status: http.StatusCreated},
		{id: "list-webhooks", method: get, pattern: "/v1/webhooks", tag: "webhooks", summary: "List webhooks, the oldest first",
			handle: a.list, out: v1.Webhooks{}},
		{id: "get-webhook", method: get, pattern: "/v1/webhooks/{id}", tag: "webhooks", summary: "Get a webhook",
			handle: a.get, out: v1.Webhook{}},
		{id: "update-webhook", method: put, pattern: "/v1/webhooks/{id}", tag: "webhooks", summary: "Change a webhook",
			handle: a.update, op: brig.OpUpdateWebhook, in: v1.WebhookChange{}, out: v1.Webhook{}},
		{id: "remove-webhook", method: del, pattern: "/v1/webhooks/{id}", tag: "webhooks", summary: "Remove a webhook",
			handle: a.remove, status: http.StatusNoContent},
		{id: "list-deliveries", method: get, pattern: "/v1/webhooks/{id}/deliveries", tag: "webhooks", summary: "List the newest deliveries of a webhook",
			handle: a.deliveries, out: v1.Deliveries{}},
		{id: "replay-webhook", method: post, pattern: "/v1/webhooks/{id}/replay", tag: "webhooks", summary: "Deliver events again",
			notes:  "The events and deliveries have the same IDs as before.",
			handle: a.replay, op: brig.OpReplayWebhook, in: v1.ReplayRequest{}, out: v1.Webhook{}},
	}
}

func (a webhookAPI) events(w http.ResponseWriter, r *http.Request, q url.Values) error {
	query := brig.LifecycleQuery{Sandbox: q.Get("sandbox")}
	var err error
	if query.OldestFirst, err = boolean(q, "oldest_first"); err != nil {
		return err
	}
	for field, to := range map[string]*int{"offset": &query.Offset, "limit": &query.Limit} {
		if *to, err = intParameter(q, field); err != nil {
			return err
		}
	}
	if text := q.Get("types"); text != "" {
		for t := range strings.SplitSeq(text, ",") {
			query.Types = append(query.Types, brig.LifecycleType(t))
		}
	}
	for _, l := range q["label"] {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return brig.InvalidField("label", "%q is not KEY=VALUE", brig.Clip(l, 80))
		}
		if query.Labels == nil {
			query.Labels = map[string]string{}
		}
		query.Labels[k] = v
	}
	list, err := a.Service.Lifecycle(r.Context(), query)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromLifecycleEvents(list))
}

func writeWebhook(w http.ResponseWriter, status int, h *brig.Webhook, err error) error {
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, status, v1.FromWebhook(h))
}

func (a webhookAPI) create(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.WebhookRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	h, err := a.Service.CreateWebhook(r.Context(), in.Domain())
	return writeWebhook(w, http.StatusCreated, h, err)
}

func (a webhookAPI) list(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Webhooks(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromWebhooks(list))
}

func (a webhookAPI) get(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	h, err := a.Service.GetWebhook(r.Context(), param(r, "id"))
	return writeWebhook(w, http.StatusOK, h, err)
}

func (a webhookAPI) update(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.WebhookChange
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	h, err := a.Service.UpdateWebhook(r.Context(), param(r, "id"), in.Domain())
	return writeWebhook(w, http.StatusOK, h, err)
}

func (a webhookAPI) remove(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveWebhook(r.Context(), param(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a webhookAPI) deliveries(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Deliveries(r.Context(), param(r, "id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromDeliveries(list))
}

func (a webhookAPI) replay(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ReplayRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	since, err := time.Parse(time.RFC3339Nano, in.Since)
	if err != nil {
		return brig.InvalidField("since", "%q is no time", brig.Clip(in.Since, 80)).WithHint("for example 2026-11-29T00:00:00Z")
	}
	h, err := a.Service.ReplayWebhook(r.Context(), param(r, "id"), since)
	return writeWebhook(w, http.StatusOK, h, err)
}
