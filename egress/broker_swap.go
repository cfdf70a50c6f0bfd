package egress

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// swap is one text and what stands in its place.
type swap struct {
	old, new []byte
	name     string  // of the secret that it is about
	read     reading // how old may be written; nil: as it is
	marks    string  // with which it can begin besides old's first byte
}

// firsts returns the bytes with which what the swap looks for can begin.
func (w *swap) firsts() []byte {
	return append([]byte(strings.ReplaceAll(w.marks, string(w.old[:1]), "")), w.old[0])
}

// begin reports how much of b is what the swap looks for. open says that only
// more of the text can tell.
func (w *swap) begin(b []byte, e *effort) (n int, open bool) {
	if w.read != nil {
		return w.read(b, w.old, &e.looked)
	}
	for n < len(b) && n < len(w.old) && b[n] == w.old[n] {
		n++
	}
	e.looked += n + 1
	if n == len(w.old) {
		return n, false
	}
	return 0, n == len(b)
}

// effort is what the search of a text may take. Values are their owners' to
// choose, and answers their hosts': with a value that is all one letter, and an
// answer of it, each letter would be compared with all of the value.
type effort struct{ looked, most int }

// What may be looked at of a text: ordinary ones take a few for each byte, and a
// few for each value that begins with it.
const (
	effortAtAll   = 8 << 20
	effortPerByte = 64
)

func (e *effort) over() bool { return e.looked > effortAtAll+e.most }

var errEffort = errors.New("it takes too much to search it for secrets")

// swaps replaces texts in what passes by. Where several could be replaced, the
// first is, and of those that begin at one place the longest; so the outcome
// does not depend on the pieces in which the text arrives.
type swaps struct {
	by      [256][]swap // by the first byte, the longest first
	count   int
	perByte int // of effort
}

func newSwaps(list []swap) *swaps {
	s := &swaps{}
	for _, w := range list {
		if len(w.old) == 0 || bytes.Equal(w.old, w.new) {
			continue
		}
		for _, first := range w.firsts() {
			b := &s.by[first]
			if slices.ContainsFunc(*b, func(x swap) bool { return bytes.Equal(x.old, w.old) && (x.read == nil) == (w.read == nil) }) {
				continue // the first that is given counts
			}
			*b = append(*b, w)
		}
		s.count++
	}
	for i := range s.by {
		s.perByte = max(s.perByte, effortPerByte+4*len(s.by[i]))
		slices.SortStableFunc(s.by[i], func(x, y swap) int { return len(y.old) - len(x.old) })
	}
	return s
}

// nothing follows the end of a text: no escape goes on with it.
var nothing [maxEntity]byte

// at returns what is to be replaced at the start of b, which is not empty, and
// how much of b it is. open says that only more of the text can tell.
func (s *swaps) at(b []byte, last bool, e *effort) (w *swap, n int, open bool) {
	list := s.by[b[0]]
	for i := range list {
		n, open := list[i].begin(b, e)
		if open && last {
			e.looked += len(b) // which is copied
			if n, _ = list[i].begin(append(slices.Clip(b), nothing[:]...), e); n > len(b) {
				n = 0
			}
		}
		switch {
		case n > 0:
			return &list[i], n, false
		case open && !last:
			return nil, 0, true
		}
	}
	return nil, 0, false
}

// scan appends b to dst with everything replaced. It returns as rest the end
// of b of which only what follows can tell what it is; there is none when b is
// the last of the text. It goes no further when the effort is over.
func (s *swaps) scan(dst, b []byte, last bool, e *effort, found func(name string)) (out, rest []byte) {
	from := 0 // what is before it is in dst
	for i := 0; i < len(b); {
		if s.by[b[i]] == nil {
			i++
			continue
		}
		w, n, open := s.at(b[i:], last, e)
		switch {
		case e.over():
			return append(dst, b[from:i]...), nil
		case open:
			return append(dst, b[from:i]...), b[i:]
		case w == nil:
			i++
		default:
			dst = append(append(dst, b[from:i]...), w.new...)
			i += n
			from = i
			if found != nil {
				found(w.name)
			}
		}
	}
	return append(dst, b[from:]...), nil
}

// text returns t with everything replaced, and nothing of it if that takes too
// much.
func (s *swaps) text(t string, found func(name string)) string {
	return s.within(&effort{}, t, found)
}

// within is text for who searches several.
func (s *swaps) within(e *effort, t string, found func(name string)) string {
	e.most += len(t) * s.perByte
	out, _ := s.scan(nil, []byte(t), true, e, found)
	if e.over() {
		return ""
	}
	return string(out)
}

// in reports whether there is anything to replace in t.
func (s *swaps) in(t string) bool {
	seen := false
	s.text(t, func(string) { seen = true })
	return seen
}

// swapReader reads src with everything replaced. It holds back no more than
// what may be the beginning of something to be replaced, so that a stream
// keeps flowing.
type swapReader struct {
	*swaps
	src   io.Reader
	found func(name string)
	held  []byte // read, and not yet told what it is
	out   []byte // to be given out
	buf   []byte // what out is part of
	err   error
	spent effort
}

func (s *swaps) reader(src io.Reader, found func(name string)) *swapReader {
	return &swapReader{swaps: s, src: src, found: found}
}

func (r *swapReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		r.fill(len(p))
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// fill reads once, about as much as is wanted.
func (r *swapReader) fill(want int) {
	want = min(max(want, 512), 32<<10)
	r.held = slices.Grow(r.held, want)
	n, err := r.src.Read(r.held[len(r.held) : len(r.held)+want])
	r.held = r.held[:len(r.held)+n]
	r.err = err
	if err != nil && err != io.EOF {
		return // what is held may be the beginning of a value; it ends here
	}
	var rest []byte
	r.spent.most += n * r.perByte
	r.buf, rest = r.scan(r.buf[:0], r.held, err != nil, &r.spent, r.found)
	if r.spent.over() {
		r.err = errEffort
		return
	}
	r.out = r.buf
	r.held = r.held[:copy(r.held, rest)]
}
