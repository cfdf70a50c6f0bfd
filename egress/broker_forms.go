package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
)

// scrubber takes values out of what comes back. It knows them as they are and
// as servers commonly write them. It cannot know every way: a host that
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
		lower[i] = swap{old: bytes.ToLower(w.old)}
	}
	return &scrubber{values: newSwaps(list), names: newSwaps(lower)}
}

// forms returns the forms of one value, each with that of the placeholder.
func forms(g grant) []swap {
	var list []swap
	text := func(write func(string) string) {
		list = append(list, swap{old: []byte(write(string(g.value))), new: []byte(write(g.Placeholder)), name: g.Name})
	}
	text(func(s string) string { return s })
	for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		text(func(s string) string { return coding.EncodeToString([]byte(s)) })
		for _, core := range cores(coding, g.value) {
			list = append(list, swap{old: core, new: bytes.Repeat([]byte("x"), len(core)), name: g.Name})
		}
	}
	text(func(s string) string { return string(inJSON([]byte(s))) })
	text(func(s string) string { // with what is special in HTML escaped
		b, err := json.Marshal(s)
		if err != nil {
			return s
		}
		return string(b[1 : len(b)-1])
	})
	text(url.QueryEscape)
	text(url.PathEscape)
	text(func(s string) string { return lowerEscapes(url.QueryEscape(s)) })
	text(func(s string) string { return lowerEscapes(url.PathEscape(s)) })
	text(html.EscapeString)
	text(func(s string) string { return hex.EncodeToString([]byte(s)) })
	text(func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) })
	return list
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

// lowerEscapes writes the digits of percent escapes in lower case.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}
