package builder

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// Times of a build that waits for the tenant's quota.
const (
	quotaTimeout  = 2 * time.Minute
	quotaInterval = 500 * time.Millisecond
)

// isFull reports whether a call was rejected because the tenant or the server has as many of something as it may
// have at a time. Other sandboxes and executions end, so a later call can succeed. A quota of a day is no reason
// to wait.
func isFull(err error) bool {
	if brig.KindOf(err) != brig.RateLimited {
		return false
	}
	switch brig.AsError(err).Field {
	case "quota.sandboxes", "quota.storage", "quota.executions", "capacity":
		return true
	}
	return false
}

// awaitQuota calls f until the quota of the tenant admits it, for at most quotaTimeout.
func (r *activeRun) awaitQuota(ctx context.Context, f func() error) error {
	err := f()
	if !isFull(err) {
		return err
	}
	r.log.add("warn", r.step, "waiting: "+messageOf(err))
	timeout := time.NewTimer(quotaTimeout)
	defer timeout.Stop()
	retry := time.NewTicker(quotaInterval)
	defer retry.Stop()
	for isFull(err) {
		select {
		case <-retry.C:
			err = f()
		case <-timeout.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// command runs a command in the sandbox of the steps, when the quota of the tenant admits it.
func (r *activeRun) command(ctx context.Context, cmd brig.Command, sio brig.IO) (res *brig.Result, err error) {
	err = r.awaitQuota(ctx, func() (err error) {
		res, err = r.b.options.Service.Exec(ctx, r.box(), cmd, sio)
		return err
	})
	return res, err
}
