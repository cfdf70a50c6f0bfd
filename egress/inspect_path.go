package egress

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readings returns what an escaped path may be to one server or another; the
// first is what it is by the standard. All of them are judged. Paths that no
// honest client sends are not read at all, and why says what is wrong.
//
// Servers disagree on whether an escaped slash divides, whether what is escaped
// twice is decoded twice, whether slashes in a row are one, and whether there
// are parameters after a semicolon.
func readings(escaped string) (paths []string, why string) {
	decoded, err := url.PathUnescape(escaped)
	if err != nil || !strings.HasPrefix(escaped, "/") {
		return nil, "its path is none"
	}
	paths = []string{decoded, undivided(escaped)}
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
	for _, p := range paths {
		if why := unclean(p); why != "" {
			return nil, why
		}
	}
	for _, p := range slices.Clone(paths) {
		without := withoutParameters(p)
		paths = append(paths, without, onceSlashed(p), onceSlashed(without))
	}
	slices.Sort(paths[1:])
	return slices.Compact(paths), ""
}

// unescaped decodes what is escaped, as most servers do that decode once more:
// what is no escape stands for itself, and keeps nothing else from being one.
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

// unclean says what makes a path one that is not judged.
func unclean(p string) (why string) {
	if !utf8.ValidString(p) {
		return "its path is not UTF-8"
	}
	if strings.Contains(p, `\`) || hasControl(p) {
		return "its path has a backslash or a control character"
	}
	for s := range strings.SplitSeq(withoutParameters(p), "/") {
		if s == "." || s == ".." {
			return "its path has dot segments"
		}
	}
	return ""
}

// undivided is the path to those for whom an escaped slash does not divide.
func undivided(escaped string) string {
	segments := strings.Split(escaped, "/")
	for i, s := range segments {
		if d, err := url.PathUnescape(s); err == nil {
			segments[i] = strings.ReplaceAll(d, "/", "%2F")
		}
	}
	return strings.Join(segments, "/")
}

// withoutParameters is the path to those for whom a semicolon ends a segment.
func withoutParameters(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// onceSlashed is the path to those for whom slashes in a row are one.
func onceSlashed(p string) string {
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
