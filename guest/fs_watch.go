package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// changeKinds lists the kinds of change, in the same order as FileChange.
var changeKinds = [...]brig.ChangeKind{brig.Created, brig.Renamed, brig.ModeSet, brig.Written, brig.Vanished}

// Watch implements brig.Files.
func (f files) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	conn, end, err := f.g.call(ctx, wire.Call{Op: wire.OpWatch, FS: &wire.FS{Path: wirePath(p), Recursive: recursive}})
	if err != nil {
		return err
	}
	defer end()
	return readChanges(ctx, wire.NewReader(bufio.NewReaderSize(conn, 64<<10)), on)
}

// readChanges calls on for each change that an agent reports, until an error
// occurs.
func readChanges(ctx context.Context, r *wire.Reader, on func(brig.FileChange) error) error {
	for first := true; ; first = false {
		f, err := r.Read()
		switch {
		case err != nil:
			return causeOrError(ctx, err)
		case f.Type == wire.TypeError:
			return decodeAgentError(f.Payload)
		case f.Type != wire.TypeChange || len(f.Payload) > 2*wire.MaxEntry:
			return newViolation("unexpected frame %d", f.Type)
		}
		c, err := decodeChange(f.Payload)
		if err != nil {
			return err
		}
		if first != (len(c.Kinds) == 0) {
			return newViolation("a change that is none")
		}
		if err := on(c); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// maxName is the maximum length of the name of a changed file, in bytes.
const maxName = 4096

func decodeChange(payload []byte) (brig.FileChange, error) {
	var c wire.Change
	if err := json.Unmarshal(payload, &c); err != nil {
		return brig.FileChange{}, newMalformedError("change", err)
	}
	if len(c.Name) > maxName {
		return brig.FileChange{}, newViolation("a change of a name of %d bytes", len(c.Name))
	}
	out := brig.FileChange{Name: c.Name}
	for _, k := range changeKinds {
		if slices.Contains(c.Kinds, string(k)) {
			out.Kinds = append(out.Kinds, k)
		}
	}
	if len(out.Kinds) == 0 {
		return brig.FileChange{}, nil
	}
	if c.Entry != nil {
		var err error
		if out.Entry, err = newEntry(*c.Entry); err != nil {
			return brig.FileChange{}, err
		}
	}
	return out, nil
}
