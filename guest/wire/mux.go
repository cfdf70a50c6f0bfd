package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// A mux carries connections over a single byte stream between a host and an
// agent. The host opens the connections and the agent accepts them. Each
// connection has its own flow-control window, so that an unread connection does
// not block the others.
//
// A mux frame consists of a type (one byte), the number of the connection (four
// bytes) and a length (four bytes, big endian). A data frame has that many
// bytes of payload.
const (
	muxOpen  = 1 // a new connection
	muxData  = 2
	muxRoom  = 3 // length is the number of further bytes that may be sent
	muxEnd   = 4 // the sender sends no more data
	muxClose = 5 // the sender neither sends nor reads any more data

	muxHeader  = 9
	muxPayload = 32 << 10  // the maximum, in bytes
	muxWindow  = 256 << 10 // the maximum amount of unread data at the receiver
	muxStreams = 4096      // the maximum number of connections
)

// ErrMux is returned for a stream that violates the mux protocol.
var ErrMux = errors.New("not a stream of connections")

// Mux is one side of a multiplexed stream.
type Mux struct {
	rw io.ReadWriteCloser

	out sync.Mutex // serializes frames on rw
	buf [muxHeader + muxPayload]byte

	opening sync.Mutex // serializes the assignment and announcement of numbers

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*muxConn
	last    uint32 // last number that was assigned or accepted
	err     error  // the reason why the stream has ended
	accept  chan *muxConn
	done    chan struct{}
}

// NewMux starts a mux over rw and takes ownership of it. accepts means that the
// other side opens the connections.
func NewMux(rw io.ReadWriteCloser, accepts bool) *Mux {
	m := &Mux{rw: rw, streams: map[uint32]*muxConn{}, done: make(chan struct{})}
	if accepts {
		m.accept = make(chan *muxConn, muxStreams)
	}
	go func() { m.end(m.read()) }()
	return m
}

// Open opens a connection. It does not wait for the other side.
func (m *Mux) Open() (net.Conn, error) {
	m.opening.Lock() // the other side requires numbers in order
	defer m.opening.Unlock()
	m.mu.Lock()
	if m.err != nil || len(m.streams) >= muxStreams {
		defer m.mu.Unlock()
		return nil, errors.Join(errors.New("no more connections"), m.err)
	}
	m.last++
	c := newMuxConn(m, m.last)
	m.streams[c.id] = c
	m.mu.Unlock()
	if err := m.write(muxOpen, c.id, 0, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// Accept returns the next connection that the other side has opened.
func (m *Mux) Accept() (net.Conn, error) {
	select {
	case c := <-m.accept:
		return c, nil
	case <-m.done:
		return nil, m.Err()
	}
}

// Done returns a channel that is closed when the stream and all its connections
// have ended.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Err returns the reason why the stream has ended.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close ends the stream and all connections.
func (m *Mux) Close() error {
	m.end(net.ErrClosed)
	return nil
}

func (m *Mux) end(cause error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	if m.err = cause; cause == nil {
		m.err = io.EOF
	}
	streams := m.streams
	m.streams = nil
	close(m.done)
	m.mu.Unlock()
	m.rw.Close()
	for _, c := range streams {
		c.fail(m.err)
	}
}

// write sends one frame. n is the length of the payload, or the value of the
// length field in a frame without a payload.
func (m *Mux) write(t byte, id uint32, n int, payload []byte) error {
	m.out.Lock()
	defer m.out.Unlock()
	m.buf[0] = t
	binary.BigEndian.PutUint32(m.buf[1:], id)
	binary.BigEndian.PutUint32(m.buf[5:], uint32(n))
	k := copy(m.buf[muxHeader:], payload)
	if _, err := m.rw.Write(m.buf[:muxHeader+k]); err != nil {
		m.end(err)
		return err
	}
	return nil
}

// read handles frames until the stream ends. It never writes, because otherwise both sides could
// wait for each other.
func (m *Mux) read() error {
	var h [muxHeader]byte
	buf := make([]byte, muxPayload)
	for {
		if _, err := io.ReadFull(m.rw, h[:]); err != nil {
			return err
		}
		id, n := binary.BigEndian.Uint32(h[1:]), binary.BigEndian.Uint32(h[5:])
		var payload []byte
		if h[0] == muxData {
			if n == 0 || n > muxPayload {
				return fmt.Errorf("a frame of %d bytes: %w", n, ErrMux)
			}
			payload = buf[:n]
			if _, err := io.ReadFull(m.rw, payload); err != nil {
				return err
			}
		}
		if err := m.handleFrame(h[0], id, n, payload); err != nil {
			return err
		}
	}
}

// handleFrame handles one frame. It ignores late frames for a closed connection.
func (m *Mux) handleFrame(t byte, id, n uint32, payload []byte) error {
	m.mu.Lock()
	c := m.streams[id]
	if t == muxOpen {
		defer m.mu.Unlock()
		if m.accept == nil || id <= m.last || len(m.streams) >= muxStreams {
			return fmt.Errorf("connection %d: %w", id, ErrMux)
		}
		if m.err != nil {
			return m.err
		}
		m.last = id
		c = newMuxConn(m, id)
		m.streams[id] = c
		select {
		case m.accept <- c:
			return nil
		default:
			return fmt.Errorf("too many connections: %w", ErrMux)
		}
	}
	m.mu.Unlock()
	switch {
	case t < muxData || t > muxClose:
		return fmt.Errorf("a frame of type %d: %w", t, ErrMux)
	case c == nil:
		return nil
	case t == muxClose:
		m.forget(id) // no more frames for it follow, even if this side keeps it open
	}
	return c.handleFrame(t, n, payload)
}

// forget removes a connection that either side has closed.
func (m *Mux) forget(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, id)
}
