package supervise

import (
	"sync"
	"time"
)

// Lease manages the time limit of a sandbox and its tether. A tethered sandbox also ends with
// the client that created it. The zero value is a lease that has not begun.
type Lease struct {
	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // nil before Begin and after End
	until    time.Time
	tethered bool
}

// Begin starts the timer. When the lease expires, the timer calls expire.
func (l *Lease) Begin(left time.Duration, tethered bool, expire func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer, l.until, l.tethered = time.AfterFunc(left, expire), time.Now().Add(left), tethered
}

// Renew sets the remaining time. If untether is set, it also removes the tether. It returns false
// and changes nothing if the lease has not begun or has ended.
func (l *Lease) Renew(left time.Duration, untether bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		return false
	}
	l.timer.Reset(left)
	l.until, l.tethered = time.Now().Add(left), l.tethered && !untether
	return true
}

// End stops the timer, because the sandbox has ended.
func (l *Lease) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// Remaining returns the remaining time.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.until), 0)
}

// IsTethered reports whether the sandbox ends with its creator.
func (l *Lease) IsTethered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tethered
}
