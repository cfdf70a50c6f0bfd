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
	conn, end, err := f.g.call(ctx, wire.Call{Op: wire.OpRead, FS: &wire.FS{Path: at(p), Offset: from, Length: n}})
	if err != nil {
		return nil, nil, err
	}
	r := wire.NewReader(conn)
	e, err := opened(ctx, r)
	if err != nil {
		end()
		return nil, nil, err
	}
	return e, &content{ctx: ctx, r: r, end: end, bounded: n >= 0, left: n}, nil
}

// opened reads the entry that comes before a file's content.
func opened(ctx context.Context, r *wire.Reader) (*brig.Entry, error) {
	f, err := r.Read()
	switch {
	case err != nil:
		return nil, lost(ctx, err)
	case f.Type == wire.TypeError:
		return nil, agentError(f.Payload)
	case f.Type != wire.TypeEntry:
		return nil, fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
	}
	return decodeEntry(f.Payload)
}

// content is a file's content as the agent sends it. Only the end that the
// agent tells is one.
type content struct {
	ctx     context.Context // of the call that opened it, and bounds it
	r       *wire.Reader
	end     func()
	bounded bool
	left    int64 // bytes that may come, if it is bounded
	rest    []byte
	err     error
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
		return lost(c.ctx, err)
	case f.Type == wire.TypeOK:
		return io.EOF
	case f.Type == wire.TypeError:
		return agentError(f.Payload)
	case f.Type != wire.TypeFileData || n == 0 || c.bounded && n > c.left:
		return fmt.Errorf("unexpected frame %d of %d bytes: %w", f.Type, n, ErrLost)
	default:
		c.rest = f.Payload
		c.left -= n
		return nil
	}
}

// Close implements io.Closer. It ends a Read that waits.
func (c *content) Close() error {
	c.end()
	return nil
}

// sourceTime is how long Write waits for a read of its source that nobody
// needs any more. A source that blocks for longer may still be read once after
// Write has returned an error.
const sourceTime = time.Second

// Write implements brig.Files.
func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	conn, end, err := f.g.call(ctx, wire.Call{Op: wire.OpWrite, FS: &wire.FS{Path: at(p), Mode: w.Mode, Metadata: w.Metadata}})
	if err != nil {
		return nil, err
	}
	defer end()
	// An agent that refuses answers while we still write; its answer counts,
	// not the write that failed because of it.
	sent := make(chan error, 1)
	go func() {
		err := send(conn, r)
		if _, ok := errors.AsType[sourceError](err); ok {
			hangUp(conn)
		}
		sent <- err
	}()
	e, err := single(entries(ctx, wire.NewReader(conn), 1))
	conn.Close()
	var broken error
	select {
	case broken = <-sent:
	case <-time.After(sourceTime):
		broken = errors.New("the source goes on")
	}
	source, failed := errors.AsType[sourceError](broken)
	_, told := errors.AsType[*brig.Error](err)
	switch {
	case failed && !told:
		return nil, source.error
	case err != nil:
		return nil, err
	case broken != nil:
		return nil, fmt.Errorf("the agent did not wait for the end (%w): %w", broken, ErrLost)
	}
	return e, nil
}

// hangUp says that nothing more comes, and lets the agent answer what became
// of it, for a moment.
func hangUp(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		conn.Close()
		return
	}
	time.AfterFunc(sourceTime, func() { conn.Close() })
}

// sourceError is what the source of a Write returned.
type sourceError struct{ error }

// send sends all that r has, and that this was all. It stops at the first
// error of either side.
func send(conn io.Writer, r io.Reader) error {
	for buf := make([]byte, wire.HeaderSize+chunk); ; {
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

// fill is io.ReadFull but for the error, which is r's own: an upload that was
// cut off says io.ErrUnexpectedEOF, too, and is no end.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = r.Read(b[n:])
		n += k
	}
	return n, err
}
