package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// maxListing bounds how many bytes an agent may answer to a List, and with
// them what the host keeps of it.
const maxListing = 64 << 20

// files implements brig.Files by the agent.
type files struct{ g *Guest }

// Files implements the Files of brig.Instance.
func (g *Guest) Files() brig.Files { return files{g} }

// at says in the agent's words what a path is.
func at(p brig.Path) wire.Path {
	u := account(p.User)
	return wire.Path{Name: p.Name, Home: u.home, UID: u.uid, GID: u.gid}
}

// Stat implements brig.Files.
func (f files) Stat(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.one(ctx, wire.OpStat, wire.FS{Path: at(p)})
}

// List implements brig.Files.
func (f files) List(ctx context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	out, err := f.ask(ctx, wire.OpList, wire.FS{Path: at(p), Depth: max(depth, 1), Max: brig.MaxEntries}, brig.MaxEntries)
	slices.SortFunc(out, func(a, b *brig.Entry) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// MakeDir implements brig.Files.
func (f files) MakeDir(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.one(ctx, wire.OpMakeDir, wire.FS{Path: at(p)})
}

// Move implements brig.Files.
func (f files) Move(ctx context.Context, from, to brig.Path) (*brig.Entry, error) {
	target := at(to)
	return f.one(ctx, wire.OpMove, wire.FS{Path: at(from), To: &target})
}

// Remove implements brig.Files.
func (f files) Remove(ctx context.Context, p brig.Path) error {
	_, err := f.ask(ctx, wire.OpRemove, wire.FS{Path: at(p)}, 0)
	return err
}

// Compose implements brig.Files.
func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	call := wire.FS{Path: at(to)}
	for _, p := range from {
		call.From = append(call.From, at(p))
	}
	e, err := f.one(ctx, wire.OpCompose, call)
	if errors.Is(err, wire.ErrTooLarge) {
		return nil, brig.InvalidField("path", "the names of %d files are too long", len(from)).WithHint("compose fewer at once")
	}
	return e, err
}

// one makes a call that answers one entry.
func (f files) one(ctx context.Context, op wire.Op, call wire.FS) (*brig.Entry, error) {
	return single(f.ask(ctx, op, call, 1))
}

func single(es []*brig.Entry, err error) (*brig.Entry, error) {
	if err != nil {
		return nil, err
	}
	if len(es) != 1 {
		return nil, fmt.Errorf("%d entries, want one: %w", len(es), ErrLost)
	}
	return es[0], nil
}

// ask makes a call that answers at most so many entries.
func (f files) ask(ctx context.Context, op wire.Op, call wire.FS, most int) ([]*brig.Entry, error) {
	conn, end, err := f.g.call(ctx, wire.Call{Op: op, FS: &call})
	if err != nil {
		return nil, err
	}
	defer end()
	return entries(ctx, wire.NewReader(bufio.NewReaderSize(conn, 64<<10)), most)
}

// entries reads the entries that answer a call, to its end.
func entries(ctx context.Context, r *wire.Reader, most int) (out []*brig.Entry, err error) {
	for size := 0; ; {
		f, err := r.Read()
		if err != nil {
			return nil, lost(ctx, err)
		}
		switch size += len(f.Payload); {
		case f.Type == wire.TypeOK:
			return out, nil
		case f.Type == wire.TypeError:
			return nil, agentError(f.Payload)
		case f.Type != wire.TypeEntry || len(out) == most:
			return nil, fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
		case size > maxListing:
			return nil, brig.Errorf(brig.FailedPrecondition, "the directory has more names than can be listed").
				WithHint("list a smaller one, or not as deep")
		}
		e, err := decodeEntry(f.Payload)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
}

// decodeEntry reads an entry as it came in a frame.
func decodeEntry(payload []byte) (*brig.Entry, error) {
	var e wire.Entry
	if len(payload) > wire.MaxEntry {
		return nil, fmt.Errorf("an entry of %d bytes: %w", len(payload), ErrLost)
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, fmt.Errorf("decode entry: %w (%w)", ErrLost, err)
	}
	return entry(e)
}

// entry checks what an agent says of a file, and makes of it what callers may
// rely on.
func entry(e wire.Entry) (*brig.Entry, error) {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path {
		return nil, fmt.Errorf("an entry of %.100q: %w", e.Path, ErrLost)
	}
	out := &brig.Entry{
		Name: path.Base(e.Path), Path: e.Path, Type: brig.OtherFile, Size: max(e.Size, 0), Mode: e.Mode & 0o777,
		Owner: e.Owner, Group: e.Group, Modified: time.Unix(0, e.ModifiedNS).UTC(),
	}
	switch t := brig.EntryType(e.Type); t {
	case brig.RegularFile, brig.Directory:
		out.Type = t
	case brig.Symlink:
		out.Type, out.Target = t, e.Target
	}
	size := 0
	for k, v := range e.Metadata {
		if size += len(k) + len(v); size > maxMetadata || k == "" || k != strings.ToLower(k) || strings.ContainsFunc(k+v, unprintable) {
			continue // a program in the sandbox, or a hostile agent, made this up
		}
		if out.Metadata == nil {
			out.Metadata = map[string]string{}
		}
		out.Metadata[k] = v
	}
	return out, nil
}

// maxMetadata is how large a file's metadata may be, in bytes.
const maxMetadata = 4096

func unprintable(c rune) bool { return c < ' ' || c > '~' }

// pathError is agentError for what is wrong with a path.
func pathError(e wire.Error) error {
	of := func(k brig.Kind) *brig.Error {
		err := brig.Errorf(k, "%s", e.Message)
		err.Field = e.Field
		return err
	}
	switch e.Kind {
	case "not_found":
		return of(brig.NotFound).WithHint("list the directory to see what is there")
	case "exists":
		return of(brig.AlreadyExists)
	case "invalid":
		return of(brig.InvalidArgument)
	case "loop":
		return of(brig.FailedPrecondition).WithHint("remove one of the links")
	case "excess":
		return of(brig.FailedPrecondition).WithHint("name a smaller directory, or do not go as deep")
	case "exhausted":
		return of(brig.FailedPrecondition).WithHint("raise limits.disk, or remove files")
	default:
		return fmt.Errorf("agent: %s", e.Message)
	}
}
