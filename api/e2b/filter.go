package e2b

import (
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// parseMetadata decodes a filter, which clients escape three times: the query
// undoes the first, and keys and values are escaped in what is escaped.
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

// cursor is the place in a list after a sandbox.
type cursor struct {
	started time.Time
	id      string
	asc     bool
}

// orderMark ends the cursors of lists that begin with the oldest.
const orderMark = "__asc"

func (c cursor) String() string {
	s := c.started.UTC().Format(time.RFC3339Nano) + "__" + c.id
	if c.asc {
		s += orderMark
	}
	return base64.RawURLEncoding.EncodeToString([]byte(s))
}

// parseCursor reads what String wrote.
func parseCursor(s string) (cursor, error) {
	bad := brig.InvalidField("nextToken", "it is none of this server's")
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
