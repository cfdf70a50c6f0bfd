package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// toPath returns the path in a query.
func toPath(q url.Values) (brig.Path, error) {
	if !q.Has("path") {
		// A missing path must not mean the user's whole home directory.
		return brig.Path{}, brig.InvalidField("path", "is missing").WithHint("give it in the query: ?path=/workspace/a")
	}
	return brig.Path{Name: q.Get("path"), User: q.Get("user")}, nil
}

// requirePath returns an error for an empty path. In a call that changes files,
// an empty path would mean the user's whole home directory. fields alternates
// between names and values.
func requirePath(fields ...string) error {
	for ; len(fields) > 1; fields = fields[2:] {
		if fields[1] == "" {
			return brig.InvalidField(fields[0], "is missing").WithHint("for example /workspace/a; ~ is the user's home")
		}
	}
	return nil
}

// toFileWrite reads the attributes of an uploaded file.
func toFileWrite(r *http.Request, q url.Values) (w brig.FileWrite, err error) {
	if q.Has("mode") {
		n, err := strconv.ParseUint(q.Get("mode"), 8, 32)
		if err != nil || n > 0o777 {
			return w, brig.InvalidField("mode", "must be permission bits in octal digits").WithHint("for example 0644")
		}
		w.Mode = uint32(n)
	}
	for name, values := range r.Header {
		key, ok := strings.CutPrefix(name, v1.MetadataPrefix)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if len(values) > 1 {
			return w, brig.InvalidField("metadata", "%q is given twice", key)
		}
		if !utf8.ValidString(values[0]) {
			return w, brig.InvalidField("metadata", "%q is not UTF-8", key)
		}
		if w.Metadata == nil {
			w.Metadata = map[string]string{}
		}
		w.Metadata[key] = values[0]
	}
	return w, nil
}

// byteRange is the range of a download.
type byteRange struct {
	from, n int64 // a negative n means to the end of the file
	ranged  bool  // requested with a Range header
}

// toByteRange returns the requested part of a file. A Range header that is not
// a single range with a start offset selects the whole file, as HTTP allows.
func toByteRange(r *http.Request, q url.Values) (s byteRange, err error) {
	if s.from, err = offset(q, "offset", 0, 0); err != nil {
		return s, err
	}
	if s.n, err = offset(q, "length", 0, -1); err != nil {
		return s, err
	}
	text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ok {
		return s, nil
	}
	for _, name := range []string{"offset", "length"} {
		if q.Has(name) {
			return s, brig.InvalidField(name, "is given beside a Range header").WithHint("give one of the two")
		}
	}
	if ranged, ok := parseRange(text); ok {
		return ranged, nil
	}
	return s, nil
}

// parseRange parses "2-5" or "2-".
func parseRange(text string) (s byteRange, ok bool) {
	first, last, ok := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 62)
	if err != nil || !ok {
		return s, false
	}
	s = byteRange{from: int64(from), n: -1, ranged: true}
	if last == "" {
		return s, true
	}
	to, err := strconv.ParseUint(last, 10, 62)
	if err != nil || to < from {
		return s, false
	}
	s.n = int64(to-from) + 1
	return s, true
}

// encodeHeader encodes an entry for a header as one line of ASCII.
func encodeHeader(e *brig.Entry) (string, error) {
	b, err := httpapi.Marshal(v1.FromEntry(e))
	if err != nil {
		return "", fmt.Errorf("encode entry: %w", err)
	}
	var out strings.Builder
	for _, c := range strings.TrimSpace(string(b)) {
		switch {
		case c < 0x7f:
			out.WriteRune(c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
	}
	return out.String(), nil
}
