package wire

import "time"

// Millis writes a short duration: milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// FromMillis reads what Millis wrote.
func FromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
