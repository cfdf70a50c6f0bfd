package egress

import (
	"bytes"
	"io"
	"math"
	"slices"
)

// swap is a text and its replacement.
type swap struct {
	old, new []byte
	name     string // the secret's name
}

// matchPrefix returns the length of the match at the start of b. incomplete means that more
// text is needed to decide.
func (w *swap) matchPrefix(b []byte) (n int, incomplete bool) {
	for n < len(b) && n < len(w.old) && b[n] == w.old[n] {
		n++
	}
	if n == len(w.old) {
		return n, false
	}
	return 0, n == len(b)
}

// swaps replaces placeholders in the guest's requests. The guest knows the placeholders, so the
// time of the replacement may depend on them. Values are found by search instead.
//
// If several replacements are possible, the earliest match is replaced. Of matches that begin at
// the same position, the longest is replaced. So the result does not depend on how the text is
// split into pieces.
type swaps struct {
	byFirst [256][]swap // by first byte, longest first
	count   int
}

func newSwaps(list []swap) *swaps {
	s := &swaps{}
	for _, w := range list {
		if len(w.old) == 0 || bytes.Equal(w.old, w.new) {
			continue
		}
		b := &s.byFirst[w.old[0]]
		if slices.ContainsFunc(*b, func(x swap) bool { return bytes.Equal(x.old, w.old) }) {
			continue // the first of equal ones takes precedence
		}
		*b = append(*b, w)
		s.count++
	}
	for i := range s.byFirst {
		slices.SortStableFunc(s.byFirst[i], func(x, y swap) int { return len(y.old) - len(x.old) })
	}
	return s
}

// matchAt returns the swap that matches at the start of b, which is not empty.
// incomplete means that more text is needed to decide.
func (s *swaps) matchAt(b []byte, last bool) (w *swap, incomplete bool) {
	list := s.byFirst[b[0]]
	for i := range list {
		n, incomplete := list[i].matchPrefix(b)
		switch {
		case n > 0:
			return &list[i], false
		case incomplete && !last:
			return nil, true
		}
	}
	return nil, false
}

// scan appends b to dst with all placeholders replaced. It returns as rest the end of b that cannot
// be decided without more text; last means that no more text follows. When dst has reached the
// length maxLen, it is full, and rest is the text that was not scanned.
func (s *swaps) scan(dst, b []byte, last bool, maxLen int, found func(name string)) (out, rest []byte, full bool) {
	from := 0 // start of the text that is not in dst yet
	for i := 0; i < len(b); {
		if s.byFirst[b[i]] == nil {
			i++
			continue
		}
		w, incomplete := s.matchAt(b[i:], last)
		switch {
		case incomplete:
			return append(dst, b[from:i]...), b[i:], false
		case w == nil:
			i++
		default:
			dst = append(append(dst, b[from:i]...), w.new...)
			i += len(w.old)
			from = i
			if found != nil {
				found(w.name)
			}
			if len(dst) >= maxLen && i < len(b) {
				return dst, b[i:], true
			}
		}
	}
	return append(dst, b[from:]...), nil, false
}

// replaceAll returns t with all placeholders replaced.
func (s *swaps) replaceAll(t string, found func(name string)) string {
	out, _, _ := s.scan(nil, []byte(t), true, math.MaxInt, found)
	return string(out)
}

// growth returns by how many bytes t grows when all placeholders are replaced.
func (s *swaps) growth(t []byte, found func(name string)) (n int64) {
	for i := 0; i < len(t); {
		w, _ := s.matchAt(t[i:], true)
		if w == nil {
			i++
			continue
		}
		n += int64(len(w.new) - len(w.old))
		i += len(w.old)
		if found != nil {
			found(w.name)
		}
	}
	return n
}

// containsPlaceholder reports whether t contains a placeholder.
func (s *swaps) containsPlaceholder(t string) bool {
	seen := false
	s.growth([]byte(t), func(string) { seen = true })
	return seen
}

// swapReader reads src with all placeholders replaced. It holds back only bytes
// that may begin a placeholder, so that a stream keeps flowing.
type swapReader struct {
	*swaps
	src   io.Reader
	found func(name string)
	held  []byte // read, but not decided yet
	full  bool   // the rest waits until the output is read
	ended error  // the error with which src ended
	outputBuffer
}

// swapReadSize is how many bytes are read at a time, and the approximate size
// of each output: a value may be much longer than its placeholder.
const swapReadSize = 16 << 10

func (s *swaps) newReader(src io.Reader, found func(name string)) *swapReader {
	return &swapReader{swaps: s, src: src, found: found}
}

// Read implements io.Reader.
func (r *swapReader) Read(p []byte) (int, error) { return r.read(p, r.fill) }

// fill reads once, up to about want bytes, unless unprocessed input is left.
func (r *swapReader) fill(want int) {
	if !r.full && r.ended == nil {
		want = min(max(want, 512), swapReadSize)
		r.held = slices.Grow(r.held, want)
		n, err := r.src.Read(r.held[len(r.held) : len(r.held)+want])
		r.held = r.held[:len(r.held)+n]
		r.ended = err
	}
	if r.ended != nil && r.ended != io.EOF {
		r.err = r.ended // no more text follows
		return
	}
	var rest []byte
	r.buf, rest, r.full = r.scan(r.buf[:0], r.held, r.ended != nil, swapReadSize, r.found)
	r.out = r.buf
	r.held = r.held[:copy(r.held, rest)]
	if !r.full {
		r.err = r.ended
	}
}
