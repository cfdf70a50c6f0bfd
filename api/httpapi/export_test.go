package httpapi

import "time"

// SetBodyTimeout sets the time limit of request bodies and returns a function that restores it.
func SetBodyTimeout(d time.Duration) (back func()) {
	former := bodyTimeout
	bodyTimeout = d
	return func() { bodyTimeout = former }
}

// CountLimited returns the number of addresses that l tracks.
func CountLimited(l *Limit) int { return len(l.byAddress) }
