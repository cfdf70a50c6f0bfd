package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Unpack implements brig.Trees.Unpack.
func (g *Guest) Unpack(ctx context.Context, dir string, o brig.UnpackOptions, source func(put func(brig.Node, io.Reader) error) error) error {
	u := newUser(o.User)
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpUnpack, Tree: &wire.Tree{Dir: dir, UID: u.uid, GID: u.gid, Sealed: o.Sealed}})
	if err != nil {
		return err
	}
	defer end()
	// An agent that rejects the call may respond while the host is still writing. Return the
	// agent's response instead of the resulting write error. Therefore only an error of the source
	// closes the connection.
	sent := make(chan error, 1)
	go func() {
		to := &failedWriter{w: conn}
		w := bufio.NewWriterSize(to, chunkSize)
		buf := make([]byte, chunkSize)
		err := source(func(n brig.Node, r io.Reader) error { return sendNode(w, buf, n, r) })
		if err == nil {
			err = wire.Write(w, wire.TypeFilesEnd, nil)
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil && !to.failed {
			conn.Close() // the agent's response to an incomplete tree is not needed
		}
		sent <- err
	}()
	err = finish(ctx, wire.NewReader(conn))
	conn.Close()
	broken := <-sent
	switch _, isReported := errors.AsType[*brig.Error](err); {
	case isReported, broken == nil, ctx.Err() != nil:
		return err
	default:
		return broken
	}
}

// failedWriter is a writer that records whether a write has failed.
type failedWriter struct {
	w      io.Writer
	failed bool
}

// Write implements io.Writer.
func (f *failedWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	f.failed = f.failed || err != nil
	return n, err
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

// Pack implements brig.Trees.Pack.
func (g *Guest) Pack(ctx context.Context, dir string, on func(brig.Node, io.Reader) error) error {
	return g.readNodes(ctx, wire.Call{Op: wire.OpPack, Tree: &wire.Tree{Dir: dir, MaxFile: brig.MaxWorkspaceFile}}, on)
}

// Changed implements brig.Trees.Changed.
func (g *Guest) Changed(ctx context.Context, paths []string, since time.Time, on func(brig.Node, io.Reader) error) error {
	return g.readNodes(ctx, wire.Call{Op: wire.OpChanged, Tree: &wire.Tree{Paths: paths, SinceNS: since.UnixNano(), MaxFile: brig.MaxWorkspaceFile}}, on)
}

// readNodes makes a call whose response is a sequence of nodes, and calls on for each node.
func (g *Guest) readNodes(ctx context.Context, call wire.Call, on func(brig.Node, io.Reader) error) error {
	conn, end, err := g.call(ctx, call)
	if err != nil {
		return err
	}
	defer end()
	r := wire.NewReader(bufio.NewReaderSize(conn, 256<<10))
	for {
		f, err := r.Read()
		if err != nil {
			return causeOrError(ctx, err)
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

// decodeNode decodes a node. It rejects inconsistent nodes and paths outside
// the tree.
func decodeNode(payload []byte) (brig.Node, error) {
	var w wire.Node
	if len(payload) > wire.MaxNode {
		return brig.Node{}, newViolation("a node of %d bytes", len(payload))
	}
	if err := json.Unmarshal(payload, &w); err != nil {
		return brig.Node{}, newMalformedError("node", err)
	}
	n := brig.Node{Path: string(w.Path), Type: brig.EntryType(w.Type), Skipped: w.Skipped}
	if n.Skipped != "" {
		if n.Path == "" {
			n.Path = "."
		}
		n.Skipped = clipGuestText(strings.ToValidUTF8(n.Skipped, "?"))
		n.Type = brig.OtherFile
		return n, nil
	}
	if !isLocalPath(n.Path) || len(w.Target) > wire.MaxNodePath || w.Size < 0 {
		return brig.Node{}, newViolation("a node of %.100q", n.Path)
	}
	n.Mode = w.Mode & 0o777
	switch n.Type {
	case brig.RegularFile:
		n.Size, n.Modified = w.Size, time.Unix(0, w.ModifiedNS).UTC()
	case brig.Directory:
	case brig.Symlink:
		n.Target, n.Mode = string(w.Target), 0o777
	default:
		return brig.Node{}, newViolation("a node of type %.20q", w.Type)
	}
	return n, nil
}

// isLocalPath reports whether a path is inside the tree.
func isLocalPath(p string) bool {
	return p != "." && len(p) <= wire.MaxNodePath && path.Clean(p) == p && filepath.IsLocal(p) && !strings.ContainsRune(p, 0)
}

// clipGuestText shortens text from a guest for use in error messages.
func clipGuestText(s string) string { return s[:min(len(s), 200)] }

// nodeBody is the content of a node, up to the frame that ends it.
type nodeBody struct {
	ctx  context.Context // the context of the call that receives the node
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
			b.err = causeOrError(b.ctx, err)
		case f.Type == wire.TypeNodeEnd:
			b.err = io.EOF
		case f.Type == wire.TypeError:
			b.err = decodeAgentError(f.Payload)
		case f.Type != wire.TypeFileData || len(f.Payload) == 0:
			b.err = newViolation("unexpected frame %d", f.Type)
		default:
			b.rest = f.Payload
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Quiet implements brig.Trees.Quiet.
func (g *Guest) Quiet(ctx context.Context, grace time.Duration) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpQuiet, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}})
}
