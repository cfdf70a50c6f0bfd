package door

import (
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over bytes that json.Valid has accepted, so it never needs to
// ask whether what it sees is well formed.
type scanner struct {
	data []byte
	pos  int
}

// next returns the first byte of the next token, and stays before it.
func (s *scanner) next() byte {
	for {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
}

// skip steps over the punctuation c if it is next, and reports whether.
func (s *scanner) skip(c byte) bool {
	if s.next() != c {
		return false
	}
	s.pos++
	return true
}

// scalar returns the raw string, number or word that is next.
func (s *scanner) scalar() []byte {
	quoted := s.next() == '"'
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

// text returns what a raw string says, and whether it is Unicode: no bytes
// that are not UTF-8 and no halves of surrogate pairs, which encoding/json
// would replace in silence.
func text(raw []byte) (string, bool) {
	plain := true
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		plain = false
		i++
		if raw[i] != 'u' {
			continue
		}
		r := hex4(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(r, hex4(raw[i+3:])) == utf8.RuneError {
			return "", false
		}
		i += 6
	}
	if !utf8.Valid(raw) {
		return "", false
	}
	if plain {
		return string(raw[1 : len(raw)-1]), true
	}
	var out string
	err := json.Unmarshal(raw, &out)
	return out, err == nil
}

func hex4(b []byte) rune {
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
