package e2b

import (
	"strings"
	"sync"
	"time"
)

// defaultFlushDelay is how long output is buffered to combine it with later
// output of the same stream. maxBuffered is the maximum amount of buffered
// output. A program that prints ten lines may write ten times, and clients
// insert a line break between two messages. The kernels behind E2B's own
// service buffer output for the same time (ipykernel,
// OutStream.flush_interval).
const (
	defaultFlushDelay = 200 * time.Millisecond
	maxBuffered       = 16 << 10
)

// outputBuffer is output of one stream that has not been sent yet.
type outputBuffer struct {
	mu     sync.Mutex // also held while sending, to keep the order
	stream string
	text   strings.Builder
	at     string
	due    *time.Timer
}

// output buffers a program's output and sends it after a short delay.
func (l *lines) output(stream, text string) error {
	if text == "" {
		return nil
	}
	g := &l.outputBuffer
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stream != stream {
		if err := l.flushLocked(); err != nil {
			return err
		}
	}
	if g.text.Len() == 0 {
		g.stream, g.at = stream, timestamp()
		g.due = time.AfterFunc(l.flushDelay, func() { _ = l.flush() }) // send records its error
	}
	g.text.WriteString(text)
	if g.text.Len() >= maxBuffered {
		return l.flushLocked()
	}
	return nil
}

// flush sends all buffered output.
func (l *lines) flush() error {
	l.outputBuffer.mu.Lock()
	defer l.outputBuffer.mu.Unlock()
	return l.flushLocked()
}

// flushLocked is like flush. The caller holds the lock.
func (l *lines) flushLocked() error {
	g := &l.outputBuffer
	if g.text.Len() == 0 {
		return nil
	}
	g.due.Stop()
	text := g.text.String()
	g.text.Reset()
	return l.send(line{Type: g.stream, Text: &text, Timestamp: g.at})
}
