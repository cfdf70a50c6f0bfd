package httpapi

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Text converts bytes that arrive in pieces to text. It buffers an incomplete
// character until the rest of it arrives.
type Text struct{ rest []byte }

// Add returns the text that p completes.
func (t *Text) Add(p []byte) string {
	p = append(t.rest, p...)
	whole := len(p)
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= n
			}
			break
		}
	}
	t.rest = bytes.Clone(p[whole:])
	return strings.ToValidUTF8(string(p[:whole]), "\uFFFD")
}

// Flush returns the incomplete rest as text.
func (t *Text) Flush() string {
	s := strings.ToValidUTF8(string(t.rest), "\uFFFD")
	t.rest = nil
	return s
}
