package sqlite

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/brig-run/brig"
)

// Page sizes of List.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// List implements brig.Store.
func (s *Store) List(ctx context.Context, tenant string, o brig.ListOptions) ([]*brig.Record, string, error) {
	limit := o.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if limit < 1 || limit > maxLimit {
		return nil, "", errLimit(limit)
	}
	q, args, err := selection(tenant, o, limit+1) // one more tells whether there is a next page
	if err != nil {
		return nil, "", err
	}
	page, err := query[brig.Record](ctx, s.readers, q, args...)
	if err != nil {
		return nil, "", wrap(err, "list sandboxes of %s", tenant)
	}
	if len(page) <= limit {
		return page, "", nil
	}
	page = page[:limit]
	last := page[limit-1]
	return page, cursor{nanos(last.Created), string(last.ID)}.String(), nil
}

// selection builds the query of List. All that a caller chose is an argument.
func selection(tenant string, o brig.ListOptions, limit int) (string, []any, error) {
	var q strings.Builder
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	fmt.Fprintf(&q, "select doc, data from sandboxes where tenant = %s", arg(tenant))
	for k, v := range o.Labels {
		fmt.Fprintf(&q, " and exists (select 1 from labels where sandbox = sandboxes.id and key = %s and value = %s)", arg(k), arg(v))
	}
	if len(o.States) > 0 {
		marks := make([]string, len(o.States))
		for i, state := range o.States {
			marks[i] = arg(string(state))
		}
		fmt.Fprintf(&q, " and state in (%s)", strings.Join(marks, ", "))
	}
	if o.Cursor != "" {
		c, ok := parseCursor(o.Cursor)
		if !ok {
			return "", nil, errCursor()
		}
		fmt.Fprintf(&q, " and (created_ns, id) < (%s, %s)", arg(c.created), arg(c.id))
	}
	fmt.Fprintf(&q, " order by created_ns desc, id desc limit %s", arg(limit))
	return q.String(), args, nil
}

// cursor is the place of a page's last record in the order of List, not the
// record itself, which may be gone by the next call.
type cursor struct {
	created int64
	id      string
}

// String writes c with a checksum that tells our cursors from what a caller
// made up.
func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.created))
	b = append(b, c.id...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (cursor, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 12 {
		return cursor{}, false
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return cursor{}, false
	}
	return cursor{int64(binary.BigEndian.Uint64(body)), string(body[8:])}, true
}
