package egress

import (
	"html"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// view is a way to decode a text. Each view maps the text of a server to a
// possible meaning, independently of any value, so the decoding reveals nothing
// about the values that the text is searched for.
type view int

// The views. A view that decodes only one kind of escape still finds values that contain text in
// another kind.
const (
	asWritten  view = iota
	percent         // %41, and + for a space
	quoted          // =41, as in quoted-printable mail
	backslash       // \x41, \u0041, \"
	entities        // &amp; &#38; &#x26;
	allEscapes      // all of these
	inBase64        // either alphabet; line folding is ignored, signs may be escaped
	inHex           // in lower case; separators between digits are ignored
	views
)

// reading defines how a view decodes each byte: the byte that it represents, or
// one of the marks below.
type reading struct {
	class [256]uint16
	plain bool // each byte represents itself
	// escape decodes a text that begins with an escape, and returns the length
	// and the meaning of the escape. Length 0 means that more text is needed to
	// decide.
	escape func(b []byte, last bool) (n int, decoded string)
}

const (
	dropped uint16 = 256 // represents nothing
	lead    uint16 = 512 // may begin an escape
)

// maxEscape is longer than any supported escape.
const maxEscape = 16

// viewTables are the readings of all views; the second set is in lower case.
var viewTables = [2][views]reading{newViewTables(false), newViewTables(true)}

func newViewTables(lower bool) (all [views]reading) {
	for v := range all {
		r := &all[v]
		for c := range r.class {
			r.class[c] = uint16(c)
			if (lower || view(v) == inHex) && c >= 'A' && c <= 'Z' {
				r.class[c] += 'a' - 'A'
			}
		}
	}
	mark := func(v view, what uint16, chars string) {
		for _, c := range []byte(chars) {
			all[v].class[c] = what
		}
	}
	mark(percent, ' ', "+")
	mark(allEscapes, ' ', "+")
	mark(inBase64, '+', "-")
	mark(inBase64, '/', "_")
	mark(inBase64, dropped, " \t\r\n")
	mark(inHex, dropped, " \t\r\n:-,")
	for v, leads := range map[view]string{percent: "%", quoted: "=", backslash: `\`, entities: "&", allEscapes: `%=\&`, inBase64: `%\&`} {
		mark(v, lead, leads)
		all[v].escape = decodeEscape
	}
	all[inBase64].escape = decodeSignEscape
	all[percent].escape, all[allEscapes].escape = decodeSpaceEscape, decodeSpaceEscape
	all[asWritten].plain = !lower
	return all
}

// activeBytes maps each byte to the set of escape views in which it may not
// represent itself.
var activeBytes = func() (of [256]uint8) {
	for c := range of {
		for v := percent; v <= allEscapes; v++ {
			if viewTables[0][v].class[c] != uint16(c) {
				of[c] |= 1 << v
			}
		}
	}
	return of
}()

// activeViews returns the set of escape views for which b may contain an
// escape.
func activeViews(b []byte) (of uint8) {
	for _, c := range b {
		of |= activeBytes[c]
	}
	return of
}

// decodeEscape decodes an escape according to its first character.
func decodeEscape(b []byte, last bool) (n int, decoded string) {
	switch b[0] {
	case '%':
		n, decoded = decodeDigits(b, 1, 2, last)
	case '=':
		if n, decoded = decodeLineBreak(b, last); n < 0 {
			n, decoded = decodeDigits(b, 1, 2, last)
		}
	case '\\':
		n, decoded = decodeBackslash(b, last)
	default:
		n, decoded = decodeEntity(b, last)
	}
	if n < 0 { // not an escape
		return 1, string(b[:1])
	}
	return n, decoded
}

// decodeSpaceEscape decodes escapes where a plus sign may be a space. It
// decodes every form of a plus sign as a space.
func decodeSpaceEscape(b []byte, last bool) (n int, decoded string) {
	n, decoded = decodeEscape(b, last)
	if decoded == "+" {
		decoded = " "
	}
	return n, decoded
}

// decodeSignEscape decodes escapes of the signs of base64, and of line breaks.
func decodeSignEscape(b []byte, last bool) (n int, decoded string) {
	n, decoded = decodeEscape(b, last)
	switch decoded {
	case "+", "-":
		return n, "+"
	case "/", "_":
		return n, "/"
	case "=":
		return n, "="
	case "\r", "\n", "\t", " ":
		return n, ""
	}
	return min(n, 1), string(b[:1])
}

// decodeDigits decodes count hexadecimal digits at an index. It returns -1 if there are fewer digits.
func decodeDigits(b []byte, from, count int, last bool) (n int, decoded string) {
	v, ok := parseHexAt(b, from, count)
	switch {
	case !ok:
		return -1, ""
	case len(b) < from+count && last:
		return -1, ""
	case len(b) < from+count:
		return 0, ""
	}
	return from + count, string([]byte{byte(v)})
}

// decodeLineBreak decodes a line break after b's first character, which marks a
// soft line break and has no meaning. It returns -1 if no line break follows.
func decodeLineBreak(b []byte, last bool) (n int, decoded string) {
	switch {
	case len(b) > 1 && b[1] == '\n':
		return 2, ""
	case len(b) > 2 && b[1] == '\r' && b[2] == '\n':
		return 3, ""
	case !last && (len(b) == 1 || len(b) == 2 && b[1] == '\r'):
		return 0, ""
	}
	return -1, ""
}

// parseHexAt returns the hexadecimal number at an index. It reports false if it
// finds another character, and true if b ends early.
func parseHexAt(b []byte, from, count int) (v uint16, ok bool) {
	for i := from; i < from+count && i < len(b); i++ {
		c := b[i]
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint16(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | uint16(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// decodeBackslash decodes \x41, \u0041 (or a surrogate pair of those), and a
// backslash before a literal character.
func decodeBackslash(b []byte, last bool) (n int, decoded string) {
	if len(b) < 2 {
		if last {
			return -1, ""
		}
		return 0, ""
	}
	if n, decoded = decodeLineBreak(b, last); n >= 0 {
		return n, decoded
	}
	switch c := b[1]; {
	case c == 'x':
		return decodeDigits(b, 2, 2, last)
	case c == 'u':
		return decodeUTF16(b, last)
	case c == 't':
		return 2, "\t"
	case c == 'n':
		return 2, "\n"
	case c == 'r':
		return 2, "\r"
	case c >= 'a' && c <= 'z' || c >= utf8.RuneSelf:
		return -1, ""
	default:
		return 2, string([]byte{c})
	}
}

func decodeUTF16(b []byte, last bool) (n int, decoded string) {
	high, ok := parseHexAt(b, 2, 4)
	switch {
	case !ok || len(b) < 6 && last:
		return -1, ""
	case len(b) < 6:
		return 0, ""
	case !utf16.IsSurrogate(rune(high)):
		return 6, string(rune(high))
	}
	for i, c := range []byte(`\u`) {
		if len(b) > 6+i && b[6+i] != c {
			return -1, ""
		}
	}
	low, ok := parseHexAt(b, 8, 4)
	r := utf16.DecodeRune(rune(high), rune(low))
	switch {
	case !ok || len(b) < 12 && last || len(b) >= 12 && r == utf8.RuneError:
		return -1, ""
	case len(b) < 12:
		return 0, ""
	}
	return 12, string(r)
}

// decodeEntity decodes an HTML character reference.
func decodeEntity(b []byte, last bool) (n int, decoded string) {
	end := 1
	for end < len(b) && end < maxEscape && (b[end] == '#' || b[end] >= '0' && b[end] <= '9' || b[end]|0x20 >= 'a' && b[end]|0x20 <= 'z') {
		end++
	}
	if end == len(b) && end < maxEscape && !last {
		return 0, ""
	}
	if end == len(b) || b[end] != ';' {
		return -1, ""
	}
	decoded = html.UnescapeString(string(b[:end+1]))
	if utf8.RuneCountInString(decoded) != 1 {
		return -1, ""
	}
	return end + 1, decoded
}

// read decodes a whole text in a view.
func (v view) read(text []byte, lower bool) (out []byte) {
	r := &viewTables[index(lower)][v]
	for i := 0; i < len(text); {
		switch c := r.class[text[i]]; {
		case c < dropped:
			out = append(out, byte(c))
			i++
		case c == dropped:
			i++
		default:
			n, decoded := r.escape(text[i:], true)
			if lower {
				decoded = strings.ToLower(decoded)
			}
			out = append(out, decoded...)
			i += n
		}
	}
	return out
}

// plainForm returns a text as a view decodes it if the text contains no escapes.
func (v view) plainForm(text []byte, lower bool) []byte {
	r := &viewTables[index(lower)][v]
	out := make([]byte, 0, len(text))
	for _, b := range text {
		c := r.class[b]
		if c >= dropped {
			c = uint16(b)
		}
		out = append(out, byte(c))
	}
	return out
}

func index(lower bool) int {
	if lower {
		return 1
	}
	return 0
}
