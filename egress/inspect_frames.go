package egress

import (
	"encoding/binary"
	"io"

	"github.com/brig-run/brig"
)

// maxHeld limits how many bytes of an incomplete message are held back. It is
// larger than holdLength, because control frames may occur between the frames
// of a value.
const maxHeld = 256 << 10

// frames reads WebSocket frames from a host. It stops at a malformed frame, or at a data or control
// message that contains a searched value. It releases a message when the message is complete,
// together with all control frames between its frames. Of a message longer than maxHeld, it
// releases everything before the last maxHeld bytes. If the host disconnects within a message, the
// held part is lost. The held amount thus depends on where messages end, and not on their content.
type frames struct {
	src io.Reader

	head      []byte // the part of the frame header that has arrived
	remaining uint64 // remaining bytes of the frame's payload
	data      bool   // the frame belongs to a data message
	last      bool   // final frame of a message
	open      bool   // a data message is incomplete

	message *scan
	control *scan

	held           []byte // as received
	completeLength int    // length of the complete messages in held
	in             []byte
	outputBuffer
}

func (s *search) newFrames(src io.Reader) *frames {
	return &frames{src: src, message: s.newScan(), control: s.newScan()}
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) { return f.read(p, f.fill) }

// fill reads once, and searches the data.
func (f *frames) fill(int) {
	if f.in == nil {
		f.in = make([]byte, 16<<10)
	}
	n, err := f.src.Read(f.in)
	upTo := 0
	for b := f.in[:n]; len(b) > 0 && f.err == nil; {
		b = b[f.take(b):]
	}
	if f.err == nil {
		f.err = err
		upTo = len(f.held) - maxHeld
	}
	upTo = max(upTo, f.completeLength)
	f.buf = append(f.buf[:0], f.held[:upTo]...)
	f.out = f.buf
	f.held = f.held[:copy(f.held, f.held[upTo:])]
	f.completeLength = 0
}

// take processes the first part of b, which is not empty, and returns the
// length of that part.
func (f *frames) take(b []byte) int {
	n := 1
	if f.remaining == 0 {
		f.head = append(f.head, b[0])
	} else {
		n = int(min(f.remaining, uint64(len(b))))
	}
	f.held = append(f.held, b[:n]...)
	if f.remaining > 0 {
		f.remaining -= uint64(n)
		f.search(b[:n])
	} else if f.parseHeader() {
		f.search(nil)
	}
	return n
}

// parseHeader reports whether a frame's header is complete, and parses it. No extension was negotiated,
// and servers do not mask, so a frame that uses either cannot be searched.
func (f *frames) parseHeader() bool {
	h := f.head
	if h[0]&0x70 != 0 || len(h) > 1 && (h[1]&0x80 != 0 || h[0]&0x0f >= 8 && (h[1] > 125 || h[0]&0x80 == 0)) {
		f.err = io.ErrUnexpectedEOF
		return false
	}
	switch {
	case len(h) < 2:
		return false
	case h[1] < 126:
		f.remaining = uint64(h[1])
	case h[1] == 126:
		if len(h) < 4 {
			return false
		}
		f.remaining = uint64(binary.BigEndian.Uint16(h[2:]))
	default:
		if len(h) < 10 {
			return false
		}
		f.remaining = binary.BigEndian.Uint64(h[2:])
	}
	f.data, f.last = h[0]&0x0f < 8, h[0]&0x80 != 0
	f.head = h[:0]
	return true
}

// search searches the next part of a payload.
func (f *frames) search(b []byte) {
	s := f.control
	if f.data {
		s, f.open = f.message, true
	}
	ends := f.last && f.remaining == 0
	s.push(b, ends)
	if len(s.hits) > 0 {
		f.err = brig.Errorf(brig.Unavailable, "a message has the value of a secret")
		return
	}
	if !ends {
		return
	}
	s.reset()
	if f.data {
		f.open = false
	}
	if !f.open {
		f.completeLength = len(f.held)
	}
}
