package brig_test

import (
	"math"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestRateCost(t *testing.T) {
	e2b, aliyun := brig.Rate{PerSecond: 0.02}, brig.Rate{PerSecond: 0.01 / 1000}
	for _, c := range []struct {
		name   string
		rate   brig.Rate
		calls  int64
		took   time.Duration
		memory int64
		want   float64
	}{
		{"1,000 times 30 s on E2B at 0.02 $/s", e2b, 1000, 30_000 * time.Second, brig.GiB, 600},
		{"1,000 times 30 s on Aliyun at 0.01 $/1000 s", aliyun, 1000, 30_000 * time.Second, brig.GiB, 0.30},
		{"memory counts", brig.Rate{PerGiBSecond: 0.5}, 3, 10 * time.Second, 2 * brig.GiB, 10},
		{"half a GiB", brig.Rate{PerGiBSecond: 0.5}, 3, 10 * time.Second, brig.GiB / 2, 2.5},
		{"calls count", brig.Rate{PerCall: 0.001}, 3, time.Hour, brig.GiB, 0.003},
		{"all of it", brig.Rate{PerCall: 1, PerSecond: 2, PerGiBSecond: 3}, 2, 4 * time.Second, brig.GiB, 2 + 8 + 12},
		{"no rate", brig.Rate{}, 1000, time.Hour, brig.GiB, 0},
		{"nothing ran", e2b, 0, 0, brig.GiB, 0},
	} {
		if got := c.rate.Cost(c.calls, c.took, c.memory); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		// The costs of the single executions must add up to the same total.
		sum := 0.0
		for range c.calls {
			sum += c.rate.Cost(1, c.took/time.Duration(c.calls), c.memory)
		}
		if math.Abs(sum-c.want) > 1e-6 {
			t.Errorf("%s: %v one by one, want %v", c.name, sum, c.want)
		}
	}
	for _, r := range []brig.Rate{{PerCall: -1}, {PerSecond: math.NaN()}, {PerGiBSecond: math.Inf(1)}} {
		if brig.KindOf(r.Check("rates")) != brig.InvalidArgument {
			t.Errorf("%+v is a rate", r)
		}
	}
}

func TestMonthOf(t *testing.T) {
	for at, want := range map[string][2]string{
		"2026-11-21T23:00:00Z":      {"2026-11-01", "2026-11-30"},
		"2028-02-01T00:00:00Z":      {"2028-02-01", "2028-02-29"},
		"2026-12-31T23:30:00-01:00": {"2027-01-01", "2027-01-31"},
	} {
		m, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if first, last := brig.MonthOf(m); first != want[0] || last != want[1] {
			t.Errorf("%s is in %s to %s, want %v", at, first, last, want)
		}
	}
}

// TestRunStatusOf checks the status of each kind of error, and that no kind maps to
// RunSuccess or RunError.
func TestRunStatusOf(t *testing.T) {
	for _, k := range brig.Kinds {
		if s := brig.RunStatusOf(k); s == brig.RunSuccess || s == brig.RunError {
			t.Errorf("%s is %s", k, s)
		}
	}
	for k, want := range map[brig.Kind]brig.RunStatus{
		"": brig.RunSuccess, brig.NotInitialized: brig.RunFailed, brig.InvalidConfig: brig.RunFailed, brig.ConnectionFailed: brig.RunFailed,
		brig.CreationFailed: brig.RunFailed, brig.Timeout: brig.RunTimeout, brig.OutOfMemory: brig.RunOutOfMemory,
		brig.PolicyBlocked: brig.RunBlocked, brig.RateLimited: brig.RunRefused, brig.Unavailable: brig.RunFailed,
		brig.Canceled: brig.RunCanceled, brig.Internal: brig.RunFailed,
	} {
		if got := brig.RunStatusOf(k); got != want {
			t.Errorf("%s is %s, want %s", k, got, want)
		}
	}
	for s, want := range map[brig.RunStatus][2]bool{
		brig.RunSuccess: {true, false}, brig.RunError: {true, false}, brig.RunTimeout: {true, true}, brig.RunOutOfMemory: {true, true},
		brig.RunBlocked: {false, false}, brig.RunRefused: {false, false}, brig.RunCanceled: {false, false}, brig.RunFailed: {true, true},
	} {
		if s.CountsForAvailability() != want[0] || s.IsServiceError() != want[1] {
			t.Errorf("%s counts: %t, erred: %t", s, s.CountsForAvailability(), s.IsServiceError())
		}
	}
}
