package egress

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// gate is a connection from which HTTP/1 is read. net/http accepts messages that can be read in two
// ways, and does not report this to the handler. Examples are messages with both a length and
// chunks, with bare line feeds, or with a target that names another host than the header. Therefore
// the gate parses the same bytes, line by line. If they are ambiguous, it makes them invalid before
// the server reads them. The server behind it then responds with 400, in the right order. The gate
// only removes data: requests that are checked and sent on are the ones that the server parsed.
type gate struct {
	net.Conn
	refused func(reason string)
	begin   func() bool // charges a header that begins
	charged bool        // a header, or a long line, has been charged

	// ending is set when the rest of the last request's body is not read. Nothing
	// that follows is a request.
	ending     atomic.Bool
	lingerOnce sync.Once
	half       halfClose

	in        []byte // read, not inspected yet
	out       []byte // inspected, to be returned
	state     gateState
	unchecked int64 // bytes to pass on unchecked
	head      headLines
}

type gateState int

const (
	atRequest gateState = iota // before a request line
	inHeader
	inBody  // within a body; left bytes remain
	atChunk // before a chunk size
	inChunk // within a chunk; left bytes and a line ending remain
	inTrailer
	opened // all further data is passed on
	shut   // no further data is passed on
)

// maxLine is larger than the server's limit for a whole header, so that the
// server, not the gate, reports the error.
const maxLine = maxHeader + 16<<10

// invalidLine is invalid as a request line, a field and a chunk size.
const invalidLine = "\x00\r\n\r\n"

// stopChecking passes all further bytes unchecked. It is called when the connection no longer carries HTTP.
func (g *gate) stopChecking() {
	g.state = opened
	g.lingerOnce.Do(func() {}) // both sides end the connection as their protocol requires
}

// endAfterResponse ends the connection at the server's next read, which follows the response.
func (g *gate) endAfterResponse() { g.ending.Store(true) }

// A connection that is closed with unread data is reset, and the guest may lose the response, for
// example a refusal of a request that it still sends. Therefore the rest is received first, for
// restLinger and up to maxLinger bytes.
const (
	restLinger = 2 * time.Second
	maxLinger  = 1 << 20
)

// receiveRest closes the direction to the guest, and discards what the guest still sends.
func (g *gate) receiveRest() {
	_ = g.CloseWrite()
	_ = g.SetReadDeadline(time.Now().Add(restLinger))
	_, _ = io.CopyN(io.Discard, g.Conn, maxLinger)
}

// Close implements net.Conn.
func (g *gate) Close() error {
	g.lingerOnce.Do(g.receiveRest)
	return g.Conn.Close()
}

// CloseWrite closes the direction to the guest.
func (g *gate) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return g.Conn.Close()
}

func (g *gate) Read(p []byte) (int, error) {
	if g.ending.Load() {
		g.lingerOnce.Do(g.receiveRest)
		return 0, io.EOF
	}
	for len(g.out) == 0 {
		switch g.state {
		case shut:
			return 0, io.EOF
		case opened:
			return g.readUnchecked(p)
		case inBody, inChunk:
			if g.unchecked > 0 {
				n, err := g.readUnchecked(p[:min(int64(len(p)), g.unchecked)])
				g.unchecked -= int64(n)
				return n, err
			}
			if g.state == inBody {
				g.state = atRequest
				continue
			}
		}
		if err := g.readLine(); err != nil {
			return 0, err
		}
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// readUnchecked reads without a check.
func (g *gate) readUnchecked(p []byte) (int, error) {
	if len(g.in) > 0 {
		n := copy(p, g.in)
		g.in = g.in[n:]
		return n, nil
	}
	return g.Conn.Read(p)
}

// readLine reads and checks the next line, and writes it, or invalidLine, to out.
func (g *gate) readLine() error {
	end := bytes.IndexByte(g.in, '\n')
	for end < 0 {
		if len(g.in) > maxLine {
			g.out, g.in = g.in, nil
			g.state = shut
			return nil
		}
		var buf [4 << 10]byte
		n, err := g.Conn.Read(buf[:])
		if n == 0 && err == io.EOF && g.state == atRequest && len(g.in) == 0 {
			return g.half.end()
		}
		if n > 0 && !g.charged && (g.state == atRequest || g.state == inHeader || len(g.in) > len(buf)) {
			if g.charged = g.begin(); !g.charged {
				g.refused(reasonNoMemory)
				g.out, g.in, g.state = nil, nil, shut
				return nil
			}
		}
		from := len(g.in)
		g.in = append(g.in, buf[:n]...)
		if end = bytes.IndexByte(g.in[from:], '\n'); end >= 0 {
			end += from
		} else if err != nil {
			return err
		}
	}
	line := g.in[:end+1]
	g.in = g.in[end+1:]
	g.out = line
	text, plain := strings.CutSuffix(string(line), "\r\n")
	reason := "a line does not end as lines do"
	if plain {
		reason = g.inspect(text)
	}
	if reason != "" {
		g.refused(reason)
		g.out, g.in = []byte(invalidLine), nil
		g.state = shut
	}
	return nil
}

// inspect checks the next line, and returns the reason if it is invalid.
func (g *gate) inspect(line string) (reason string) {
	switch g.state {
	case atRequest:
		if line == "" {
			return "" // between requests; the server limits how many it accepts
		}
		g.head = headLines{}
		g.state = inHeader
		return g.head.parseRequestLine(line)
	case inHeader:
		if line != "" {
			return g.head.parseField(line)
		}
		reason = g.head.checkEnd()
		g.charged = false // the server charges the request from now on
		switch {
		case g.head.chunked:
			g.state = atChunk
		default:
			g.state, g.unchecked = inBody, max(g.head.length, 0)
		}
		return reason
	case atChunk:
		size, ok := parseChunkSize(line)
		if !ok {
			return "a chunk has no size"
		}
		g.state, g.unchecked = inChunk, size
		if size == 0 {
			g.state = inTrailer
		}
		return ""
	case inChunk:
		g.state = atChunk
		if line != "" {
			return "a chunk is longer than its size"
		}
		return ""
	case inTrailer:
		if line == "" {
			g.state = atRequest
			return ""
		}
		return checkTrailerField(line)
	}
	return "the message has ended"
}
