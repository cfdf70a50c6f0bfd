package builder_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
)

// A build with a start command pauses its sandbox before it makes a copy. If another creation takes the
// place in the tenant's quota in between, the build waits for another place, but not for ever.
func TestBuildWaitsForQuota(t *testing.T) {
	for name, c := range map[string]struct {
		full time.Duration // the time for which the quota is used up
		want brig.BuildStatus
	}{
		"free at once": {0, brig.BuildReady}, "free soon": {time.Minute, brig.BuildReady}, "not free": {time.Hour, brig.BuildFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil, nil)
				ctx := as(t, "acme")
				begin := time.Now()
				f.service.forking = func(string, brig.ForkSpec) error {
					if time.Since(begin) < c.full {
						return brig.QuotaExceededError("sandboxes", "1 at once", time.Second)
					}
					return nil
				}
				x := f.wait(t, ctx, f.start(t, ctx, "web", builder.Plan{Image: "base", Start: "serve", Ready: "true"}))
				if x.Status != c.want || time.Since(begin) > 3*time.Minute {
					t.Errorf("after %v the build is %s: %+v", time.Since(begin), x.Status, x.Failure)
				}
				if x.Failure != nil && !strings.Contains(x.Failure.Message, "quota of 1 at once is used up") {
					t.Errorf("%+v", x.Failure)
				}
				f.service.wantLeft(t, map[brig.BuildStatus]string{brig.BuildReady: "paused paused"}[c.want])
			})
		})
	}
}

// A step waits while the tenant has as many executions as it may have, and does not wait for the next day.
func TestStepsWaitForQuota(t *testing.T) {
	for quota, want := range map[string]brig.BuildStatus{"executions": brig.BuildReady, "executions_per_day": brig.BuildFailed} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, nil, nil)
			ctx := as(t, "acme")
			begin := time.Now()
			f.service.run = func(context.Context, *brig.Sandbox, string) (int, error) {
				if time.Since(begin) < time.Minute {
					return 0, brig.QuotaExceededError(quota, "10", time.Second)
				}
				return 0, nil
			}
			x := f.wait(t, ctx, f.start(t, ctx, "web", run("step")))
			if x.Status != want || want == brig.BuildFailed && time.Since(begin) > time.Second {
				t.Errorf("%s: after %v the build is %s: %+v", quota, time.Since(begin), x.Status, x.Failure)
			}
		})
	}
}
