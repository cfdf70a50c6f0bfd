package egress

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// pattern is one form of a value in one view, with its replacement.
type pattern struct {
	view view
	text []byte
	with []byte // nil: an x for each byte of text
	name string // the secret's name
}

// search finds patterns. Its time depends on the length of the text and the
// positions of its escapes, but not on how closely the text matches a pattern.
// The same holds for every other effect that can be observed from outside. Each
// window of the text that has a pattern's length is hashed with a random secret
// key, and only a window that equals a pattern has the same hash. See ADR 37.
type search struct {
	ignoreCase bool
	key        uint64
	groups     [views][]*group
	list       []pattern

	longest   [views]int // pattern length
	maxLength int

	seen func(piece []byte) // receives each text; in a test's control, it is slow for some
}

// group contains all patterns of one view that have the same length.
type group struct {
	length int
	power  uint64 // key to the power of length
	// slots holds each hash in a separate slot, chosen by slotOf, so that one comparison of all 64
	// bits decides. A filter with false positives would take longer for some texts, which would
	// reveal bits of a value's hash to a guest.
	slots    []uint64
	salt     uint64
	shift    uint8
	patterns map[uint64]int // hash to index of the pattern
	index    []int32        // the index of the pattern by slot
}

// slotOf returns the index of a hash's slot.
func (g *group) slotOf(h uint64) uint64 { return h * g.salt >> (g.shift & 63) }

// insert stores a hash in its slot. If the slot is taken, insert assigns new
// slots to all hashes.
func (g *group) insert(h uint64) {
	if i := g.slotOf(h); g.slots[i] == 0 {
		g.slots[i] = h
		return
	}
	hashes := append(slices.Collect(maps.Keys(g.patterns)), h)
	for tries := 1; ; tries++ {
		if tries%16 == 0 || len(g.slots) < 2*len(hashes) {
			g.slots = make([]uint64, 2*len(g.slots))
			g.shift--
		}
		g.salt = randomOdd()
		clear(g.slots)
		if !slices.ContainsFunc(hashes, func(h uint64) bool {
			slot := &g.slots[g.slotOf(h)]
			collides := *slot != 0 && *slot != h
			*slot = h
			return collides
		}) {
			return
		}
	}
}

// randomOdd returns a random odd number that is not 1.
func randomOdd() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:]) | 5
}

// maxSpan is the maximum length of a value as a server may write it: escaped,
// folded or grouped. It is independent of the actual values, because the number
// of bytes held back is derived from it.
const maxSpan = 64 << 10

// newSearch compiles patterns. Of equal patterns, the first takes precedence.
func newSearch(list []pattern, lower bool) *search {
	s := &search{ignoreCase: lower, key: randomOdd()}
	s.add(list)
	return s
}

// withPatterns returns a search for additional patterns that shares the existing patterns.
func (s *search) withPatterns(list []pattern) *search {
	c := *s
	c.list = slices.Clone(s.list)
	for v := range c.groups {
		c.groups[v] = slices.Clone(c.groups[v])
	}
	for _, p := range list {
		for i, g := range c.groups[p.view] {
			if g.length == len(p.text) {
				clone := *g
				clone.patterns, clone.slots = maps.Clone(g.patterns), slices.Clone(g.slots) // add makes another index
				c.groups[p.view][i] = &clone
			}
		}
	}
	c.add(list)
	return &c
}

func (s *search) add(list []pattern) {
	for _, p := range list {
		if s.ignoreCase {
			p.text = bytes.ToLower(p.text)
		}
		if len(p.text) == 0 || len(p.text) > maxSpan {
			continue
		}
		g := s.findOrAddGroup(p.view, len(p.text))
		h := s.hash(p.text)
		if _, ok := g.patterns[h]; ok {
			continue
		}
		g.insert(h)
		g.patterns[h] = len(s.list)
		g.index = nil
		s.list = append(s.list, p)
	}
	for _, groups := range s.groups {
		for _, g := range groups {
			if g.index != nil {
				continue
			}
			g.index = make([]int32, len(g.slots))
			for h, k := range g.patterns {
				g.index[g.slotOf(h)] = int32(k)
			}
		}
	}
}

func (s *search) findOrAddGroup(v view, length int) *group {
	for _, g := range s.groups[v] {
		if g.length == length {
			return g
		}
	}
	g := &group{length: length, power: 1, patterns: map[uint64]int{}, slots: make([]uint64, 2), salt: randomOdd(), shift: 63}
	for range length {
		g.power *= s.key
	}
	s.groups[v] = append(s.groups[v], g)
	s.longest[v] = max(s.longest[v], length)
	s.maxLength = max(s.maxLength, length)
	return g
}

func (s *search) hash(text []byte) (h uint64) {
	for _, c := range text {
		h = h*s.key + uint64(c) + 1
	}
	return h
}

// scan is a search of one text, which arrives in pieces.
type scan struct {
	*search
	end           int64  // offset of the end of the text so far
	tail          []byte // the end of the text, which some views have not read yet
	view          [views]viewState
	matchEnds     []int64 // for each pattern: the end of its last match
	viewMatchEnds []int64 // the same in bytes of its view
	hits          hitList // matches that were not taken yet

	comparisons int // number of windows that needed an exact comparison
}

// viewState is the state of one view: the part of the text that it has decoded.
type viewState struct {
	read   int64  // the offset that was reached
	text   []byte // the end of the decoded text
	begins int64  // bytes of the decoded text before text
	jumps  []jump
	hash   []uint64

	// After enough bytes without an escape, a view equals the raw text and is no longer updated.
	// The view is then behind until the next escape appears.
	sinceEscape int
	behind      bool
}

// jump is a byte of a view that follows a gap in the source, or whose previous byte was decoded
// from several source bytes.
type jump struct {
	byte   int64
	begins int64
	ended  int64 // where the source of the previous byte ended
}

func (s *search) newScan() *scan {
	c := &scan{search: s, matchEnds: make([]int64, len(s.list)), viewMatchEnds: make([]int64, len(s.list))}
	for v, groups := range s.groups {
		c.view[v].hash = make([]uint64, len(groups))
	}
	c.reset()
	return c
}

// reset prepares for another text.
func (c *scan) reset() {
	c.end, c.tail, c.hits = 0, c.tail[:0], c.hits[:0]
	clear(c.matchEnds)
	clear(c.viewMatchEnds)
	for v := range c.view {
		d := &c.view[v]
		*d = viewState{text: d.text[:0], jumps: append(d.jumps[:0], jump{}), hash: d.hash}
		clear(d.hash)
	}
}

// step limits the bytes that are read at a time in each view, and so the memory
// of a scan.
const step = 512

// push reads a piece of the text. last means that no escape continues after it.
func (c *scan) push(b []byte, last bool) {
	if c.seen != nil {
		c.seen(b)
	}
	for more := true; more; {
		n := min(len(b), step)
		fresh := b[:n]
		b = b[n:]
		more = len(b) > 0
		active := activeViews(fresh)
		c.tail = append(c.tail, fresh...)
		c.end += int64(n)
		least := c.end
		for v := range c.view {
			if len(c.groups[v]) > 0 || view(v) == asWritten {
				c.read(view(v), n, active>>v&1 != 0, last && !more)
				least = min(least, c.view[v].read)
			}
		}
		c.tail = c.tail[:copy(c.tail, c.tail[len(c.tail)-int(c.end-least):])]
	}
}

// read decodes the text in a view and searches it. The last n bytes of the text
// are new. active means that they may contain an escape.
func (c *scan) read(v view, n int, active, last bool) {
	d := &c.view[v]
	keep := c.longest[v]
	if v == asWritten {
		keep = c.maxLength + step // views that are behind catch up from it
	}
	if mayBeBehind := v >= percent && v <= allEscapes; mayBeBehind {
		switch pending := d.read != c.end-int64(n); {
		case active || pending:
			if d.behind {
				c.catchUp(v, n)
			}
			d.sinceEscape = 0
		case d.sinceEscape >= keep:
			d.behind, d.read = true, c.end
			return
		default:
			d.sinceEscape += n
		}
	}
	old := len(d.text)
	d.append(&viewTables[index(c.ignoreCase)][v], c.tail[len(c.tail)-int(c.end-d.read):], c.ignoreCase, last)
	for i, g := range c.groups[v] {
		c.inspect(d, g, &d.hash[i], old)
	}
	if k := len(d.text) - keep; k > 0 {
		d.text = d.text[:copy(d.text, d.text[k:])]
		d.begins += int64(k)
		if k = d.findJump(d.begins); k > 0 {
			d.jumps = d.jumps[:copy(d.jumps, d.jumps[k:])]
		}
	}
}

// catchUp rebuilds the state of a view from the raw text that precedes the last n
// bytes.
func (c *scan) catchUp(v view, n int) {
	d, raw := &c.view[v], c.view[asWritten].text
	raw = raw[:len(raw)-n]
	raw = raw[max(0, len(raw)-c.longest[v]):]
	d.behind, d.read = false, c.end-int64(n)
	d.begins += int64(len(d.text)) // so that positions in the view only grow
	d.text = append(d.text[:0], raw...)
	d.jumps = append(d.jumps[:0], jump{byte: d.begins, begins: d.read - int64(len(raw)), ended: d.read - int64(len(raw))})
	for i, g := range c.groups[v] {
		d.hash[i] = c.search.hash(raw[max(0, len(raw)-g.length):])
	}
}

// append decodes b, which begins at offset d.read.
func (d *viewState) append(r *reading, b []byte, lower, last bool) {
	if r.plain {
		d.text = append(d.text, b...)
		d.read += int64(len(b))
		return
	}
	for i := 0; i < len(b); {
		j, to := i, len(d.text)
		d.text = slices.Grow(d.text, len(b)-i)
		text := d.text[to : to+len(b)-i]
		for ; j < len(b); j++ {
			k := r.class[b[j]]
			if k >= dropped {
				break
			}
			text[j-i] = byte(k)
		}
		d.text = d.text[:to+j-i]
		d.read += int64(j - i)
		if i = j; i == len(b) {
			return
		}
		n, decoded := 1, ""
		if r.class[b[i]] == lead {
			if n, decoded = r.escape(b[i:], last); n == 0 {
				return // the rest waits for more text
			}
			if lower {
				decoded = strings.ToLower(decoded)
			}
		}
		ended := d.read
		d.read += int64(n)
		i += n
		for k := range len(decoded) {
			d.recordJump(d.read-int64(n), ended)
			d.text = append(d.text, decoded[k])
			ended = d.read
		}
		d.recordJump(d.read, ended)
	}
}

// recordJump records where the next byte begins, and where the previous byte ended.
func (d *viewState) recordJump(begins, ended int64) {
	next := d.begins + int64(len(d.text))
	if last := &d.jumps[len(d.jumps)-1]; last.byte == next {
		last.begins = begins // the text between has no meaning
		return
	}
	d.jumps = append(d.jumps, jump{next, begins, ended})
}

// findJump returns the index of the last jump at or before a byte.
func (d *viewState) findJump(of int64) int {
	i, ok := slices.BinarySearchFunc(d.jumps, of, func(j jump, of int64) int { return cmp.Compare(j.byte, of) })
	if !ok {
		i--
	}
	return i
}

// span returns the range of the text from which the bytes between two indexes
// of the view were decoded.
func (d *viewState) span(from, to int) (begins, ended int64) {
	first, next := d.begins+int64(from), d.begins+int64(to)
	j := d.jumps[d.findJump(first)]
	begins = j.begins + first - j.byte
	j = d.jumps[d.findJump(next)]
	if j.byte == next {
		return begins, j.ended
	}
	return begins, j.begins + next - j.byte
}

// inspect searches the new part of a view for the patterns of a group.
func (c *scan) inspect(d *viewState, g *group, hash *uint64, old int) {
	h, key := *hash, c.key
	slots, salt, shift := g.slots, g.salt, g.shift&63
	text := d.text
	i := old
	for ; i < len(text) && i < g.length; i++ {
		h = h*key + uint64(text[i]) + 1
		if slots[h*salt>>shift] == h {
			c.compare(d, g, h, i)
		}
	}
	if i < len(text) {
		in := text[i:]
		gone := text[i-g.length:][:len(in)]
		for j := range in {
			h = h*key + (uint64(in[j]) + 1 - (uint64(gone[j])+1)*g.power)
			if slots[h*salt>>shift] == h {
				c.compare(d, g, h, i+j)
			}
		}
	}
	*hash = h
}

// compare checks whether the window that ends with byte i is a pattern.
func (c *scan) compare(d *viewState, g *group, h uint64, i int) {
	c.comparisons++
	if i+1 < g.length {
		return
	}
	// A text may match at each byte, so omit overlapping matches before any further work.
	k := g.index[g.slotOf(h)]
	first := d.begins + int64(i+1-g.length)
	if first < c.viewMatchEnds[k] {
		return
	}
	p := &c.list[k]
	from, to := d.span(i+1-g.length, i+1)
	if from < c.matchEnds[k] || to-from > maxSpan || !bytes.Equal(d.text[i+1-g.length:i+1], p.text) {
		return
	}
	c.matchEnds[k], c.viewMatchEnds[k] = to, first+int64(g.length)
	c.hits = c.hits.add(hit{from, to, p})
}
