package egress

import (
	"bytes"
	"cmp"
	"slices"
)

// hit is a match of a pattern in a text.
type hit struct {
	from, to int64
	*pattern
}

// hitList contains the matches of a text in order. It omits matches that do not change the result:
// those within another match, and those whose neighbors overlap each other. At most two matches
// thus share a byte, which bounds the memory for a text that matches many values at each byte.
type hitList []hit

// maxHits limits the matches that wait to be replaced. A response with more matches is rejected,
// because no useful response contains that many values.
const maxHits = 1024

const whyManyHits = "it has the values of secrets too often"

// isFull reports whether there are more matches than the limit.
func (l hitList) isFull() bool { return len(l) >= maxHits }

// add adds a match, unless the list is full.
func (l hitList) add(h hit) hitList {
	if l.isFull() {
		return l
	}
	// i is the index of the first match that begins at h or later.
	i, _ := slices.BinarySearchFunc(l, h.from, func(o hit, from int64) int { return cmp.Compare(o.from, from) })
	if i > 0 && l[i-1].to >= h.to || i < len(l) && l[i].from == h.from && l[i].to >= h.to {
		return l // contained
	}
	end := i
	for end < len(l) && l[end].to <= h.to { // contained in h
		end++
	}
	overlap := func(a, b int) bool { return a >= 0 && b < len(l) && l[b].from < l[a].to }
	if end == i && overlap(i-1, i) {
		return l
	}
	l = slices.Replace(l, i, end, h)
	if overlap(i, i+2) {
		l = slices.Delete(l, i+1, i+2)
	}
	if overlap(i-2, i) {
		l = slices.Delete(l, i-1, i)
	}
	return l
}

// take appends the text up to a position to dst, with the matches replaced. It returns the end
// position, which is beyond the given position if a match extends beyond it. text begins at from.
func (c *scan) take(dst, text []byte, from, to int64) ([]byte, int64) {
	pos := from
	used := 0
	for _, h := range c.hits {
		if h.to > pos && max(h.from, pos) >= to {
			break
		}
		used++
		switch {
		case h.to <= pos: // contained in the previous match
			continue
		case h.from < pos: // its beginning was already replaced or released
			dst = append(dst, bytes.Repeat([]byte("x"), int(h.to-pos))...)
		case h.with == nil:
			dst = append(dst, text[pos-from:h.from-from]...)
			dst = append(dst, bytes.Repeat([]byte("x"), min(len(h.text), int(h.to-h.from)))...)
		default:
			dst = append(append(dst, text[pos-from:h.from-from]...), h.with...)
		}
		pos = h.to
	}
	c.hits = c.hits[:copy(c.hits, c.hits[used:])]
	if pos < to {
		dst = append(dst, text[pos-from:to-from]...)
		pos = to
	}
	return dst, pos
}

// replaceAll returns t with all matches replaced. c may have searched other
// texts before.
func (c *scan) replaceAll(t string) string {
	c.reset()
	c.push([]byte(t), true)
	switch {
	case len(c.hits) == 0:
		return t
	case c.hits.isFull():
		return string(bytes.Repeat([]byte("x"), len(t)))
	}
	out, _ := c.take(nil, []byte(t), 0, int64(len(t)))
	return string(out)
}

// matches reports whether t contains a match. c may have searched other texts
// before.
func (c *scan) matches(t string) bool {
	c.reset()
	c.push([]byte(t), true)
	return len(c.hits) > 0
}
