package egress

import (
	"net"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// usage is what a sandbox has used of the network.
type usage struct {
	sent, received, dropped atomic.Int64
}

// maxPiece is how much is carried at once: a bound on bandwidth is kept in
// such pieces.
const maxPiece = 64 << 10

// newLimiter bounds bandwidth. A tenth of a second's worth may go at once, so
// that short things are not slowed down.
func newLimiter(bytesPerSecond int64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/10, maxPiece)))
}

// metered is the sandbox's end of a connection: what goes over it is counted
// and bounded.
type metered struct {
	net.Conn
	s *Session
}

// Read implements net.Conn: what the sandbox sends.
func (m metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p[:min(len(p), maxPiece)])
	m.s.usage.sent.Add(int64(n))
	if l := m.s.policy.Load().up; l != nil && n > 0 {
		if lost := l.WaitN(m.s.ctx, n); lost != nil {
			return 0, lost
		}
	}
	return n, err
}

// Write implements net.Conn: what the sandbox receives.
func (m metered) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		piece := p[:min(len(p), maxPiece)]
		if l := m.s.policy.Load().down; l != nil {
			if err := l.WaitN(m.s.ctx, len(piece)); err != nil {
				return written, err
			}
		}
		n, err := m.Conn.Write(piece)
		written += n
		m.s.usage.received.Add(int64(n))
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// CloseWrite tells the sandbox that nothing more comes.
func (m metered) CloseWrite() error { return closeWrite(m.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
