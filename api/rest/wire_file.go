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
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// toPath reads the path that a query names.
func toPath(q url.Values) (brig.Path, error) {
	if !q.Has("path") {
		// Left out, it must not mean all that the user has.
		return brig.Path{}, brig.InvalidField("path", "is missing").WithHint("give it in the query: ?path=/workspace/a")
	}
	return brig.Path{Name: q.Get("path"), User: q.Get("user")}, nil
}

// named refuses a path that is empty, of which fields has the name and the
// value by turns: it would be all that the user has, and something happens to
// it.
func named(fields ...string) error {
	for ; len(fields) > 1; fields = fields[2:] {
		if fields[1] == "" {
			return brig.InvalidField(fields[0], "is missing").WithHint("for example /workspace/a; ~ is the user's home")
		}
	}
	return nil
}

// toFileWrite reads what an upload gives a file beside its content.
func toFileWrite(r *http.Request, q url.Values) (w brig.FileWrite, err error) {
	if q.Has("mode") {
		n, err := strconv.ParseUint(q.Get("mode"), 8, 32)
		if err != nil || n > 0o777 {
			return w, brig.InvalidField("mode", "must be permission bits in octal digits").WithHint("for example 0644")
		}
		w.Mode = uint32(n)
	}
	for name, values := range r.Header {
		key, ok := strings.CutPrefix(name, wire.MetadataPrefix)
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

// span is what a download asks for.
type span struct {
	from, n int64 // n is negative for what there is
	ranged  bool  // asked for as HTTP does
}

// toSpan reads which part of a file is wanted. A Range header that is not a
// single range from an offset on asks for the whole, as HTTP allows.
func toSpan(r *http.Request, q url.Values) (s span, err error) {
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
	if ranged, ok := toRange(text); ok {
		return ranged, nil
	}
	return s, nil
}

// toRange reads "2-5" or "2-".
func toRange(text string) (s span, ok bool) {
	first, last, ok := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 62)
	if err != nil || !ok {
		return s, false
	}
	s = span{from: int64(from), n: -1, ranged: true}
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

func fromEntry(e *brig.Entry) wire.Entry {
	return wire.Entry{
		Name: e.Name, Path: e.Path, Type: string(e.Type), Size: e.Size, Mode: e.Mode, Owner: e.Owner, Group: e.Group,
		Modified: e.Modified, Target: e.Target, Metadata: e.Metadata,
	}
}

func fromEntries(list []*brig.Entry) wire.Entries {
	out := wire.Entries{Entries: []wire.Entry{}}
	for _, e := range list {
		out.Entries = append(out.Entries, fromEntry(e))
	}
	return out
}

func fromChange(c brig.FileChange) wire.Change {
	out := wire.Change{Name: c.Name, Kinds: []string{}}
	for _, k := range c.Kinds {
		out.Kinds = append(out.Kinds, string(k))
	}
	if c.Entry != nil {
		e := fromEntry(c.Entry)
		out.Entry = &e
	}
	return out
}

// inHeader writes an entry as a header can carry it: ASCII on one line.
func inHeader(e *brig.Entry) (string, error) {
	b, err := door.Marshal(fromEntry(e))
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
