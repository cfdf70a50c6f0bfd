package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Read implements brig.Files.
func (f files) Read(ctx context.Context, p brig.Path, from, n int64) (*brig.Entry, io.ReadCloser, error) {
	conn, end, err := f.g.call(ctx, wire.Call{Op: wire.OpRead, FS: &wire.FS{Path: wirePath(p), Offset: from, Length: n}})
	if err != nil {
		return nil, nil, err
	}
	r := wire.NewReader(conn)
	e, err := readFirstEntry(ctx, r)
	if err != nil {
		end()
		return nil, nil, err
	}
	return e, &content{ctx: ctx, r: r, end: end, bounded: n >= 0, remaining: n}, nil
}

// readFirstEntry reads the entry that precedes a file's content.
func readFirstEntry(ctx context.Context, r *wire.Reader) (*brig.Entry, error) {
	f, err := r.Read()
	switch {
	case err != nil:
		return nil, causeOrError(ctx, err)
	case f.Type == wire.TypeError:
		return nil, decodeAgentError(f.Payload)
	case f.Type != wire.TypeEntry:
		return nil, newViolation("unexpected frame %d", f.Type)
	}
	return decodeEntry(f.Payload)
}

// content reads a file's content from the agent. It returns io.EOF only after the agent has
// reported the end.
type content struct {
	ctx       context.Context // the context of the call that opened it
	r         *wire.Reader
	end       func()
	bounded   bool
	remaining int64 // remaining bytes, if the length is limited
	rest      []byte
	err       error
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.rest) == 0 {
		if c.err == nil {
			c.err = c.next()
		}
		if c.err != nil {
			return 0, c.err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads the next frame into rest.
func (c *content) next() error {
	f, err := c.r.Read()
	switch n := int64(len(f.Payload)); {
	case err != nil:
		return causeOrError(c.ctx, err)
	case f.Type == wire.TypeOK:
		return io.EOF
	case f.Type == wire.TypeError:
		return decodeAgentError(f.Payload)
	case f.Type != wire.TypeFileData || n == 0 || c.bounded && n > c.remaining:
		return newViolation("unexpected frame %d of %d bytes", f.Type, n)
	default:
		c.rest = f.Payload
		c.remaining -= n
		return nil
	}
}

// Close implements io.Closer. It interrupts a pending Read.
func (c *content) Close() error {
	c.end()
	return nil
}

// sourceTimeout is how long Write waits for a pending read of its source after the write has
// ended. If the source blocks longer, Write may return before the read ends.
const sourceTimeout = time.Second

// Write implements brig.Files.
func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	conn, end, err := f.g.call(ctx, wire.Call{Op: wire.OpWrite, FS: &wire.FS{Path: wirePath(p), Mode: w.Mode, Metadata: w.Metadata}})
	if err != nil {
		return nil, err
	}
	defer end()
	// An agent that rejects the call may respond while the host is still writing. Return the
	// agent's response instead of the resulting write error.
	sent := make(chan error, 1)
	go func() {
		err := send(conn, r)
		if _, ok := errors.AsType[sourceError](err); ok {
			disconnect(conn)
		}
		sent <- err
	}()
	e, err := requireSingleEntry(readEntries(ctx, wire.NewReader(conn), 1))
	conn.Close()
	var broken error
	select {
	case broken = <-sent:
	case <-time.After(sourceTimeout):
		broken = errors.New("the source goes on")
	}
	source, failed := errors.AsType[sourceError](broken)
	_, isReported := errors.AsType[*brig.Error](err)
	switch {
	case failed && !isReported:
		return nil, source.error
	case err != nil:
		return nil, err
	case broken != nil:
		return nil, fmt.Errorf("the agent did not wait for the end (%w): %w", broken, ErrLost)
	}
	return e, nil
}

// disconnect closes the write side of a connection immediately, and the whole connection after
// sourceTimeout, so that the agent can respond.
func disconnect(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		conn.Close()
		return
	}
	time.AfterFunc(sourceTimeout, func() { conn.Close() })
}

// sourceError is an error of the source of a Write.
type sourceError struct{ error }

// send sends the content of r and the end marker. It stops at the first error
// of r or conn.
func send(conn io.Writer, r io.Reader) error {
	for buf := make([]byte, wire.HeaderSize+chunkSize); ; {
		n, err := fill(r, buf[wire.HeaderSize:])
		if n > 0 {
			wire.PutHeader(buf, wire.TypeFileData, n)
			if _, err := conn.Write(buf[:wire.HeaderSize+n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return wire.Write(conn, wire.TypeFilesEnd, nil)
		}
		if err != nil {
			return sourceError{err}
		}
	}
}

// fill is like io.ReadFull but returns the error of r unchanged. For an interrupted upload, r
// returns io.ErrUnexpectedEOF, which must not be mistaken for the end of the content.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = r.Read(b[n:])
		n += k
	}
	return n, err
}
