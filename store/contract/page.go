package contract

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/brig-run/brig"
)

// Page sizes of List.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Limit returns the size of the page that is asked for.
func Limit(o brig.ListOptions) (int, error) {
	if o.Limit == 0 {
		return DefaultLimit, nil
	}
	if o.Limit < 1 || o.Limit > MaxLimit {
		return 0, badLimit(o.Limit)
	}
	return o.Limit, nil
}

// Place is where a page's last record stands in the order of List. It is not
// the record itself, which may be gone by the next call.
type Place struct {
	Created time.Time
	ID      brig.ID
}

// Cursor writes a place with a checksum that tells our cursors from what a
// caller made up.
func (p Place) Cursor() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.Created.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Created.Nanosecond()))
	b = append(b, p.ID...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor returns the place that a cursor names, nil for no cursor.
func ParseCursor(c string) (*Place, error) {
	if c == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(c)
	if err != nil || len(b) < 16 {
		return nil, badCursor()
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, badCursor()
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint32(body[8:]))).UTC()
	return &Place{Created: at, ID: brig.ID(body[12:])}, nil
}
