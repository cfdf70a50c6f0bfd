package egress

import (
	"io"

	"github.com/brig-run/brig"
)

// holdLength is how many bytes at the end of a stream are held back. It equals the maximum length
// of an encoded value plus that of an incomplete escape, and is thus the same for all streams and
// values.
const holdLength = maxSpan + maxEscape

// blindReader reads src with all values replaced. It releases the bytes before
// the last holdLength bytes, or before the last boundary, which no value can
// cross (see boundaries). It releases the rest when src ends. If src fails, the
// held bytes are discarded.
//
// None of this depends on whether the held bytes contain, or may contain, a
// value. Otherwise, a guest whose guesses are echoed would see which of them
// are partly right.
type blindReader struct {
	src        io.Reader
	scan       *scan
	boundaries boundaries // nil: the stream has none
	held       []byte
	releasedTo int64 // offset up to which bytes were released; held begins there
	ready      int64 // offset up to which bytes may be released
	ended      error // the error with which src ended
	outputBuffer
}

func (s *search) newReader(src io.Reader, bounds boundaries) *blindReader {
	return &blindReader{src: src, scan: s.newScan(), boundaries: bounds}
}

// Read implements io.Reader.
func (r *blindReader) Read(p []byte) (int, error) { return r.read(p, r.fill) }

// holdReadSize is how many bytes are read and released at a time.
const holdReadSize = 16 << 10

// fill releases bytes that may be released, or reads once.
func (r *blindReader) fill(want int) {
	if r.ready <= r.releasedTo && r.ended == nil {
		r.readOnce(min(max(want, 512), holdReadSize))
	}
	if r.ready <= r.releasedTo {
		r.err = r.ended
		return
	}
	var to int64
	r.buf, to = r.scan.take(r.buf[:0], r.held, r.releasedTo, min(r.ready, r.releasedTo+holdReadSize))
	r.out = r.buf
	r.held = r.held[:copy(r.held, r.held[to-r.releasedTo:])]
	r.releasedTo = to
}

// readOnce reads once, and determines which bytes may be released.
func (r *blindReader) readOnce(want int) {
	from := len(r.held)
	if from+want > cap(r.held) { // append would double the capacity
		r.held = append(make([]byte, 0, min(2*(from+want), holdLength+2*holdReadSize)), r.held...)
	}
	n, err := r.src.Read(r.held[from : from+want])
	r.held = r.held[:from+n]
	if r.ended = err; err != nil && err != io.EOF {
		r.held = nil
		return
	}
	fresh := r.held[from:]
	upTo := max(0, len(r.held)-holdLength)
	if r.boundaries != nil {
		k, lost := r.boundaries.lastBoundary(fresh)
		if lost != nil {
			r.ended, r.held = lost, nil
			return
		}
		if k > 0 { // no escape crosses it
			r.scan.push(fresh[:k], true)
			upTo, fresh = max(upTo, from+k), fresh[k:]
		}
	}
	r.scan.push(fresh, err == io.EOF)
	if err == io.EOF {
		upTo = len(r.held)
	}
	if r.scan.hits.isFull() {
		r.ended, r.held = brig.Errorf(brig.Unavailable, whyManyHits), nil
		return
	}
	if _, framed := r.boundaries.(*envelopes); framed && len(r.scan.hits) > 0 {
		// The length precedes the message, so a replacement would make the length wrong.
		r.ended, r.held = brig.Errorf(brig.Unavailable, "a message has the value of a secret"), nil
		return
	}
	r.ready = r.releasedTo + int64(upTo)
}

// boundaries finds the positions of a stream that no value can cross, according
// to its media type, so that the stream keeps flowing. The positions depend
// only on the format.
type boundaries interface {
	// lastBoundary returns the end of the last boundary within b, the next part of the stream, or 0
	// if b has no boundary. It returns an error if the stream cannot be searched.
	lastBoundary(b []byte) (int, error)
}

// lines has a boundary after each line: no value contains a line break.
type lines struct{}

func (lines) lastBoundary(b []byte) (n int, err error) {
	for i, c := range b {
		if c == '\n' {
			n = i + 1
		}
	}
	return n, nil
}

// events has a boundary after each event of a text/event-stream, that is, after
// an empty line.
type events struct {
	started bool // within a line
	cr      bool // the last byte was a carriage return
	ended   bool // the line ended the event
}

func (e *events) lastBoundary(b []byte) (n int, err error) {
	for i, c := range b {
		switch {
		case c == '\n' && e.cr: // part of the same line ending
			if e.ended {
				n = i + 1
			}
			e.cr = false
		case c == '\n' || c == '\r':
			e.ended = !e.started
			if e.ended {
				n = i + 1
			}
			e.started, e.cr = false, c == '\r'
		default:
			e.started, e.cr = true, false
		}
	}
	return n, nil
}

// envelopes has a boundary after each message of gRPC, gRPC-Web and Connect. A
// message is a flag byte, a length of four bytes, and the payload.
type envelopes struct {
	head      [5]byte
	received  int
	remaining int64
}

func (e *envelopes) lastBoundary(b []byte) (n int, err error) {
	for i := 0; i < len(b); {
		if e.received < len(e.head) {
			e.head[e.received] = b[i]
			e.received++
			i++
			if e.received < len(e.head) {
				continue
			}
			if e.head[0]&1 != 0 {
				return 0, brig.Errorf(brig.Unavailable, "a message is compressed, and cannot be searched for secrets")
			}
			for _, c := range e.head[1:] {
				e.remaining = e.remaining<<8 | int64(c)
			}
		}
		k := min(e.remaining, int64(len(b)-i))
		e.remaining -= k
		i += int(k)
		if e.remaining == 0 {
			e.received = 0
			n = i
		}
	}
	return n, nil
}
