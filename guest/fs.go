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

// maxListing is the maximum size of an agent's response to a List, in bytes. It
// limits the memory that the host uses for the response.
const maxListing = 64 << 20

// files implements brig.Files with calls to the agent.
type files struct{ g *Guest }

// Files implements brig.Instance.Files.
func (g *Guest) Files() brig.Files { return files{g} }

// wirePath converts a path to its form in the agent's protocol.
func wirePath(p brig.Path) wire.Path {
	u := newUser(p.User)
	return wire.Path{Name: p.Name, Home: u.home, UID: u.uid, GID: u.gid}
}

// Stat implements brig.Files.
func (f files) Stat(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.callForEntry(ctx, wire.OpStat, wire.FS{Path: wirePath(p)})
}

// List implements brig.Files.
func (f files) List(ctx context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	out, err := f.callForEntries(ctx, wire.OpList, wire.FS{Path: wirePath(p), Depth: max(depth, 1), Max: brig.MaxEntries}, brig.MaxEntries)
	slices.SortFunc(out, func(a, b *brig.Entry) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// MakeDir implements brig.Files.
func (f files) MakeDir(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.callForEntry(ctx, wire.OpMakeDir, wire.FS{Path: wirePath(p)})
}

// Move implements brig.Files.
func (f files) Move(ctx context.Context, from, to brig.Path) (*brig.Entry, error) {
	target := wirePath(to)
	return f.callForEntry(ctx, wire.OpMove, wire.FS{Path: wirePath(from), To: &target})
}

// Remove implements brig.Files.
func (f files) Remove(ctx context.Context, p brig.Path) error {
	_, err := f.callForEntries(ctx, wire.OpRemove, wire.FS{Path: wirePath(p)}, 0)
	return err
}

// Compose implements brig.Files.
func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	call := wire.FS{Path: wirePath(to)}
	for _, p := range from {
		call.From = append(call.From, wirePath(p))
	}
	e, err := f.callForEntry(ctx, wire.OpCompose, call)
	if errors.Is(err, wire.ErrTooLarge) {
		return nil, brig.InvalidField("path", "the names of %d files are too long", len(from)).WithHint("compose fewer files at a time")
	}
	return e, err
}

// callForEntry makes a call that returns one entry.
func (f files) callForEntry(ctx context.Context, op wire.Op, call wire.FS) (*brig.Entry, error) {
	return requireSingleEntry(f.callForEntries(ctx, op, call, 1))
}

func requireSingleEntry(es []*brig.Entry, err error) (*brig.Entry, error) {
	if err != nil {
		return nil, err
	}
	if len(es) != 1 {
		return nil, newViolation("%d entries, want one", len(es))
	}
	return es[0], nil
}

// callForEntries makes a call that returns at most the given number of entries.
func (f files) callForEntries(ctx context.Context, op wire.Op, call wire.FS, limit int) ([]*brig.Entry, error) {
	conn, end, err := f.g.call(ctx, wire.Call{Op: op, FS: &call})
	if err != nil {
		return nil, err
	}
	defer end()
	return readEntries(ctx, wire.NewReader(bufio.NewReaderSize(conn, 64<<10)), limit)
}

// readEntries reads all entries of a response.
func readEntries(ctx context.Context, r *wire.Reader, limit int) (out []*brig.Entry, err error) {
	for size := 0; ; {
		f, err := r.Read()
		if err != nil {
			return nil, causeOrError(ctx, err)
		}
		switch size += len(f.Payload); {
		case f.Type == wire.TypeOK:
			return out, nil
		case f.Type == wire.TypeError:
			return nil, decodeAgentError(f.Payload)
		case f.Type != wire.TypeEntry || len(out) == limit:
			return nil, newViolation("unexpected frame %d", f.Type)
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

// decodeEntry decodes the payload of an entry frame.
func decodeEntry(payload []byte) (*brig.Entry, error) {
	var e wire.Entry
	if len(payload) > wire.MaxEntry {
		return nil, newViolation("an entry of %d bytes", len(payload))
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, newMalformedError("entry", err)
	}
	return newEntry(e)
}

// newEntry validates an entry from an agent and converts it.
func newEntry(e wire.Entry) (*brig.Entry, error) {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path {
		return nil, newViolation("an entry of %.100q", e.Path)
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
		switch to := brig.EntryType(e.TargetType); to {
		case brig.RegularFile, brig.Directory, brig.OtherFile:
			out.TargetType, out.TargetMode = to, e.TargetMode&0o777
		}
	}
	size := 0
	for k, v := range e.Metadata {
		if size += len(k) + len(v); size > maxMetadata || k == "" || k != strings.ToLower(k) || strings.ContainsFunc(k+v, isUnprintable) {
			continue // a program in the sandbox or a hostile agent set an invalid key
		}
		if out.Metadata == nil {
			out.Metadata = map[string]string{}
		}
		out.Metadata[k] = v
	}
	return out, nil
}

// maxMetadata is the maximum size of a file's metadata, in bytes.
const maxMetadata = 4096

func isUnprintable(c rune) bool { return c < ' ' || c > '~' }

// pathError is like decodeAgentError, for errors that concern a path.
func pathError(e wire.Error) error {
	of := func(k brig.Kind) *brig.Error {
		err := brig.Errorf(k, "%s", e.Message)
		err.Field = e.Field
		return err
	}
	switch e.Kind {
	case "not_found":
		return of(brig.NotFound).WithHint("list the directory to see its files")
	case "gone":
		return of(brig.NotFound).WithHint("watch the directory again when it is there")
	case "exists":
		return of(brig.AlreadyExists)
	case "invalid":
		return of(brig.InvalidArgument)
	case "denied":
		return of(brig.PermissionDenied).WithHint("file operations have the rights of their user: change the file's mode or owner, or ask as root with a key that may run commands")
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
