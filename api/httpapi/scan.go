package httpapi

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner iterates over valid JSON. It does not check the syntax, because
// json.Valid has already done so.
type scanner struct {
	data []byte
	pos  int
}

// peek returns the first byte of the next token without consuming it.
func (s *scanner) peek() byte {
	for {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
}

// skip consumes the punctuation c if it is next, and reports whether it did.
func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// readScalar returns the next raw string, number or literal.
func (s *scanner) readScalar() []byte {
	quoted := s.peek() == '"'
	start := s.pos
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case quoted && c == '\\':
			s.pos++
		case quoted && c == '"':
			s.pos++
			return s.data[start:s.pos]
		case !quoted && (c == ',' || c == '}' || c == ']' || c <= ' '):
			return s.data[start:s.pos]
		}
	}
	return s.data[start:]
}

// decodeString decodes a raw string and reports whether it is valid Unicode.
func decodeString(raw []byte) (string, bool) {
	plain, ok := checkUnicode(raw)
	if !ok {
		return "", false
	}
	if plain {
		return string(raw[1 : len(raw)-1]), true
	}
	var out string
	err := json.Unmarshal(raw, &out)
	return out, err == nil
}

// checkUnicode reports whether a raw string is valid Unicode: it has no invalid
// UTF-8 and no unpaired surrogates, which encoding/json would silently replace.
// plain reports whether the string has no escapes.
func checkUnicode(raw []byte) (plain, ok bool) {
	plain = true
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		plain = false
		i++
		if raw[i] != 'u' {
			continue
		}
		r := parseHex4(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(r, parseHex4(raw[i+3:])) == utf8.RuneError {
			return false, false
		}
		i += 6
	}
	return plain, utf8.Valid(raw)
}

func parseHex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}
