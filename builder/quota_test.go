package builder_test

import (
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
						return brig.Errorf(brig.RateLimited, "the tenant has 1 sandbox, the maximum")
					}
					return nil
				}
				x := f.wait(t, ctx, f.start(t, ctx, "web", builder.Plan{Image: "base", Start: "serve", Ready: "true"}))
				if x.Status != c.want || time.Since(begin) > 3*time.Minute {
					t.Errorf("after %v the build is %s: %+v", time.Since(begin), x.Status, x.Failure)
				}
				if x.Failure != nil && !strings.Contains(x.Failure.Message, "the maximum") {
					t.Errorf("%+v", x.Failure)
				}
				f.service.wantLeft(t, map[brig.BuildStatus]string{brig.BuildReady: "paused paused"}[c.want])
			})
		})
	}
}
