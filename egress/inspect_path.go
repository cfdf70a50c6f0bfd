package egress

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// readings returns the interpretations of an escaped path by servers. The
// first is the standard interpretation. All of them are checked. If the path is one
// that no honest client sends, readings returns the reason why it is rejected.
//
// Servers disagree on whether an escaped slash is a separator, whether a double
// escape is decoded twice, whether repeated slashes are one, whether parameters
// follow a semicolon, and whether an escaped question mark begins a query. They
// also disagree on which Unicode letters are equal, and on whether dots and
// blanks at the end of a name count.
func readings(escaped string) (paths []string, why string) {
	decoded, err := url.PathUnescape(escaped)
	if err != nil || !strings.HasPrefix(escaped, "/") {
		return nil, "its path is none"
	}
	paths = []string{decoded, withoutEscapedSlashes(escaped)}
	for again, depth := decoded, 0; ; depth++ {
		next := unescaped(again)
		if next == again {
			break
		}
		if depth == 2 {
			return nil, "its path is escaped over and over"
		}
		paths = append(paths, next)
		again = next
	}
	for _, p := range slices.Clone(paths) {
		if !utf8.ValidString(p) {
			return nil, "its path is not UTF-8"
		}
		for _, alike := range []string{norm.NFC.String(p), norm.NFKC.String(p), lookalikePath(p)} {
			paths = append(paths, alike, unescaped(alike))
		}
	}
	for _, p := range paths {
		if why := rejectPath(p); why != "" {
			return nil, why
		}
	}
	for _, p := range slices.Clone(paths) {
		if i := strings.IndexAny(p, "?#"); i >= 0 {
			paths = append(paths, p[:i])
		}
	}
	for _, p := range slices.Clone(paths) {
		without := withoutParameters(p)
		paths = append(paths, without, withoutRepeatedSlashes(p), withoutRepeatedSlashes(without))
	}
	for _, p := range slices.Clone(paths) {
		paths = append(paths, withoutEnds(p))
	}
	slices.Sort(paths[1:])
	return slices.Compact(paths), ""
}

// unescaped decodes escapes like most servers that decode twice: an invalid
// escape is kept as it is, and the others are decoded.
func unescaped(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			if c, err := strconv.ParseUint(p[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// rejectPath returns the reason why a path is rejected under any rules.
func rejectPath(p string) (why string) {
	if strings.Contains(p, `\`) || hasControl(p) {
		return "its path has a backslash or a control character"
	}
	if strings.ContainsFunc(p, func(r rune) bool {
		return r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == utf8.RuneError
	}) {
		return "its path has a character that some servers treat as a line break or ignore"
	}
	if hasPercentU(p) {
		return "its path has an invalid escape"
	}
	for s := range strings.SplitSeq(withoutParameters(p), "/") {
		if s != "" && strings.Contains(s, ".") && strings.Trim(s, ". ") == "" {
			return "its path has dot segments"
		}
	}
	return ""
}

// lookalikePath returns the path as servers read it that remove format
// characters, and replace characters by similar-looking ones. It also applies
// Unicode's compatibility normalization.
func lookalikePath(p string) string {
	return norm.NFKC.String(strings.Map(func(r rune) rune {
		switch r {
		case 0x2044, 0x2215, 0x29f8, 0x2571:
			return '/'
		case 0x2216, 0x29f5, 0x29f9, 0x244a:
			return '\\'
		case 0x3002, 0xff61, 0x00b7, 0x0701, 0x0702, 0x06d4, 0xa4f8:
			return '.'
		case 0x066a, 0x2052:
			return '%'
		}
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector) {
			return -1
		}
		return r
	}, p))
}

// hasPercentU reports whether a path has an escape of the form %uXXXX, which
// only some servers decode.
func hasPercentU(p string) bool {
	for i := 0; i+5 < len(p); i++ {
		if p[i] == '%' && p[i+1]|0x20 == 'u' && strings.Trim(p[i+2:i+6], "0123456789abcdefABCDEF") == "" {
			return true
		}
	}
	return false
}

// withoutEnds returns the path as read by servers that ignore dots and blanks
// at the end of a name.
func withoutEnds(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i] = strings.TrimRight(s, ". ")
	}
	return strings.Join(segments, "/")
}

// withoutEscapedSlashes returns the path as read by servers to which an escaped
// slash is not a separator.
func withoutEscapedSlashes(escaped string) string {
	segments := strings.Split(escaped, "/")
	for i, s := range segments {
		if d, err := url.PathUnescape(s); err == nil {
			segments[i] = strings.ReplaceAll(d, "/", "%2F")
		}
	}
	return strings.Join(segments, "/")
}

// withoutParameters returns the path as read by servers that end a segment at a
// semicolon.
func withoutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// withoutRepeatedSlashes returns the path as read by servers that treat
// repeated slashes as one.
func withoutRepeatedSlashes(p string) string {
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
