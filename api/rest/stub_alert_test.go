package rest_test

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

func (s *stub) Alerts(context.Context) ([]brig.Alert, error) {
	return []brig.Alert{{
		Name: "BrigErrorRate", Severity: brig.Critical, State: brig.AlertFiring, Labels: map[string]string{"provider": "gvisor"},
		Value: 0.25, Threshold: 0.05, Summary: "25 % of executions fail", Hint: "see the log", Since: epoch.Add(-time.Minute),
	}}, nil
}

func (f fullStub) Alerts(context.Context) ([]brig.Alert, error) {
	return []brig.Alert{*full[brig.Alert](f.t)}, nil
}
