package interpreter

import "strings"

// lineMapping records that the output originates from a source line, starting at a column. Both
// are 0-based, and columns count UTF-16 code units.
type lineMapping struct{ column, line int }

// parseMappings parses the mappings of a source map, line by line of the output. It
// stops at the first invalid segment.
func parseMappings(mappings string) [][]lineMapping {
	var lines [][]lineMapping
	source := 0
	for line := range strings.SplitSeq(mappings, ";") {
		var marks []lineMapping
		column := 0
		for segment := range strings.SplitSeq(line, ",") {
			fields, ok := decodeNumbers(segment)
			if !ok {
				return lines
			}
			if len(fields) > 0 {
				column += fields[0]
			}
			if len(fields) >= 4 {
				source += fields[2]
				marks = append(marks, lineMapping{column, source})
			}
		}
		lines = append(lines, marks)
	}
	return lines
}

// decodeNumbers decodes the Base64 VLQ numbers of a segment.
func decodeNumbers(segment string) (out []int, ok bool) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	n, shift := 0, 0
	for i := range len(segment) {
		d := strings.IndexByte(digits, segment[i])
		if d < 0 || shift > 30 {
			return nil, false
		}
		n |= d & 31 << shift
		shift += 5
		if d&32 != 0 {
			continue
		}
		if n&1 != 0 {
			out = append(out, -(n >> 1))
		} else {
			out = append(out, n>>1)
		}
		n, shift = 0, 0
	}
	return out, shift == 0
}

// alignLines breaks and joins the lines of a compiler's output so that each piece
// is on its source line, as far as JavaScript allows. The output ends each
// statement with a semicolon, so most line breaks are only white space.
func alignLines(js, mappings string) string {
	out := make([]byte, 0, len(js)+len(js)/8)
	marks := parseMappings(mappings)
	fixed := fixedLineBreaks(js)
	sourceLine := 0 // the source line that out has reached
	end := -1       // the end of the previous line
	for line := range strings.SplitSeq(js, "\n") {
		var here []lineMapping
		if len(marks) > 0 {
			here, marks = marks[0], marks[1:]
		}
		from := 0 // the start of the part that has not been written yet
		switch {
		case end < 0:
		case len(fixed) > 0 && fixed[0] == end:
			fixed = fixed[1:]
			out = append(out, '\n')
			sourceLine++
		default:
			out = append(out, ' ')
			from = len(line) - len(strings.TrimLeft(line, " "))
		}
		for _, m := range here {
			// A piece begins with its indentation, which has already been removed.
			column := max(byteColumn(line, m.column), from)
			if m.line <= sourceLine || !canBreakBefore(line[:column], from) {
				continue
			}
			out = append(out, line[from:column]...)
			out = append(out, strings.Repeat("\n", m.line-sourceLine)...)
			from, sourceLine = column, m.line
		}
		out = append(out, line[from:]...)
		end += len(line) + 1
	}
	return string(out)
}

// canBreakBefore reports whether a line of output may be broken after a part of
// it: at the start of a line, or after a character that needs a continuation.
func canBreakBefore(before string, from int) bool {
	before = strings.TrimRight(before[from:], " ")
	return before == "" || strings.IndexByte("([{,.;=&|?:+", before[len(before)-1]) >= 0
}

// byteColumn converts a column in UTF-16 code units to a byte offset.
func byteColumn(line string, column int) int {
	for i, r := range line {
		if column <= 0 {
			return i
		}
		column--
		if r >= 0x10000 {
			column--
		}
	}
	return len(line)
}

// fixedLineBreaks finds the line breaks that are significant in JavaScript:
// those in templates and after comments. It understands only the compiler's
// output, not arbitrary JavaScript.
func fixedLineBreaks(js string) (fixed []int) {
	var braces []bool // whether each open brace belongs to a template
	inTemplate := false
	last := byte(0) // the last character, or 'a' for the end of a word
	for i := 0; i < len(js); i++ {
		c := js[i]
		if inTemplate {
			switch {
			case c == '\\':
				i++
				if i < len(js) && js[i] == '\n' {
					fixed = append(fixed, i)
				}
			case c == '\n':
				fixed = append(fixed, i)
			case c == '`':
				inTemplate, last = false, ')'
			case c == '$' && strings.HasPrefix(js[i:], "${"):
				i++
				braces, inTemplate, last = append(braces, true), false, '{'
			}
			continue
		}
		switch {
		case c == ' ':
			continue
		case c == '\n':
			if last == '}' {
				last = ';' // a slash at the start of a line after a block is not a division
			}
			continue
		case c == '`':
			inTemplate = true
			continue
		case c == '"', c == '\'':
			for i++; i < len(js) && js[i] != c; i++ {
				if js[i] == '\\' {
					i++
				}
			}
		case strings.HasPrefix(js[i:], "//"):
			for i < len(js) && js[i] != '\n' {
				i++
			}
			fixed = append(fixed, i)
			continue
		case strings.HasPrefix(js[i:], "/*"):
			n := strings.Index(js[i+2:], "*/")
			if n < 0 {
				return fixed
			}
			i += 2 + n + 1
			continue
		case c == '/' && !isDivision(js[:i], last):
			for class := false; i+1 < len(js) && (class || js[i+1] != '/'); i++ {
				switch js[i+1] {
				case '\\':
					i++
				case '[':
					class = true
				case ']':
					class = false
				}
			}
			i++
		case c == '{':
			braces = append(braces, false)
		case c == '}' && len(braces) > 0:
			inTemplate = braces[len(braces)-1]
			braces = braces[:len(braces)-1]
		}
		last = c
	}
	return fixed
}

// isDivision reports whether a slash after js is a division.
func isDivision(js string, last byte) bool {
	switch {
	case strings.IndexByte(")]}\"'/", last) >= 0:
		return true
	case last < 0x80 && !isWordChar(last):
		return false
	}
	js = strings.TrimRight(js, " \n")
	start := len(js)
	for start > 0 && (js[start-1] >= 0x80 || isWordChar(js[start-1])) {
		start--
	}
	switch js[start:] {
	case "return", "typeof", "case", "in", "of", "delete", "void", "instanceof", "new", "throw", "yield", "await", "do", "else", "default":
		return false
	}
	return true
}

func isWordChar(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
