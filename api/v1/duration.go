package v1

import (
	"math"
	"time"

	"github.com/brig-run/brig"
)

// CheckDuration returns an error if a request's field in milliseconds is
// negative or too large for a duration.
func CheckDuration(field string, ms int64) error {
	if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
		return brig.InvalidField(field, "is out of range")
	}
	if ms < 0 {
		return brig.InvalidField(field, "must not be negative").WithHint("leave it out for the default")
	}
	return nil
}

// ToDuration converts milliseconds to a duration. Values that are out of range
// become the largest or smallest duration.
func ToDuration(ms int64) time.Duration {
	const limit = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(min(ms, limit), -limit)) * time.Millisecond
}

// FromDuration converts a duration to milliseconds. A nonzero duration never
// becomes 0, because 0 means the default in requests.
func FromDuration(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	if d < 0 && d > -time.Millisecond {
		return -1
	}
	return d.Milliseconds()
}

// Millis converts a short duration to milliseconds with microsecond precision.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// FromMillis is the inverse of Millis.
func FromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
