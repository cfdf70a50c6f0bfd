package httpapi

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Clients that retry immediately after a 429 response would exhaust the
// server's CPU with thousands of such responses a second. Above
// rejectionsPerSecond, each 429 response is delayed by at most
// maxRejectionDelay. A client that waits for a response sends no other request.
const (
	rejectionsPerSecond = 200
	maxRejectionDelay   = time.Second
)

// rejectionLimiter limits the rate of 429 responses of a server.
type rejectionLimiter struct{ *rate.Limiter }

func newRejectionLimiter() rejectionLimiter {
	return rejectionLimiter{rate.NewLimiter(rejectionsPerSecond, rejectionsPerSecond)}
}

// wait blocks until the limit permits one more response, for at most
// maxRejectionDelay, or until ctx ends.
func (r rejectionLimiter) wait(ctx context.Context) {
	turn := r.Reserve()
	d := turn.Delay()
	if d <= 0 {
		return
	}
	if d > maxRejectionDelay {
		turn.Cancel() // the reserved turn is returned
		d = maxRejectionDelay
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
