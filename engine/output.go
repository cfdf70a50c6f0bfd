package engine

import (
	"bufio"
	"bytes"
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

// tailLines returns the last n lines of r, and closes r.
func tailLines(r io.ReadCloser, n int) (io.ReadCloser, error) {
	defer r.Close()
	b, err := lastLines(r, n)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// lastLines returns the last n lines of r.
func lastLines(r io.Reader, n int) ([]byte, error) {
	lines := make([][]byte, 0, min(n, 1024))
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			if len(lines) == n {
				lines = append(lines[:0], lines[1:]...)
			}
			lines = append(lines, line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
	}
	return bytes.Join(lines, nil), nil
}
