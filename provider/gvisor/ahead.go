package gvisor

import (
	"context"
	"net"
	"sync"
	"time"
)

// aheadDelay is how long after a call the connection for the next one is made:
// the call's own answer comes first.
const aheadDelay = 25 * time.Millisecond

// ahead has a connection to an agent ready before somebody asks for it. To make
// one wakes the shim and then the agent, and costs as much as the rest of a
// small call. A connection is used for one call, ready or not, and one that
// turns out to be broken says what a failure to connect says.
type ahead struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex // guards the fields below
	ready  net.Conn
	timer  *time.Timer
	closed bool
}

// take returns a connection.
func (a *ahead) take(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	c := a.ready
	a.ready = nil
	a.mu.Unlock()
	a.later()
	if c != nil {
		return c, nil
	}
	return a.dial(ctx)
}

// later makes a connection when nothing was asked for a moment.
func (a *ahead) later() {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
	case a.timer == nil:
		a.timer = time.AfterFunc(aheadDelay, a.make)
	default:
		a.timer.Reset(aheadDelay)
	}
}

func (a *ahead) make() {
	c, err := a.dial(context.Background()) //nolint:forbidigo // nobody asks for it, and it bounds itself
	if err != nil {
		return // whoever asks next is told
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.ready != nil {
		c.Close()
		return
	}
	a.ready = c
}

// close closes what is ready, for good.
func (a *ahead) close() {
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
