package rest

import (
	"net/http"
	"net/url"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/audit"
)

// auditAPI has the handlers for the audit log.
type auditAPI struct{ *base }

// routes returns the routes of the audit log.
func (a auditAPI) routes() []route {
	get := http.MethodGet
	return []route{
		{id: "audit", method: get, pattern: "/v1/audit", tag: "audit", summary: "Read the tenant's audit log, oldest first",
			large: true, handle: a.audit, out: audit.Page{}, query: auditQuery()},
	}
}

// auditQuery returns the query parameters that auditOptions reads.
func auditQuery() []parameter {
	return []parameter{
		{name: "after", doc: "return records after this number", number: true, example: 0},
		{name: "since", doc: "only records from this time on, as 2006-01-02T15:04:05Z", format: "date-time", nonempty: true, example: "2026-01-02T15:04:05Z"},
		{name: "until", doc: "only records before this time", format: "date-time", nonempty: true, example: "2026-01-03T00:00:00Z"},
		{name: "sandbox", doc: "only records about the sandbox with this ID or name"},
		{name: "label", doc: "label of the sandbox, as key=value; all must match", repeated: true, pattern: labelPattern, example: []string{"team=search"}},
		{name: "limit", doc: "page size; default 100", number: true, min: 1, max: 1000, example: 100},
	}
}

func (a auditAPI) audit(w http.ResponseWriter, r *http.Request, v url.Values) error {
	q, err := auditOptions(v)
	if err != nil {
		return err
	}
	p, err := a.Service.Audit(r.Context(), q)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, audit.FromPage(p))
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
	q.Limit, err = intParameter(v, "limit")
	return q, err
}
