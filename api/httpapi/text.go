package httpapi

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Text converts bytes that arrive in pieces to text. It buffers an incomplete
// character until the rest of it arrives.
type Text struct{ rest []byte }

// Add appends p, and returns the text that is complete now.
func (t *Text) Add(p []byte) string {
	p = append(t.rest, p...)
	whole := len(p) - IncompleteBytes(p)
	t.rest = bytes.Clone(p[whole:])
	return strings.ToValidUTF8(string(p[:whole]), "\uFFFD")
}

// IncompleteBytes returns how many bytes at the end of data belong to an
// incomplete character.
func IncompleteBytes(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Flush returns the incomplete rest as text.
func (t *Text) Flush() string {
	s := strings.ToValidUTF8(string(t.rest), "\uFFFD")
	t.rest = nil
	return s
}
