package e2b

import (
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// parseMetadata decodes a metadata filter, which clients escape three times.
// The query parser undoes the first level. parseMetadata undoes the other two:
// the filter is escaped as a whole, and its keys and values are escaped again.
func parseMetadata(s string) (map[string]string, error) {
	bad := func(err error) error {
		return brig.InvalidField("metadata", "it is not a list of key=value").Because(err)
	}
	s, err := url.QueryUnescape(s)
	if err != nil {
		return nil, bad(err)
	}
	out := map[string]string{}
	for pair := range strings.SplitSeq(s, "&") {
		if pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(v, "=") {
			return nil, bad(nil)
		}
		if k, err = url.QueryUnescape(k); err != nil {
			return nil, bad(err)
		}
		if v, err = url.QueryUnescape(v); err != nil {
			return nil, bad(err)
		}
		out[k] = v
	}
	return out, checkMetadata(out)
}

// cursor is a position in a list of sandboxes. The next page begins after it.
type cursor struct {
	started time.Time
	id      string
	asc     bool
}

// orderMark is the suffix of the cursors of lists that are sorted oldest first.
const orderMark = "__asc"

func (c cursor) String() string {
	s := c.started.UTC().Format(time.RFC3339Nano) + "__" + c.id
	if c.asc {
		s += orderMark
	}
	return base64.RawURLEncoding.EncodeToString([]byte(s))
}

// parseCursor parses the encoded result of String.
func parseCursor(s string) (cursor, error) {
	bad := brig.InvalidField("nextToken", "it is not from this server")
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return cursor{}, bad.Because(err)
	}
	rest, asc := strings.CutSuffix(string(b), orderMark)
	at, id, ok := strings.Cut(rest, "__")
	if !ok || !isID(id) {
		return cursor{}, bad
	}
	started, err := time.Parse(time.RFC3339Nano, at)
	if y := started.UTC().Year(); err != nil || y < 0 || y > 9999 {
		return cursor{}, bad.Because(err)
	}
	return cursor{started: started.UTC(), id: id, asc: asc}, nil
}
