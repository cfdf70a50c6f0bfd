package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// capture keeps the head and the tail of a stream.
type capture struct {
	mu sync.Mutex // guards the field below
	ht *wire.HeadTail
}

func newCapture(limit int64) *capture { return &capture{ht: wire.NewHeadTail(int(limit))} }

// Write implements io.Writer.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ht.Write(p)
}

func (c *capture) output() brig.Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	return brig.Output(c.ht.Output())
}

// tee returns a writer that writes to all non-nil ws, in order. Only the last
// one may fail.
func tee(ws ...io.Writer) io.Writer {
	var out []io.Writer
	for _, w := range ws {
		if w != nil {
			out = append(out, w)
		}
	}
	return io.MultiWriter(out...)
}

// logTee copies the beginning of an execution's streams into the sandbox's log
// as they arrive, and the tails after the execution has ended. A flood of
// output thus takes no more space in the log than the execution's output limit.
type logTee struct {
	in brig.Instance

	mu   sync.Mutex // guards the fields below
	left int64      // remaining bytes to copy as they arrive
	err  error
}

func newLogTee(in brig.Instance, limit int64) *logTee { return &logTee{in: in, left: limit / 2} }

// stream returns a writer that copies one stream to the log.
func (l *logTee) stream() io.Writer { return logStream{l} }

type logStream struct{ l *logTee }

// Write implements io.Writer. If the log cannot be written, the program
// continues.
func (s logStream) Write(p []byte) (int, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left <= 0 || l.err != nil {
		return len(p), nil
	}
	k := min(int64(len(p)), l.left)
	l.left -= k
	l.err = l.in.Log(p[:k])
	return len(p), nil
}

// finish writes the tails of streams that were too long to copy completely.
func (l *logTee) finish(streams ...brig.Output) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range streams {
		if o.Truncated() && l.err == nil {
			cut := o.Total - int64(len(o.Head)) - int64(len(o.Tail))
			l.err = l.in.Log(append(fmt.Appendf(nil, "\n[… %d bytes cut …]\n", cut), o.Tail...))
		}
	}
	if errors.Is(l.err, io.ErrClosedPipe) {
		return nil
	}
	return l.err
}

// tailLines returns the last n lines of a log. It gets the same log twice: it counts the
// lines in one reader, and skips lines in the other. So it needs no memory for the lines,
// which may be as many as the bytes. It closes whole, and its result closes last.
func tailLines(ctx context.Context, whole, last io.ReadCloser, n int) (io.ReadCloser, error) {
	defer whole.Close()
	lines, size, err := measureLog(ctx, whole)
	if err == nil {
		// Lines that are written meanwhile are not counted.
		rest := bufio.NewReaderSize(io.LimitReader(last, size), 64<<10)
		if err = skipLines(ctx, rest, lines-int64(n)); err == nil {
			return struct {
				io.Reader
				io.Closer
			}{rest, last}, nil
		}
	}
	last.Close()
	return nil, fmt.Errorf("read log: %w", err)
}

// measureLog counts the lines and bytes of r. The last line may be incomplete.
func measureLog(ctx context.Context, r io.Reader) (lines, size int64, err error) {
	buf, ended := make([]byte, 64<<10), true
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		if n > 0 {
			lines += int64(bytes.Count(buf[:n], []byte{'\n'}))
			size += int64(n)
			ended = buf[n-1] == '\n'
		}
		if errors.Is(err, io.EOF) {
			if !ended {
				lines++
			}
			return lines, size, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, context.Cause(ctx)
}

// skipLines reads n lines.
func skipLines(ctx context.Context, r *bufio.Reader, n int64) error {
	for n > 0 && ctx.Err() == nil {
		switch _, err := r.ReadSlice('\n'); {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull): // the rest of the line follows
			return err
		}
	}
	return context.Cause(ctx)
}
