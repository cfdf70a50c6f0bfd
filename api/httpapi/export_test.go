package httpapi

import "time"

// SetBodyTimeout changes the time limit of bodies until back is called.
func SetBodyTimeout(d time.Duration) (back func()) {
	former := bodyTimeout
	bodyTimeout = d
	return func() { bodyTimeout = former }
}

// Limited returns the number of addresses that a limit tracks.
func Limited(l *Limit) int { return len(l.of) }
