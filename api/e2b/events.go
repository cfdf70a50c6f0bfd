package e2b

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/webhook"
)

// events serves lifecycle events and the webhooks that receive them.
type events struct{ *env }

// lifecycleEvent describes an event of a sandbox.
type lifecycleEvent struct {
	Version     string            `json:"version"`
	ID          string            `json:"id"`
	Type        string            `json:"type"`
	EventData   webhook.EventData `json:"eventData"`
	BuildID     string            `json:"sandboxBuildId"`
	ExecutionID string            `json:"sandboxExecutionId"`
	SandboxID   string            `json:"sandboxId"`
	TeamID      string            `json:"sandboxTeamId"`
	TemplateID  string            `json:"sandboxTemplateId"`
	Timestamp   time.Time         `json:"timestamp"`
}

// list lists the events of all sandboxes of this API, or of one.
func (x *events) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	query := brig.LifecycleQuery{Labels: map[string]string{labelAPI: "true"}, Limit: 10}
	for field, to := range map[string]*int{"offset": &query.Offset, "limit": &query.Limit} {
		if text := q.Get(field); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return brig.InvalidField(field, "it is not a number")
			}
			*to = n
		}
	}
	if query.Limit < 1 {
		return brig.InvalidField("limit", "%d is less than 1", query.Limit)
	}
	if text := q.Get("orderAsc"); text != "" {
		var err error
		if query.OldestFirst, err = strconv.ParseBool(text); err != nil {
			return brig.InvalidField("orderAsc", "it is neither true nor false")
		}
	}
	var err error
	if query.Types, err = parseTypes("types", q["types"]); err != nil {
		return err
	}
	if id := param(r, "id"); id != "" {
		if query.Sandbox, err = parseID(id); err != nil {
			return brig.InvalidField("sandboxID", "it is not the ID of a sandbox")
		}
	}
	list, err := x.Service.Lifecycle(r.Context(), query)
	if err != nil {
		return err
	}
	out := []lifecycleEvent{}
	for _, e := range list {
		out = append(out, lifecycleEvent{
			Version: "v1", ID: e.ID, Type: webhook.E2BType(e.Type), EventData: webhook.DataOf(e), ExecutionID: string(e.Sandbox), SandboxID: string(e.Sandbox),
			TeamID: brig.ActorFrom(r.Context()).Tenant, TemplateID: e.Labels[labelTemplate], Timestamp: e.At.UTC(),
		})
	}
	x.write(w, r, http.StatusOK, out)
	return nil
}

// parseTypes converts E2B's types of events.
func parseTypes(field string, names []string) (out []brig.LifecycleType, err error) {
	for _, name := range names {
		t, ok := webhook.ParseE2BType(name)
		if !ok {
			return nil, brig.InvalidField(field, "no type %q", brig.Clip(name, 80))
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// hook describes a webhook.
type hook struct {
	ID        string    `json:"id"`
	TeamID    string    `json:"teamId"`
	OldTeamID string    `json:"teamID"`
	Name      string    `json:"name"`
	URL       string    `json:"url"`
	Enabled   bool      `json:"enabled"`
	Events    []string  `json:"events"`
	CreatedAt time.Time `json:"createdAt"`
}

func (x *events) hook(h *brig.Webhook) hook {
	out := hook{ID: h.ID, TeamID: h.Tenant, OldTeamID: h.Tenant, Name: h.Name, URL: h.URL, Enabled: h.Enabled, Events: []string{}, CreatedAt: h.Created}
	for _, t := range h.Types {
		out.Events = append(out.Events, webhook.E2BType(t))
	}
	return out
}

// hookRequest is the body of a request that creates or changes a webhook.
type hookRequest struct {
	Name    *string  `json:"name"`
	URL     *string  `json:"url"`
	Enabled *bool    `json:"enabled"`
	Events  []string `json:"events"`
	Secret  *string  `json:"signatureSecret"`
}

func (x *events) createHook(w http.ResponseWriter, r *http.Request) error {
	var in hookRequest
	if err := read(w, r, &in); err != nil {
		return err
	}
	types, err := parseTypes("events", in.Events)
	if err != nil {
		return err
	}
	if len(types) == 0 {
		return brig.InvalidField("events", "it is required")
	}
	h := brig.Webhook{Enabled: in.Enabled == nil || *in.Enabled, Types: types, Labels: map[string]string{labelAPI: "true"}}
	for from, to := range map[*string]*string{in.Name: &h.Name, in.URL: &h.URL, in.Secret: &h.Secret} {
		if from != nil {
			*to = *from
		}
	}
	made, err := x.Service.CreateWebhook(r.Context(), h)
	if err != nil {
		return err
	}
	x.write(w, r, http.StatusCreated, x.hook(made))
	return nil
}

func (x *events) listHooks(w http.ResponseWriter, r *http.Request) error {
	list, err := x.Service.Webhooks(r.Context())
	if err != nil {
		return err
	}
	out := []hook{}
	for _, h := range list {
		out = append(out, x.hook(h))
	}
	x.write(w, r, http.StatusOK, out)
	return nil
}

func (x *events) getHook(w http.ResponseWriter, r *http.Request) error {
	h, err := x.Service.GetWebhook(r.Context(), param(r, "hook"))
	if err != nil {
		return err
	}
	x.write(w, r, http.StatusOK, x.hook(h))
	return nil
}

func (x *events) changeHook(w http.ResponseWriter, r *http.Request) error {
	var in hookRequest
	if err := read(w, r, &in); err != nil {
		return err
	}
	types, err := parseTypes("events", in.Events)
	if err != nil {
		return err
	}
	if in.Events != nil && len(types) == 0 {
		return brig.InvalidField("events", "it is empty")
	}
	h, err := x.Service.UpdateWebhook(r.Context(), param(r, "hook"), brig.WebhookChange{Name: in.Name, URL: in.URL, Enabled: in.Enabled, Types: types, Secret: in.Secret})
	if err != nil {
		return err
	}
	x.write(w, r, http.StatusOK, x.hook(h))
	return nil
}

func (x *events) removeHook(w http.ResponseWriter, r *http.Request) error {
	if err := x.Service.RemoveWebhook(r.Context(), param(r, "hook")); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}
