package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
)

// scrubber takes values out of what comes back. It knows them as they are and
// as servers commonly write them (see reading). It cannot know every way: a host that
// encrypts, compresses or reverses what it was sent, and sends it back, gives
// it away. Only hosts that are trusted with a value get it.
type scrubber struct {
	key    string // what it was made of
	values *swaps
	names  *swaps // in lower case: names of fields lose theirs on the way
}

// scrubber returns the scrubber of a request: mostly that of the one before.
func (n *inspection) scrubber(grants []grant, pairs []swap) *scrubber {
	var key strings.Builder
	for _, g := range grants {
		fmt.Fprintf(&key, "%q %q\n", g.Placeholder, g.value)
	}
	for _, p := range pairs {
		fmt.Fprintf(&key, "%q %q\n", p.old, p.new)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.scrub == nil || n.scrub.key != key.String() {
		n.scrub = newScrubber(grants, pairs)
		n.scrub.key = key.String()
	}
	return n.scrub
}

func newScrubber(grants []grant, pairs []swap) *scrubber {
	list := pairs
	for _, g := range grants {
		list = append(list, forms(g)...)
	}
	lower := make([]swap, len(list))
	for i, w := range list {
		lower[i] = swap{old: bytes.ToLower(w.old), read: w.read, marks: w.marks}
	}
	return &scrubber{values: newSwaps(list), names: newSwaps(lower)}
}

// forms returns the forms of one value, each with that of the placeholder.
func forms(g grant) []swap {
	list := []swap{
		{old: g.value, new: []byte(g.Placeholder), name: g.Name},
		{old: g.value, new: []byte(g.Placeholder), name: g.Name, read: escaped, marks: escapes},
	}
	for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := []byte(coding.EncodeToString(g.value))
		list = append(list, swap{old: whole, new: []byte(coding.EncodeToString([]byte(g.Placeholder))), name: g.Name, read: folded, marks: marks(whole)})
		for _, core := range cores(coding, g.value) {
			list = append(list, masked(g, core, folded), masked(g, core[minFold:], folded))
		}
	}
	lower := []byte(hex.EncodeToString(g.value))
	for _, digits := range [][]byte{lower, bytes.ToUpper(lower)} {
		list = append(list, swap{old: digits, new: []byte(hex.EncodeToString([]byte(g.Placeholder))), name: g.Name, read: spaced}, masked(g, digits[minFold:], spaced))
	}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		list = append(list, swap{old: wide(order, g.value), new: wide(order, []byte(g.Placeholder)), name: g.Name})
	}
	return list
}

// masked takes a part of a form out: of what is within a longer text, and what
// follows a line break that has hidden the beginning.
func masked(g grant, text []byte, read reading) swap {
	return swap{old: text, new: bytes.Repeat([]byte("x"), len(text)), name: g.Name, read: read, marks: marks(text)}
}

// marks are those with which a text in base64 or hex can begin.
func marks(text []byte) string {
	if text[0] == '/' || text[0] == '+' {
		return escapes
	}
	return ""
}

// wide writes a text in UTF-16.
func wide(order binary.AppendByteOrder, text []byte) (out []byte) {
	for _, u := range utf16.Encode([]rune(string(text))) {
		out = order.AppendUint16(out, u)
	}
	return out
}

// minCore is the length from which a text within a longer one in base64 is
// taken for a value's, and not for chance.
const minCore = 10

// cores returns what is in base64 of every text that has the value in it, at
// each of the three offsets: without the characters at either end that hold
// bits of what surrounds it.
func cores(coding *base64.Encoding, value []byte) (out [][]byte) {
	for offset, skip := range []int{0, 2, 3} {
		coded := coding.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, offset), value...))
		end := (offset + len(value)) * 8 / 6
		if end-skip >= minCore {
			out = append(out, []byte(coded[skip:end]))
		}
	}
	return out
}
