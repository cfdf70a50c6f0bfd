package wire

// HeadTail keeps the first and the last bytes of a stream of any length in
// limited memory, and counts all bytes. Each end gets half of the limit. The
// zero value only counts. It is not safe for concurrent use.
type HeadTail struct {
	limit int
	head  []byte
	ring  []byte // the tail, a ring once it is full
	at    int    // the position of the next byte in a full ring
	total int64
}

// NewHeadTail returns a HeadTail that keeps limit bytes.
func NewHeadTail(limit int) *HeadTail { return &HeadTail{limit: max(limit, 0)} }

// Write implements io.Writer; it never fails.
func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	headMax := h.limit - h.limit/2
	if room := headMax - len(h.head); room > 0 {
		k := min(room, len(p))
		h.head = append(h.head, p[:k]...)
		p = p[k:]
	}
	tailMax := h.limit / 2
	if len(p) > tailMax {
		p = p[len(p)-tailMax:]
	}
	if room := tailMax - len(h.ring); room > 0 {
		k := min(room, len(p))
		h.ring = append(h.ring, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(h.ring[h.at:], p)
		h.at = (h.at + k) % len(h.ring)
		p = p[k:]
	}
	return n, nil
}

// Output returns copies of the retained bytes.
func (h *HeadTail) Output() Output {
	tail := make([]byte, 0, len(h.ring))
	tail = append(tail, h.ring[h.at:]...)
	tail = append(tail, h.ring[:h.at]...)
	head := append(make([]byte, 0, len(h.head)), h.head...)
	return Output{Head: head, Tail: tail, Total: h.total}
}
