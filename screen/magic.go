package screen

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// breaks are the characters that end a line in IPython's cells, but not in the
// grammar.
const breaks = "\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// findCommands finds IPython commands, which the grammar does not cover. No command
// is a valid line of Python, so findCommands checks sources with a syntax error,
// and text after characters that end a line only in cells.
func (s *scan) findCommands() {
	if s.m.Commands || !s.broken && !bytes.ContainsAny(s.source, breaks) {
		return
	}
	inside := s.stringPositions()
	for pos := 0; pos < len(s.source); {
		end := pos
		for end < len(s.source) && s.source[end] != '\n' {
			r, n := utf8.DecodeRune(s.source[end:])
			if strings.ContainsRune(breaks, r) {
				break
			}
			end += n
		}
		after := pos > 0 && s.source[pos-1] != '\n' // the line follows a character that ends lines only in cells
		if (after || s.broken && !inside(pos)) && isCommand(string(s.source[pos:end])) {
			s.findAt(uint32(pos), CommandRule, "", "a command of IPython is denied")
		}
		_, n := utf8.DecodeRune(s.source[end:])
		pos = end + max(n, 1)
	}
}

// isCommand reports whether a line is a command of IPython or of pip.
func isCommand(line string) bool {
	line = strings.TrimLeft(line, " \t\f\v")
	if strings.HasPrefix(line, "%") || strings.HasPrefix(line, "!") || strings.HasPrefix(line, "pip ") || strings.HasPrefix(line, "pip3 ") {
		return true
	}
	remaining, right, ok := strings.Cut(line, "=")
	right = strings.TrimLeft(right, " \t")
	plain := !strings.ContainsFunc(remaining, func(r rune) bool {
		return r < utf8.RuneSelf && !isAlphanumeric(r) && !strings.ContainsRune("_., \t[]\"'", r)
	})
	return ok && plain && (strings.HasPrefix(right, "%") || strings.HasPrefix(right, "!"))
}

// stringPositions returns a function that reports whether a byte offset is inside a
// string. The function must be called with increasing positions.
func (s *scan) stringPositions() func(pos int) bool {
	var spans [][2]int
	for i := range s.nodes {
		if s.kind(int32(i)) == "string" {
			spans = append(spans, [2]int{int(s.nodes[i].start), int(s.nodes[i].end)})
		}
	}
	return func(pos int) bool {
		for len(spans) > 0 && spans[0][1] <= pos {
			spans = spans[1:]
		}
		return len(spans) > 0 && spans[0][0] < pos
	}
}
