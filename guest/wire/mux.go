package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// A mux carries connections over one stream of bytes, where there is only one
// between host and agent. The host opens them, the agent takes them. Each has
// a window of its own, so that one that nobody reads does not hold the others
// up.
//
// A mux frame is one byte of type, four bytes of the connection's number, four
// bytes of length (big endian), and for data that many bytes.
const (
	muxOpen  = 1 // a new connection
	muxData  = 2
	muxRoom  = 3 // length is how much more may be sent
	muxEnd   = 4 // no more data comes from here
	muxClose = 5 // whoever sends it neither sends nor reads any more

	muxHeader  = 9
	muxPayload = 32 << 10  // the largest, in bytes
	muxWindow  = 256 << 10 // how much may be on its way to who does not read
	muxStreams = 4096      // connections at once
)

// ErrMux is returned for a stream that no mux has written.
var ErrMux = errors.New("not a stream of connections")

// Mux is one side of it.
type Mux struct {
	rw io.ReadWriteCloser

	out sync.Mutex // one frame at a time on rw
	buf [muxHeader + muxPayload]byte

	opening sync.Mutex // one number is given out and told of at a time

	mu      sync.Mutex // guards the fields below
	streams map[uint32]*muxConn
	last    uint32 // number that was given out, or taken
	err     error  // why it is over
	accept  chan *muxConn
	over    chan struct{}
}

// NewMux begins to carry connections over rw, which is the mux's from now on.
// accepts says that the other side opens them.
func NewMux(rw io.ReadWriteCloser, accepts bool) *Mux {
	m := &Mux{rw: rw, streams: map[uint32]*muxConn{}, over: make(chan struct{})}
	if accepts {
		m.accept = make(chan *muxConn, muxStreams)
	}
	go func() { m.end(m.read()) }()
	return m
}

// Open makes a connection. It does not wait for the other side.
func (m *Mux) Open() (net.Conn, error) {
	m.opening.Lock() // the other side wants numbers in their order
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

// Accept returns the next connection that the other side has made.
func (m *Mux) Accept() (net.Conn, error) {
	select {
	case c := <-m.accept:
		return c, nil
	case <-m.over:
		return nil, m.Err()
	}
}

// Done is closed when the stream is over, and all connections with it.
func (m *Mux) Done() <-chan struct{} { return m.over }

// Err says why it is over.
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

func (m *Mux) end(why error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	if m.err = why; why == nil {
		m.err = io.EOF
	}
	streams := m.streams
	m.streams = nil
	close(m.over)
	m.mu.Unlock()
	m.rw.Close()
	for _, c := range streams {
		c.lose(m.err)
	}
}

// write sends one frame. n is the payload's length, or what a frame without
// one has in its place.
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

// read takes frames until the stream is over. It never writes: were it to wait
// for the other side, both could wait for each other.
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
		if err := m.take(h[0], id, n, payload); err != nil {
			return err
		}
	}
}

// take carries out one frame. One for a connection that is gone is late.
func (m *Mux) take(t byte, id, n uint32, payload []byte) error {
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
		m.forget(id) // nothing more comes for it, however long it is kept open here
	}
	return c.take(t, n, payload)
}

// forget drops a connection that one of the sides has closed.
func (m *Mux) forget(id uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, id)
}
