package e2b

import (
	"strings"
	"sync"
	"time"
)

// gatherTime is how long output waits for more of its stream, and gatherSize
// how much of it waits. A program that prints ten lines writes ten times, and
// clients put a line's end between any two messages. The kernels behind E2B's
// own service gather as long (ipykernel, OutStream.flush_interval).
const (
	gatherTime = 200 * time.Millisecond
	gatherSize = 16 << 10
)

// gathered is output of one stream that is not told yet.
type gathered struct {
	mu     sync.Mutex // held over the telling, too: what comes later is told later
	stream string
	text   strings.Builder
	at     string
	due    *time.Timer
}

// output tells of a program's output, soon.
func (l *lines) output(stream, text string) error {
	if text == "" {
		return nil
	}
	g := &l.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stream != stream {
		if err := l.tell(); err != nil {
			return err
		}
	}
	if g.text.Len() == 0 {
		g.stream, g.at = stream, stamp()
		g.due = time.AfterFunc(l.gather, func() { _ = l.told() }) // send remembers its error
	}
	g.text.WriteString(text)
	if g.text.Len() >= gatherSize {
		return l.tell()
	}
	return nil
}

// told tells of all output that there has been.
func (l *lines) told() error {
	l.gathered.mu.Lock()
	defer l.gathered.mu.Unlock()
	return l.tell()
}

// tell is told for who holds the lock.
func (l *lines) tell() error {
	g := &l.gathered
	if g.text.Len() == 0 {
		return nil
	}
	g.due.Stop()
	text := g.text.String()
	g.text.Reset()
	return l.send(line{Type: g.stream, Text: &text, Timestamp: g.at})
}
