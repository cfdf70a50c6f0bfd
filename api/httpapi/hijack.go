package httpapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Hijack implements http.Hijacker. The connection keeps the write limit of
// responses: a client that does not read is disconnected.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := r.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	t := &hijackedConn{Conn: conn, r: r}
	buf.Writer.Reset(t)
	return t, buf, nil
}

var _ http.Hijacker = (*recorder)(nil)

// hijackedConn is a hijacked connection.
type hijackedConn struct {
	net.Conn
	r *recorder

	mu sync.Mutex // serializes writes, because each write sets a deadline
}

// Write implements io.Writer.
func (t *hijackedConn) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return writeInParts(p, func(part []byte) (int, error) {
		defer t.r.arm()()
		return t.Conn.Write(part)
	})
}

// CloseWrite closes the write side of the connection.
func (t *hijackedConn) CloseWrite() error { return closeWrite(t.Conn) }

// NewBoundedConn returns c with a time limit for each write, within which the peer
// must read data. The limit is the one that the server of ctx applies to its
// clients.
func NewBoundedConn(ctx context.Context, c net.Conn) net.Conn {
	return &boundedConn{Conn: c, unread: LeaseOf(ctx).unread()}
}

type boundedConn struct {
	net.Conn
	unread time.Duration

	mu sync.Mutex // one write at a time
}

// Write implements io.Writer.
func (b *boundedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return writeInParts(p, func(part []byte) (int, error) {
		_ = b.SetWriteDeadline(time.Now().Add(b.unread)) // fails if c has no deadlines
		n, err := b.Conn.Write(part)
		if err == nil {
			_ = b.SetWriteDeadline(time.Time{}) // remove the deadline
		}
		return n, err
	})
}

// CloseWrite closes the write side of the connection.
func (b *boundedConn) CloseWrite() error { return closeWrite(b.Conn) }

// closeWrite closes the write side of c if the connection supports it.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	return half.CloseWrite()
}

// writeInParts writes p in parts, each with its own time limit.
func writeInParts(p []byte, write func([]byte) (int, error)) (int, error) {
	n := 0
	for {
		end := min(n+maxPart, len(p))
		wrote, err := write(p[n:end])
		if n += wrote; err != nil || n == len(p) {
			return n, err
		}
	}
}
