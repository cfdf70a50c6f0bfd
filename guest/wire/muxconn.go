package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// muxConn is one connection of a mux.
type muxConn struct {
	m  *Mux
	id uint32

	mu          sync.Mutex // guards the fields below
	changed     sync.Cond  // signals a change of any of the fields
	in          []byte     // unread data
	unacked     int        // bytes read since the last muxRoom frame
	room        int        // bytes that the other side still accepts
	ended       bool       // the other side sends no more data
	peerClosed  bool       // the other side reads no more data
	closed      bool       // this side has closed the connection
	writeClosed bool       // this side sends no more data
	err         error      // the error of the mux, after its end
	lost        bool       // the mux has ended
	read        deadline
	write       deadline
}

// deadline is a time at which a blocked call returns.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) hasPassed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newMuxConn(m *Mux, id uint32) *muxConn {
	c := &muxConn{m: m, id: id, room: muxWindow}
	c.changed.L = &c.mu
	return c
}

// handleFrame handles a frame from the other side.
func (c *muxConn) handleFrame(t byte, n uint32, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	switch t {
	case muxData:
		if c.closed {
			return nil // the frame was sent before the close arrived
		}
		if c.ended || len(c.in)+c.unacked+len(payload) > muxWindow {
			return fmt.Errorf("more than there is room for: %w", ErrMux)
		}
		c.in = append(c.in, payload...)
	case muxRoom:
		if n > muxWindow || c.room+int(n) > muxWindow {
			return fmt.Errorf("room for %d bytes: %w", n, ErrMux)
		}
		c.room += int(n)
	case muxEnd:
		c.ended = true
	case muxClose:
		c.ended, c.peerClosed = true, true
	}
	return nil
}

// fail ends the connection when its mux has ended.
func (c *muxConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.lost = err, true
	c.changed.Broadcast()
}

// Read implements net.Conn.
func (c *muxConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	for len(c.in) == 0 && len(p) > 0 {
		err := c.err
		switch {
		case c.closed:
			err = net.ErrClosed
		case c.ended:
			err = io.EOF
		case c.read.hasPassed():
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			c.mu.Unlock()
			return 0, err
		}
		c.changed.Wait()
	}
	n := copy(p, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	c.unacked += n
	credit := 0
	if c.unacked >= muxWindow/2 && !c.ended && !c.closed {
		credit, c.unacked = c.unacked, 0
	}
	c.mu.Unlock()
	if credit > 0 {
		_ = c.m.write(muxRoom, c.id, credit, nil) // the next read reports the error
	}
	return n, nil
}

// Write implements net.Conn.
func (c *muxConn) Write(p []byte) (int, error) {
	for sent := 0; ; {
		if sent == len(p) {
			return sent, nil
		}
		n, err := c.reserve(len(p) - sent)
		if err != nil {
			return sent, err
		}
		if err := c.m.write(muxData, c.id, n, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
}

// reserve waits until data may be sent, and returns the number of bytes that may be sent.
func (c *muxConn) reserve(want int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.writeClosed, c.peerClosed:
			return 0, syscall.EPIPE
		case c.err != nil:
			return 0, c.err
		case c.write.hasPassed():
			return 0, os.ErrDeadlineExceeded
		case c.room > 0:
			n := min(want, c.room, muxPayload)
			c.room -= n
			return n, nil
		}
		c.changed.Wait()
	}
}

// CloseWrite announces that this side sends no more data.
func (c *muxConn) CloseWrite() error {
	c.mu.Lock()
	done := c.writeClosed || c.closed
	c.writeClosed = true
	c.mu.Unlock()
	if done {
		return nil
	}
	return c.m.write(muxEnd, c.id, 0, nil)
}

// WaitPeerClosed waits until the other side stops reading, or this side closes
// the connection.
func (c *muxConn) WaitPeerClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.peerClosed && !c.closed && !c.lost {
		c.changed.Wait()
	}
}

// Close implements net.Conn.
func (c *muxConn) Close() error {
	c.mu.Lock()
	done := c.closed || c.lost
	c.closed, c.in = true, nil
	c.changed.Broadcast()
	c.mu.Unlock()
	if done {
		return nil
	}
	c.m.forget(c.id)
	return c.m.write(muxClose, c.id, 0, nil)
}

func (c *muxConn) set(d *deadline, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.at = at; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
	}
	c.changed.Broadcast()
}

// SetReadDeadline implements net.Conn.
func (c *muxConn) SetReadDeadline(at time.Time) error { c.set(&c.read, at); return nil }

// SetWriteDeadline implements net.Conn.
func (c *muxConn) SetWriteDeadline(at time.Time) error { c.set(&c.write, at); return nil }

// SetDeadline implements net.Conn.
func (c *muxConn) SetDeadline(at time.Time) error {
	c.set(&c.read, at)
	c.set(&c.write, at)
	return nil
}

// LocalAddr implements net.Conn.
func (c *muxConn) LocalAddr() net.Addr { return muxAddr{} }

// RemoteAddr implements net.Conn.
func (c *muxConn) RemoteAddr() net.Addr { return muxAddr{} }

// muxAddr is a placeholder, because a mux connection has no address.
type muxAddr struct{}

func (muxAddr) Network() string { return "mux" }
func (muxAddr) String() string  { return "mux" }
