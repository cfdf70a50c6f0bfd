package output

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Capture keeps the head and the tail of a stream.
type Capture struct {
	mu sync.Mutex // guards the field below
	ht *wire.HeadTail
}

// NewCapture returns a capture of at most limit bytes.
func NewCapture(limit int64) *Capture { return &Capture{ht: wire.NewHeadTail(int(limit))} }

// Write implements io.Writer.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ht.Write(p)
}

// Output returns the head and the tail of the written bytes.
func (c *Capture) Output() brig.Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	return brig.Output(c.ht.Output())
}

// Tee returns a writer that writes to all non-nil ws, in order. Only the last
// one may fail.
func Tee(ws ...io.Writer) io.Writer {
	var out []io.Writer
	for _, w := range ws {
		if w != nil {
			out = append(out, w)
		}
	}
	return io.MultiWriter(out...)
}

// LogTee copies the beginning of an execution's streams into the sandbox's log
// as they arrive, and the tails after the execution has ended. A flood of
// output thus takes no more space in the log than the execution's output limit.
type LogTee struct {
	log func([]byte) error

	mu        sync.Mutex // guards the fields below
	remaining int64      // remaining bytes to copy as they arrive
	err       error
}

// NewLogTee returns a LogTee that writes with the function log, for an execution with
// the given output limit.
func NewLogTee(log func([]byte) error, limit int64) *LogTee {
	return &LogTee{log: log, remaining: limit / 2}
}

// Stream returns a writer that copies one stream to the log.
func (l *LogTee) Stream() io.Writer { return logStream{l} }

type logStream struct{ l *LogTee }

// Write implements io.Writer. If the log cannot be written, the program
// continues.
func (s logStream) Write(p []byte) (int, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remaining <= 0 || l.err != nil {
		return len(p), nil
	}
	k := min(int64(len(p)), l.remaining)
	l.remaining -= k
	l.err = l.log(p[:k])
	return len(p), nil
}

// Finish writes the tails of streams that were too long to copy completely.
func (l *LogTee) Finish(streams ...brig.Output) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range streams {
		if o.Truncated() && l.err == nil {
			cut := o.Total - int64(len(o.Head)) - int64(len(o.Tail))
			l.err = l.log(append(fmt.Appendf(nil, "\n[… %d bytes cut …]\n", cut), o.Tail...))
		}
	}
	if errors.Is(l.err, io.ErrClosedPipe) {
		return nil
	}
	return l.err
}
