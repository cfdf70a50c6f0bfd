package screen

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// foldFile lists the characters that Python normalizes to ASCII letters or digits
// in names, according to Unicode's normalization form KC.
//
//go:embed fold.txt
var foldFile string

// foldTable is the parsed foldFile. It is parsed on first use.
type foldTable struct {
	once sync.Once
	to   map[rune]string
}

// fold returns the normalized form of a name in Python.
func (f *foldTable) fold(name string) string {
	if isASCII(name) {
		return name
	}
	f.once.Do(func() {
		f.to = map[rune]string{}
		for line := range strings.Lines(foldFile) {
			to, from, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			for _, r := range from {
				f.to[r] = to
			}
		}
	})
	var b strings.Builder
	for _, r := range name {
		if to, ok := f.to[r]; ok {
			b.WriteString(to)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unescape decodes the escapes of Python and JavaScript strings and of
// JavaScript names. It keeps unknown escapes, but removes the backslash if the
// language does.
func unescape(s string, js bool) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if s[0] != '\\' || len(s) == 1 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		c := s[1]
		rest := s[2:]
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case js && c == 'u' && strings.HasPrefix(rest, "{"):
			hex, after, _ := strings.Cut(rest[1:], "}")
			s = writeRune(&b, hex, 16, after)
		case digits > 0 && len(rest) >= digits && (c != 'U' || !js):
			s = writeRune(&b, rest[:digits], 16, rest[digits:])
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && n < len(s)-1 && s[1+n] >= '0' && s[1+n] <= '7' {
				n++
			}
			s = writeRune(&b, s[1:1+n], 8, s[1+n:])
		case c == '\n':
			s = rest
		case strings.IndexByte(`abfnrtv`, c) >= 0 && (!js || c != 'a'):
			b.WriteByte(map[byte]byte{'a': 7, 'b': 8, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11}[c])
			s = rest
		case js || c == '\\' || c == '\'' || c == '"':
			b.WriteByte(c)
			s = rest
		default:
			b.WriteString(s[:2])
			s = rest
		}
	}
	return b.String()
}

// writeRune writes the character with the given code point, followed by rest.
func writeRune(b *strings.Builder, digits string, base int, rest string) string {
	if n, err := strconv.ParseUint(digits, base, 32); err == nil && n <= utf8.MaxRune {
		b.WriteRune(rune(n))
	} else {
		b.WriteRune(utf8.RuneError)
	}
	return rest
}
