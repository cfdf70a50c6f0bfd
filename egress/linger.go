package egress

import (
	"net"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// lingerTimeout is how long a closed connection may wait for the sandbox to
// receive the remaining data and close its side.
const lingerTimeout = 5 * time.Minute

// lingeringConn is the sandbox's side of a connection. After Close, the network
// stack keeps the connection until the sandbox has received all data.
type lingeringConn struct {
	*gonet.TCPConn
	ep    tcpip.Endpoint
	queue *waiter.Queue
}

func newLingering(queue *waiter.Queue, ep tcpip.Endpoint) *lingeringConn {
	return &lingeringConn{gonet.NewTCPConn(queue, ep), ep, queue}
}

// linger returns when the network stack has released a closed connection. It
// aborts the connection when end is closed or patience has passed.
func (c *lingeringConn) linger(end <-chan struct{}, timeout time.Duration) {
	entry, changed := waiter.NewChannelEntry(waiter.EventHUp | waiter.EventErr)
	c.queue.EventRegister(&entry)
	defer c.queue.EventUnregister(&entry)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	ticker := time.NewTicker(250 * time.Millisecond) // the queue does not report every way in which a connection ends
	defer ticker.Stop()
	for {
		switch tcp.EndpointState(c.ep.State()) {
		case tcp.StateClose, tcp.StateError:
			return
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-timer.C:
			c.ep.Abort()
			return
		case <-end:
			c.ep.Abort()
			return
		}
	}
}

// linger waits for the connections of a flow that was closed.
func (s *Session) linger(f *flow) {
	f.mu.Lock()
	conns := append([]net.Conn(nil), f.conns...)
	f.mu.Unlock()
	for _, c := range conns {
		if c, ok := c.(*lingeringConn); ok && s.lingerTime > 0 {
			c.linger(s.ctx.Done(), s.lingerTime)
		}
	}
}
