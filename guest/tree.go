package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Unpack implements the Unpack of brig.Trees.
func (g *Guest) Unpack(ctx context.Context, dir string, o brig.UnpackOptions, source func(put func(brig.Node, io.Reader) error) error) error {
	u := account(o.User)
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpUnpack, Tree: &wire.Tree{Dir: dir, UID: u.uid, GID: u.gid, Sealed: o.Sealed}})
	if err != nil {
		return err
	}
	defer end()
	// An agent that refuses answers while we still write; its answer counts,
	// not the write that failed because of it.
	sent := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(conn, chunk)
		buf := make([]byte, chunk)
		err := source(func(n brig.Node, r io.Reader) error { return sendNode(w, buf, n, r) })
		if err == nil {
			err = wire.Write(w, wire.TypeFilesEnd, nil)
		}
		if err == nil {
			err = w.Flush()
		} else {
			conn.Close() // nobody waits for the answer to half a tree
		}
		sent <- err
	}()
	err = finish(ctx, wire.NewReader(conn))
	conn.Close()
	broken := <-sent
	switch _, told := errors.AsType[*brig.Error](err); {
	case told, broken == nil, ctx.Err() != nil:
		return err
	default:
		return broken
	}
}

// sendNode sends a node and its content.
func sendNode(w io.Writer, buf []byte, n brig.Node, r io.Reader) error {
	err := wire.WriteJSON(w, wire.TypeNode, wire.Node{
		Path: []byte(n.Path), Type: string(n.Type), Mode: n.Mode, Size: n.Size, ModifiedNS: n.Modified.UnixNano(), Target: []byte(n.Target),
	})
	if err != nil || n.Type != brig.RegularFile {
		return err
	}
	for err == nil {
		var k int
		if k, err = fill(r, buf); k > 0 {
			if lost := wire.Write(w, wire.TypeFileData, buf[:k]); lost != nil {
				return lost
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return wire.Write(w, wire.TypeNodeEnd, nil)
}

// Pack implements the Pack of brig.Trees.
func (g *Guest) Pack(ctx context.Context, dir string, on func(brig.Node, io.Reader) error) error {
	return g.nodes(ctx, wire.Call{Op: wire.OpPack, Tree: &wire.Tree{Dir: dir, MaxFile: brig.MaxWorkspaceFile}}, on)
}

// Changed implements the Changed of brig.Trees.
func (g *Guest) Changed(ctx context.Context, paths []string, since time.Time, on func(brig.Node, io.Reader) error) error {
	return g.nodes(ctx, wire.Call{Op: wire.OpChanged, Tree: &wire.Tree{Paths: paths, SinceNS: since.UnixNano(), MaxFile: brig.MaxWorkspaceFile}}, on)
}

// nodes makes a call that is answered with nodes.
func (g *Guest) nodes(ctx context.Context, call wire.Call, on func(brig.Node, io.Reader) error) error {
	conn, end, err := g.call(ctx, call)
	if err != nil {
		return err
	}
	defer end()
	r := wire.NewReader(bufio.NewReaderSize(conn, 256<<10))
	for {
		f, err := r.Read()
		if err != nil {
			return lost(ctx, err)
		}
		if f.Type != wire.TypeNode {
			return endOf(f)
		}
		n, err := decodeNode(f.Payload)
		if err != nil {
			return err
		}
		if n.Type != brig.RegularFile || n.Skipped != "" {
			if err := on(n, nil); err != nil {
				return err
			}
			continue
		}
		body := &nodeBody{ctx: ctx, r: r}
		if err := on(n, body); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
	}
}

// decodeNode reads a node, and lets none pass that is not what it says, or not
// below its tree.
func decodeNode(payload []byte) (brig.Node, error) {
	var w wire.Node
	if len(payload) > wire.MaxNode {
		return brig.Node{}, fmt.Errorf("a node of %d bytes: %w", len(payload), ErrLost)
	}
	if err := json.Unmarshal(payload, &w); err != nil {
		return brig.Node{}, fmt.Errorf("decode node: %w (%w)", ErrLost, err)
	}
	n := brig.Node{Path: string(w.Path), Type: brig.EntryType(w.Type), Skipped: w.Skipped}
	if n.Skipped != "" {
		if n.Path == "" {
			n.Path = "."
		}
		n.Skipped = clipped(strings.ToValidUTF8(n.Skipped, "?"))
		n.Type = brig.OtherFile
		return n, nil
	}
	if !localPath(n.Path) || len(w.Target) > wire.MaxNodePath || w.Size < 0 {
		return brig.Node{}, fmt.Errorf("a node of %.100q: %w", n.Path, ErrLost)
	}
	n.Mode = w.Mode & 0o777
	switch n.Type {
	case brig.RegularFile:
		n.Size, n.Modified = w.Size, time.Unix(0, w.ModifiedNS).UTC()
	case brig.Directory:
	case brig.Symlink:
		n.Target, n.Mode = string(w.Target), 0o777
	default:
		return brig.Node{}, fmt.Errorf("a node of type %.20q: %w", w.Type, ErrLost)
	}
	return n, nil
}

// localPath reports whether a path names something below its tree.
func localPath(p string) bool {
	return p != "." && len(p) <= wire.MaxNodePath && path.Clean(p) == p && filepath.IsLocal(p) && !strings.ContainsRune(p, 0)
}

// clipped bounds what a guest says that goes on to callers.
func clipped(s string) string { return s[:min(len(s), 200)] }

// nodeBody is the content of a node, up to the frame that ends it.
type nodeBody struct {
	ctx  context.Context // of the call that it belongs to
	r    *wire.Reader
	rest []byte
	err  error
}

// Read implements io.Reader.
func (b *nodeBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		f, err := b.r.Read()
		switch {
		case err != nil:
			b.err = lost(b.ctx, err)
		case f.Type == wire.TypeNodeEnd:
			b.err = io.EOF
		case f.Type == wire.TypeError:
			b.err = agentError(f.Payload)
		case f.Type != wire.TypeFileData || len(f.Payload) == 0:
			b.err = fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
		default:
			b.rest = f.Payload
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Quiet implements the Quiet of brig.Trees.
func (g *Guest) Quiet(ctx context.Context, grace time.Duration) error {
	return g.simple(ctx, wire.Call{Op: wire.OpQuiet, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}})
}
