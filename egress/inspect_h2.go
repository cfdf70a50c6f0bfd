package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
)

// frameGate is a connection from which HTTP/2 is read. The server behind it
// queues the header of each request until a handler is free, and the queue is
// longer than the number of handlers. Therefore frameGate charges each header
// before the server reads it.
type frameGate struct {
	net.Conn
	ctx            context.Context
	requestTracker *requestTracker
	refused        func(reason string)

	preface     int     // bytes of the preface received so far
	head        [9]byte // a frame header
	headerBytes int     // bytes of the frame header received so far
	remaining   uint32  // remaining bytes of the payload
	last        uint32  // the highest stream id so far
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const headersFrame = 1 // RFC 9113, section 6.2

var (
	errNotHTTP2 = errors.New("the connection is not HTTP/2")
	errNoMemory = errors.New(reasonNoMemory)
)

// Read implements net.Conn.
func (g *frameGate) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if failure := g.inspect(p[:n]); failure != nil {
		g.refused(failure.Error())
		return 0, failure
	}
	return n, err
}

// inspect parses the frames in b.
func (g *frameGate) inspect(b []byte) error {
	for len(b) > 0 {
		switch {
		case g.preface < len(preface):
			if b[0] != preface[g.preface] {
				return errNotHTTP2
			}
			g.preface++
			b = b[1:]
		case g.remaining > 0:
			n := min(g.remaining, uint32(len(b)))
			g.remaining -= n
			b = b[n:]
		default:
			n := copy(g.head[g.headerBytes:], b)
			b = b[n:]
			if g.headerBytes += n; g.headerBytes < len(g.head) {
				return nil
			}
			g.headerBytes = 0
			g.remaining = binary.BigEndian.Uint32(g.head[:4]) >> 8
			stream := binary.BigEndian.Uint32(g.head[5:]) &^ (1 << 31)
			if g.head[3] != headersFrame || stream <= g.last {
				continue
			}
			g.last = stream
			if !g.requestTracker.begin(g.ctx) {
				return errNoMemory
			}
		}
	}
	return nil
}

// CloseWrite closes the direction to the guest.
func (g *frameGate) CloseWrite() error { return closeWrite(g.Conn) }
