package egress

import (
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The limits of a request's paths. A reading costs time and memory: without limits, a guest that
// sends one long path uses half a second of the server's CPU time.
const (
	maxPath = 8 << 10 // bytes of an escaped path
	// maxReadings limits the readings of all paths of a request, and
	// maxReadingBytes their total length.
	maxReadings     = 50
	maxReadingBytes = 16 * maxPath
	maxPaths        = 20 // in the target and the header fields of a request
)

const (
	whyPathTooLong     = "its path is longer than 8 KiB"
	whyTooManyReadings = "it can be read in too many ways"
)

// pathReadings collects the readings of the paths of a request.
type pathReadings struct {
	list  []string
	seen  map[string]struct{}
	bytes int // total length of list
}

// add adds a reading. It reports false if there are too many.
func (r *pathReadings) add(p string) bool {
	if _, ok := r.seen[p]; ok {
		return true
	}
	if r.bytes += len(p); r.bytes > maxReadingBytes || len(r.list) == maxReadings {
		return false
	}
	if r.seen == nil {
		r.seen = map[string]struct{}{}
	}
	r.seen[p] = struct{}{}
	r.list = append(r.list, p)
	return true
}

// expand calls f with each reading so far; f adds further ones. It reports false
// if there are too many.
func (r *pathReadings) expand(f func(p string, add func(string) bool) bool) bool {
	for _, p := range r.list[:len(r.list):len(r.list)] {
		if !f(p, r.add) {
			return false
		}
	}
	return true
}

// read adds the interpretations of an escaped path by servers. The first interpretation of a path
// is the standard one. All interpretations are checked. For a path that no legitimate client sends,
// read returns the reason why it is rejected.
//
// Servers disagree on whether an escaped slash is a separator, whether a double escape is decoded
// twice, whether repeated slashes are one, whether parameters follow a semicolon, and whether an
// escaped question mark begins a query. They also disagree on which Unicode letters are equal, and
// on whether dots and blanks at the end of a name count.
func (r *pathReadings) read(escaped string) (reason string) {
	if len(escaped) > maxPath {
		return whyPathTooLong
	}
	decoded, err := url.PathUnescape(escaped)
	if err != nil || !strings.HasPrefix(escaped, "/") {
		return "its path is none"
	}
	one := pathReadings{bytes: r.bytes}
	ok := one.add(decoded) && one.add(withoutEscapedSlashes(escaped))
	for current, depth := decoded, 0; ok; depth++ {
		next := unescape(current)
		if next == current {
			break
		}
		if depth == 2 {
			return "its path is escaped over and over"
		}
		ok = one.add(next)
		current = next
	}
	for _, p := range one.list {
		if !utf8.ValidString(p) {
			return "its path is not UTF-8"
		}
	}
	ok = ok && one.expand(func(p string, add func(string) bool) bool {
		for _, form := range []func(string) string{norm.NFC.String, norm.NFKC.String, lookalikePath} {
			normalized := form(p)
			if !add(normalized) || !add(unescape(normalized)) {
				return false
			}
		}
		return true
	})
	for _, p := range one.list {
		if reason := rejectPath(p); reason != "" {
			return reason
		}
	}
	ok = ok && one.expand(func(p string, add func(string) bool) bool {
		i := strings.IndexAny(p, "?#")
		return i < 0 || add(p[:i])
	})
	ok = ok && one.expand(func(p string, add func(string) bool) bool {
		without := withoutParameters(p)
		return add(without) && add(withoutRepeatedSlashes(p)) && add(withoutRepeatedSlashes(without))
	})
	ok = ok && one.expand(func(p string, add func(string) bool) bool { return add(withoutEnds(p)) })
	if !ok {
		return whyTooManyReadings
	}
	for _, p := range one.list {
		if !r.add(p) {
			return whyTooManyReadings
		}
	}
	return ""
}

// unescape decodes escapes like most servers that decode twice: an invalid
// escape is kept as it is, and the others are decoded.
func unescape(p string) string {
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
func rejectPath(p string) (reason string) {
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

// lookalikePath returns the path as read by servers that remove format characters and replace
// characters with similar-looking ones. It also applies Unicode's compatibility normalization.
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
	return mapSegments(p, func(s string) string { return strings.TrimRight(s, ". ") })
}

// withoutEscapedSlashes returns the path as read by servers to which an escaped
// slash is not a separator.
func withoutEscapedSlashes(escaped string) string {
	return mapSegments(escaped, func(s string) string {
		if d, err := url.PathUnescape(s); err == nil {
			return strings.ReplaceAll(d, "/", "%2F")
		}
		return s
	})
}

// withoutParameters returns the path as read by servers that end a segment at a
// semicolon.
func withoutParameters(p string) string {
	return mapSegments(p, func(s string) string {
		s, _, _ = strings.Cut(s, ";")
		return s
	})
}

// mapSegments returns the path with f applied to each segment.
func mapSegments(p string, f func(string) string) string {
	var b strings.Builder
	b.Grow(len(p))
	for {
		s, rest, more := strings.Cut(p, "/")
		b.WriteString(f(s))
		if !more {
			return b.String()
		}
		b.WriteByte('/')
		p = rest
	}
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
