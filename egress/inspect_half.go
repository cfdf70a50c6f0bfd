package egress

import (
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// halfCloseTimeout is how long a request continues after the guest has closed its direction. A
// guest that has disconnected cannot be distinguished until the proxy sends data to it, and its
// request should not continue for long.
const halfCloseTimeout = 15 * time.Second

// halfClose hides the end of the guest's direction from the HTTP server while
// the server serves a request. The server would cancel the request, although a
// guest may close its direction after it has sent the request, and wait for the
// response.
type halfClose struct {
	mu       sync.Mutex // guards the fields below
	serving  bool
	timedOut bool          // the time for a Read is over
	wake     chan struct{} // closed when one of them changes; nil: no Read waits
}

// set changes the state.
func (h *halfClose) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

// end waits until the server may receive the end of the guest's direction, and returns the error
// for its Read.
func (h *halfClose) end() error {
	timer := time.NewTimer(halfCloseTimeout)
	defer timer.Stop()
	for {
		h.mu.Lock()
		serving, late := h.serving, h.timedOut
		if h.wake == nil {
			h.wake = make(chan struct{})
		}
		wake := h.wake
		h.mu.Unlock()
		switch {
		case late:
			return os.ErrDeadlineExceeded
		case !serving:
			return io.EOF
		}
		select {
		case <-wake:
		case <-timer.C:
			return io.EOF
		}
	}
}

// SetReadDeadline implements net.Conn. When the server has served a request, it ends its Read with
// a deadline in the past.
func (g *gate) SetReadDeadline(t time.Time) error {
	g.half.set(func() { g.half.timedOut = !t.IsZero() && !t.After(time.Now()) })
	return g.Conn.SetReadDeadline(t)
}

// onStateChange is called when the state of the server's connection changes.
func (n *inspection) onStateChange(_ net.Conn, state http.ConnState) {
	if n.gate == nil {
		return
	}
	n.gate.half.set(func() { n.gate.half.serving = state == http.StateActive })
	if state == http.StateIdle && n.gate.ending.Load() {
		// The server has read the beginning of the rest, and would respond to it as to a request.
		n.gate.lingerOnce.Do(n.gate.receiveRest)
	}
}
