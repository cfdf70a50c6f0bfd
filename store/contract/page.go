package contract

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/brig-run/brig"
)

// These constants are the page sizes of List.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// ListedBytes is the maximum total size of the records in a page of List, and of the executions
// in the result of ListExecs, in bytes of the stored form. The bound is necessary because
// callers choose the sizes of environments and outputs, and decoding needs several times the
// stored size.
const ListedBytes = 8 << 20

// smallCommand is the maximum size of a command that a list includes for every execution.
const smallCommand = 4 << 10

// Shorten removes the parts of an execution that are too large for a list. It removes the
// output but keeps its size. If the execution has ended, it also removes the command, unless
// the command is small.
func Shorten(x *brig.Execution) {
	x.Stdout.Head, x.Stdout.Tail, x.Stderr.Head, x.Stderr.Tail = nil, nil, nil, nil
	if x.Done && commandSize(x.Command) > smallCommand {
		x.Command.Argv, x.Command.Shell, x.Command.Env = nil, "", nil
	}
}

// ExecutionSize estimates the size of an execution in its stored form.
func ExecutionSize(x *brig.Execution) int {
	return commandSize(x.Command) + len(x.Stdout.Head) + len(x.Stdout.Tail) + len(x.Stderr.Head) + len(x.Stderr.Tail)
}

func commandSize(c brig.Command) int {
	size := len(c.Shell) + envSize(c.Env)
	for _, a := range c.Argv {
		size += len(a)
	}
	return size
}

// RecordSize estimates the size of a record in its stored form.
func RecordSize(r *brig.Record) int {
	size := envSize(r.Spec.Env) + envSize(r.Spec.Labels)
	if r.Spec.Command != nil {
		size += commandSize(*r.Spec.Command)
	}
	return size
}

func envSize(env map[string]string) (size int) {
	for k, v := range env {
		size += len(k) + len(v)
	}
	return size
}

// Limit returns the requested page size, or the default.
func Limit(o brig.ListOptions) (int, error) {
	if o.Limit == 0 {
		return DefaultLimit, nil
	}
	if o.Limit < 1 || o.Limit > MaxLimit {
		return 0, invalidLimitError(o.Limit)
	}
	return o.Limit, nil
}

// Position is the position of a page's last record in the order of List. It does
// not refer to the record itself, which may be deleted before the next call.
type Position struct {
	Created time.Time
	ID      brig.ID
}

// Compare orders positions by time, then by ID.
func (p Position) Compare(q Position) int {
	return cmp.Or(p.Created.Compare(q.Created), cmp.Compare(p.ID, q.ID))
}

// IsWanted reports whether a list of runs with the given options includes an outcome.
func IsWanted(run *brig.Outcome, o brig.RunOptions) bool {
	return len(o.Statuses) == 0 || slices.Contains(o.Statuses, run.Status())
}

// EncodeCursor encodes a position with a checksum, so that invalid cursors can be
// detected.
func (p Position) EncodeCursor() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.Created.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Created.Nanosecond()))
	b = append(b, p.ID...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor returns the encoded position, or nil for an empty cursor.
func ParseCursor(c string) (*Position, error) {
	if c == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(c)
	if err != nil || len(b) < 16 {
		return nil, invalidCursorError()
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, invalidCursorError()
	}
	at := time.Unix(int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint32(body[8:]))).UTC()
	return &Position{Created: at, ID: brig.ID(body[12:])}, nil
}

// AuditLimit returns the requested page size, or the default.
func AuditLimit(q brig.AuditQuery) (int, error) { return Limit(brig.ListOptions{Limit: q.Limit}) }

// Pruned returns the event that replaces the beginning of a chain, up to the
// line with the given number and hash.
func Pruned(tenant string, now time.Time, upTo int64, hash []byte) brig.Event {
	return brig.Event{At: now, Op: brig.PrunedOp, Tenant: tenant, Phase: brig.Observed, Detail: map[string]string{
		brig.DetailPruned: strconv.FormatInt(upTo, 10), brig.DetailPrunedHash: hex.EncodeToString(hash),
	}}
}

// PruneLimit returns the last line to prune from a chain that must not have more than maxLines
// lines. n is the newest line, and the lines up to pruned have already been pruned. PruneLimit
// prunes a tenth of the lines at a time, because each pruning adds a line.
func PruneLimit(n, pruned, maxLines int64) int64 {
	if maxLines <= 0 || n-pruned <= maxLines {
		return 0
	}
	return n - maxLines*9/10
}
