package egress

import (
	"net"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// usage is the network usage of a sandbox.
type usage struct {
	sent, received, dropped atomic.Int64
}

// maxChunk is the maximum number of bytes carried at a time. Bandwidth limits are enforced in units
// of maxChunk.
const maxChunk = 64 << 10

// newLimiter returns a limiter of bandwidth. It allows bursts of a tenth of a
// second, so that short transfers are not slowed down.
func newLimiter(bytesPerSecond int64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/10, maxChunk)))
}

// sandboxConn is the sandbox's end of a connection. Its traffic is counted and
// limited.
type sandboxConn struct {
	net.Conn
	s *Session
}

// Read implements net.Conn. It counts the bytes that the sandbox sends.
func (m sandboxConn) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p[:min(len(p), maxChunk)])
	m.s.usage.sent.Add(int64(n))
	if l := m.s.policy.Load().up; l != nil && n > 0 {
		if lost := l.WaitN(m.s.ctx, n); lost != nil {
			return 0, lost
		}
	}
	return n, err
}

// countGrowth counts n bytes that secret values add to the sandbox's traffic,
// and waits until its bandwidth allows them. The sandbox itself sends only the
// placeholders.
func (s *Session) countGrowth(n int64) error {
	s.usage.sent.Add(n)
	for l := s.policy.Load().up; l != nil && n > 0; {
		piece := min(n, maxChunk)
		if err := l.WaitN(s.ctx, int(piece)); err != nil {
			return err
		}
		n -= piece
	}
	return nil
}

// Write implements net.Conn. It counts the bytes that the sandbox receives.
func (m sandboxConn) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		piece := p[:min(len(p), maxChunk)]
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

// CloseWrite closes the direction to the sandbox.
func (m sandboxConn) CloseWrite() error { return closeWrite(m.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
