package engine

import (
	"context"

	"github.com/brig-run/brig"
)

// Alerts implements brig.Service.
func (e *Engine) Alerts(ctx context.Context) (_ []brig.Alert, err error) {
	v, err := e.enter(ctx, brig.OpAlerts, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if e.Options.Alerts == nil {
		return nil, nil
	}
	return e.Options.Alerts(), nil
}
