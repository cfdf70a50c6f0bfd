package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

// auditCalls are the calls for the audit log.
type auditCalls struct{ *conn }

// Audit implements brig.Service.
func (c auditCalls) Audit(ctx context.Context, q brig.AuditQuery) (*brig.AuditPage, error) {
	v := url.Values{}
	if q.After != 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Sandbox != "" {
		v.Set("sandbox", q.Sandbox)
	}
	for k, value := range q.Labels {
		v.Add("label", k+"="+value)
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out audit.Page
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/audit", query: v}, nil, &out); err != nil {
		return nil, err
	}
	p, err := out.Domain()
	if err != nil {
		return nil, c.connectionError(ctx, "the server's answer is not an audit log", err)
	}
	return p, nil
}
