package gvisor

import (
	"context"
	"net"
	"sync"
	"time"
)

// preconnectDelay is the delay between a call and the opening of the connection
// for the next call. It lets the response to the current call arrive first.
const preconnectDelay = 25 * time.Millisecond

// preconnect opens a connection to an agent before a call needs it. Opening a
// connection wakes the shim and then the agent, and takes as long as the rest
// of a small call. Each connection is used for one call. A call on a broken
// connection returns the same error as a failure to connect.
type preconnect struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex // guards the fields below
	ready  net.Conn
	timer  *time.Timer
	closed bool
}

// take returns the ready connection, or dials a new one.
func (a *preconnect) take(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	c := a.ready
	a.ready = nil
	a.mu.Unlock()
	a.schedule()
	if c != nil {
		return c, nil
	}
	return a.dial(ctx)
}

// schedule opens a connection after preconnectDelay, unless another call
// restarts the delay.
func (a *preconnect) schedule() {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
	case a.timer == nil:
		a.timer = time.AfterFunc(preconnectDelay, a.make)
	default:
		a.timer.Reset(preconnectDelay)
	}
}

func (a *preconnect) make() {
	c, err := a.dial(context.Background()) //nolint:forbidigo // no call waits for it, and it has its own timeout
	if err != nil {
		return // the next call gets the error
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.ready != nil {
		c.Close()
		return
	}
	a.ready = c
}

// drop closes the ready connection, if there is one.
func (a *preconnect) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.ready != nil {
		a.ready.Close()
		a.ready = nil
	}
}

// close closes the ready connection and prevents new ones.
func (a *preconnect) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	if a.ready != nil {
		a.ready.Close()
		a.ready = nil
	}
}
