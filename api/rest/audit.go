package rest

import (
	"net/http"
	"net/url"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/door"
)

// auditQuery are the parameters of auditOptions.
func auditQuery() []parameter {
	return []parameter{
		{name: "after", doc: "continues behind the line of that number", number: true},
		{name: "since", doc: "only lines from that moment on, as 2006-01-02T15:04:05Z"},
		{name: "until", doc: "only lines from before that moment"},
		{name: "sandbox", doc: "only lines about the sandbox of that id or name"},
		{name: "label", doc: "key=value of the sandbox; all that are given must match", many: true},
		{name: "limit", doc: "the page's size, 1 to 1000; default 100", number: true},
	}
}

func (a *api) audit(w http.ResponseWriter, r *http.Request, v url.Values) error {
	q, err := auditOptions(v)
	if err != nil {
		return err
	}
	p, err := a.Service.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, audit.FromPage(p))
}

func auditOptions(v url.Values) (q brig.AuditQuery, err error) {
	if q.After, err = offset(v, "after", 0, 0); err != nil {
		return q, err
	}
	for name, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if !v.Has(name) {
			continue
		}
		if *to, err = time.Parse(time.RFC3339, v.Get(name)); err != nil {
			return q, brig.InvalidField(name, "is not a moment").WithHint("for example 2006-01-02T15:04:05Z")
		}
	}
	o, err := listOptions(url.Values{"label": v["label"]})
	if err != nil {
		return q, err
	}
	q.Sandbox, q.Labels = v.Get("sandbox"), o.Labels
	q.Limit, err = number(v, "limit")
	return q, err
}
