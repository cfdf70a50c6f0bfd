package egress

import (
	"bytes"
	"io"
	"net"
	"strings"
)

// gate is a connection on which HTTP/1 is read. net/http is lenient where a
// message can be read in two ways (both a length and chunks, bare line feeds,
// a host in the target beside another in the header) and does not tell those
// who handle the request; so the gate reads along, line by line. What is not
// plainly one message it spoils before it is read, so that the server behind
// refuses it, in its turn, with a 400. It only ever takes away: what is judged
// and sent on is what the server has parsed.
type gate struct {
	net.Conn
	refused func(why string)

	in    []byte // read, not looked at
	out   []byte // looked at, to be given out
	state gateState
	left  int64 // of what is passed on without being looked at
	head  headLines
}

type gateState int

const (
	atRequest gateState = iota // a request line comes
	inHeader
	inBody  // left bytes
	atChunk // a chunk's size comes
	inChunk // left bytes, and the end of a line
	inTrailer
	opened // whatever comes is passed on
	shut   // nothing is
)

// maxLine is more than the server accepts of a whole header, so that it is the
// one that says so.
const maxLine = maxHeader + 16<<10

// spoilt is neither a request line, nor a field, nor a chunk's size.
const spoilt = "\x00\r\n\r\n"

// open lets whatever comes pass. It is for what is no longer HTTP.
func (g *gate) open() { g.state = opened }

// CloseWrite closes the direction to the guest.
func (g *gate) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return g.Close()
}

func (g *gate) Read(p []byte) (int, error) {
	for len(g.out) == 0 {
		switch g.state {
		case shut:
			return 0, io.EOF
		case opened:
			return g.pass(p)
		case inBody, inChunk:
			if g.left > 0 {
				n, err := g.pass(p[:min(int64(len(p)), g.left)])
				g.left -= int64(n)
				return n, err
			}
			if g.state == inBody {
				g.state = atRequest
				continue
			}
		}
		if err := g.line(); err != nil {
			return 0, err
		}
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// pass reads without looking.
func (g *gate) pass(p []byte) (int, error) {
	if len(g.in) > 0 {
		n := copy(p, g.in)
		g.in = g.in[n:]
		return n, nil
	}
	return g.Conn.Read(p)
}

// line looks at the next line and puts it, or what spoils it, into out.
func (g *gate) line() error {
	end := bytes.IndexByte(g.in, '\n')
	for end < 0 {
		if len(g.in) > maxLine {
			g.out, g.in = g.in, nil
			g.state = shut
			return nil
		}
		var buf [4 << 10]byte
		n, err := g.Conn.Read(buf[:])
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
	why := "a line does not end as lines do"
	if plain {
		why = g.look(text)
	}
	if why != "" {
		g.refused(why)
		g.out, g.in = []byte(spoilt), nil
		g.state = shut
	}
	return nil
}

// look goes on by one line, and says what is wrong with it.
func (g *gate) look(line string) (why string) {
	switch g.state {
	case atRequest:
		if line == "" {
			return "" // between requests; the server knows how many it takes
		}
		g.head = headLines{}
		g.state = inHeader
		return g.head.request(line)
	case inHeader:
		if line != "" {
			return g.head.field(line)
		}
		why = g.head.end()
		switch {
		case g.head.chunked:
			g.state = atChunk
		default:
			g.state, g.left = inBody, max(g.head.length, 0)
		}
		return why
	case atChunk:
		size, ok := chunkSize(line)
		if !ok {
			return "a chunk has no size"
		}
		g.state, g.left = inChunk, size
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
		return trailerField(line)
	}
	return "the message has ended"
}
