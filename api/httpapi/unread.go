package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// DefaultUnread is how long a client may leave sent data unread. Meanwhile the
// program that writes the data is blocked.
const DefaultUnread = 2 * time.Minute

// writeDeadline limits how long a client that does not read may block one write
// of a response. Pauses between writes are unlimited, because a silent stream
// does not mean a slow client.
type writeDeadline struct {
	rc     *http.ResponseController
	unread time.Duration

	deadline sync.Mutex // guards the field below and the connection's deadline
	broken   bool
}

// begin removes the deadline of the previous response on the same connection.
// Call it before the other methods.
func (d *writeDeadline) begin(w http.ResponseWriter, unread time.Duration) {
	d.rc, d.unread = http.NewResponseController(w), unread
	d.set(time.Time{})
}

// setFinal sets a deadline for the data that net/http sends after the handler
// returns.
func (d *writeDeadline) setFinal() { d.set(time.Now().Add(d.unread)) }

// arm sets the deadline of a write, and disarm removes it.
func (d *writeDeadline) arm() (disarm func()) {
	d.set(time.Now().Add(d.unread))
	return func() { d.set(time.Time{}) }
}

// set changes the deadline, unless the connection is about to be closed.
func (d *writeDeadline) set(deadline time.Time) {
	d.deadline.Lock()
	defer d.deadline.Unlock()
	if !d.broken {
		_ = d.rc.SetWriteDeadline(deadline) // a writer without deadlines, as in tests, needs none
	}
}

// maxPart is the number of bytes that a client must read within the time limit.
// It is small, so that even a slow reader meets the limit.
const maxPart = 64 << 10

// writePart writes one part of a response.
func (r *recorder) writePart(p []byte) (int, error) {
	defer r.arm()()
	return r.ResponseWriter.Write(p)
}

// FlushError implements Flush for http.ResponseController.
func (r *recorder) FlushError() error {
	defer r.arm()()
	return r.rc.Flush()
}

// SetWriteDeadline implements the method for http.ResponseController. A
// deadline in the past closes the connection. All other deadlines are ignored,
// because r sets its own.
func (r *recorder) SetWriteDeadline(deadline time.Time) error {
	if deadline.IsZero() || deadline.After(time.Now()) {
		return nil
	}
	r.deadline.Lock()
	defer r.deadline.Unlock()
	r.broken = true
	return r.rc.SetWriteDeadline(deadline)
}

// unread returns how long the clients of l's server may leave data unread.
func (l *Lease) unread() time.Duration {
	if l == nil {
		return DefaultUnread
	}
	return l.limiter.limits.Unread
}
