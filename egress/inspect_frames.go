package egress

import (
	"encoding/binary"
	"io"
)

// maxHeld bounds what is held back of a connection, however many frames are
// within one value.
const maxHeld = 256 << 10

// frames reads WebSocket's frames as they come from a host, until one is wrong
// or a message has something that is looked for, in one frame or divided among
// several. What may be its beginning is held back until more is known.
type frames struct {
	src io.Reader
	s   *swaps

	head []byte // of a frame, as far as it is known
	left uint64 // of the frame's payload
	data bool   // the frame is part of a message
	last bool   // the last

	message []byte // its end, of which only more tells what it is
	held    []byte // as it came, since that began
	out     []byte // to be given out
	in, buf []byte
	err     error
	spent   effort
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.fill()
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// fill reads once, and looks at what came.
func (f *frames) fill() {
	if f.in == nil {
		f.in = make([]byte, 16<<10)
	}
	n, err := f.src.Read(f.in)
	for b := f.in[:n]; len(b) > 0 && f.err == nil; {
		b = b[f.take(b):]
	}
	switch {
	case f.err != nil:
		f.held = nil
		return
	case err == io.EOF || len(f.message) == 0:
		f.out, f.held = append(f.out[:0], f.held...), f.held[:0]
	case len(f.held) > maxHeld:
		err = io.ErrUnexpectedEOF
	}
	f.err = err
}

// take goes on by a part of b, which is not empty, and says how long that is.
func (f *frames) take(b []byte) int {
	n := 1
	if f.left == 0 {
		f.head = append(f.head, b[0])
	} else {
		n = int(min(f.left, uint64(len(b))))
	}
	f.held = append(f.held, b[:n]...)
	if f.left > 0 {
		f.left -= uint64(n)
		f.search(b[:n])
	} else if f.begun() && f.left == 0 {
		f.search(nil)
	}
	return n
}

// begun reports whether a frame's head is whole. No extension was agreed on,
// and servers do not mask: what says otherwise cannot be searched.
func (f *frames) begun() bool {
	h := f.head
	if h[0]&0x70 != 0 || len(h) > 1 && h[1]&0x80 != 0 {
		f.err = io.ErrUnexpectedEOF
		return false
	}
	switch {
	case len(h) < 2:
		return false
	case h[1] < 126:
		f.left = uint64(h[1])
	case h[1] == 126:
		if len(h) < 4 {
			return false
		}
		f.left = uint64(binary.BigEndian.Uint16(h[2:]))
	default:
		if len(h) < 10 {
			return false
		}
		f.left = binary.BigEndian.Uint64(h[2:])
	}
	f.data, f.last = h[0]&0x0f < 8, h[0]&0x80 != 0
	f.head = h[:0]
	return true
}

// search looks at the next part of a payload.
func (f *frames) search(b []byte) {
	if !f.data {
		return
	}
	var rest []byte
	f.message = append(f.message, b...)
	f.spent.most += len(b) * f.s.perByte
	f.buf, rest = f.s.scan(f.buf[:0], f.message, f.last && f.left == 0, &f.spent, func(string) { f.err = io.ErrUnexpectedEOF })
	if f.spent.over() {
		f.err = errEffort
	}
	f.message = f.message[:copy(f.message, rest)]
}
