package egress

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reading says how much of b is a text, in one of the ways in which that may be
// written: 0 if it is something else, and then open if only more of b can tell.
// What it looks at it counts.
type reading func(b, text []byte, looked *int) (n int, open bool)

// escapes begin what stands for another character.
const escapes = `%\&=`

// escaped reads a text of which every character may be written as itself or
// escaped, as URLs, JSON, HTML, mail and most languages do it.
func escaped(b, text []byte, looked *int) (n int, open bool) {
	for len(text) > 0 {
		*looked++
		r, size := utf8.DecodeRune(text)
		k, more := character(b[n:], r, text[:size])
		if k == 0 {
			return 0, more
		}
		n, text = n+k, text[size:]
	}
	return n, false
}

// character reads one, whose bytes are raw.
func character(b []byte, r rune, raw []byte) (n int, open bool) {
	if len(b) == 0 {
		return 0, true
	}
	switch {
	case bytes.HasPrefix(b, raw) && !strings.ContainsRune(escapes, r):
		return len(raw), false
	case b[0] == '+' && r == ' ':
		return 1, false
	case b[0] == '&':
		return entity(b, r)
	case b[0] == '\\' && len(b) > 1 && b[1] == 'u':
		return units(b, r)
	case b[0] == '\\' && len(b) > 1 && b[1] != 'x':
		return simple(b[1], r)
	}
	for _, c := range raw {
		k, more := octet(b[n:], c)
		if k == 0 {
			if n == 0 && !more && bytes.HasPrefix(b, raw) {
				return len(raw), false // what begins escapes stands for itself
			}
			return 0, more
		}
		n += k
	}
	return n, false
}

// octet reads a byte: as it is, or as %41, =41 or \x41.
func octet(b []byte, c byte) (n int, open bool) {
	if len(b) == 0 {
		return 0, true
	}
	head := 1
	switch b[0] {
	case '%', '=':
	case '\\':
		head = 2
	default:
		if b[0] == c {
			return 1, false
		}
		return 0, false
	}
	if len(b) < head+2 {
		return 0, true
	}
	if v, err := strconv.ParseUint(string(b[head:head+2]), 16, 8); err == nil && byte(v) == c && (head == 1 || b[1] == 'x') {
		return head + 2, false
	}
	return 0, false
}

// units reads a character as \u0041, or as two of those.
func units(b []byte, r rune) (n int, open bool) {
	for _, u := range utf16.Encode([]rune{r}) {
		if len(b) < n+6 {
			return 0, true
		}
		v, err := strconv.ParseUint(string(b[n+2:n+6]), 16, 16)
		if b[n] != '\\' || b[n+1] != 'u' || err != nil || uint16(v) != u {
			return 0, false
		}
		n += 6
	}
	return n, false
}

// simple reads a character after a backslash.
func simple(c byte, r rune) (n int, open bool) {
	if c == 't' && r == '\t' || rune(c) == r && !(c >= 'a' && c <= 'z') {
		return 2, false
	}
	return 0, false
}

// maxEntity is longer than any name or number of a character that can be in a
// value.
const maxEntity = 16

// entity reads a character as HTML has it: &amp; &#38; &#x26;.
func entity(b []byte, r rune) (n int, open bool) {
	end := 1
	for end < len(b) && end < maxEntity && (b[end] == '#' || b[end] >= '0' && b[end] <= '9' || b[end]|0x20 >= 'a' && b[end]|0x20 <= 'z') {
		end++
	}
	switch {
	case end == len(b):
		return 0, true
	case b[end] == ';' && html.UnescapeString(string(b[:end+1])) == string(r):
		return end + 1, false
	case r == '&':
		return 1, false
	}
	return 0, false
}

// minFold is how much of a text comes before a line break that is read as part
// of it: fewer characters are at the end of too many lines, which would wait
// for the next.
const minFold = 4

// folded reads a text in base64 that is broken into lines, and of which what is
// no letter or digit may be escaped.
func folded(b, text []byte, looked *int) (int, bool) {
	return skipping(b, text, "\r\n", minFold, looked)
}

// spaced reads digits that are in groups.
func spaced(b, text []byte, looked *int) (int, bool) {
	return skipping(b, text, "\r\n :-", 2, looked)
}

// maxSkip is how much there may be between two characters.
const maxSkip = 3

func skipping(b, text []byte, skip string, after int, looked *int) (n int, open bool) {
	for i, c := range text {
		*looked++
		for k := 0; i >= after && k < maxSkip && n < len(b) && b[n] != c && strings.IndexByte(skip, b[n]) >= 0; k++ {
			n++
		}
		k, more := 1, n == len(b)
		switch {
		case more || b[n] != c && c != '/' && c != '+':
			return 0, more
		case b[n] != c:
			if k, more = character(b[n:], rune(c), text[i:i+1]); k == 0 {
				return 0, more
			}
		}
		n += k
	}
	return n, false
}
