package builder

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Bounds of a build's log. Later lines are dropped, except that of a failure.
const (
	maxLogBytes = 256 * brig.KiB
	maxLine     = 4 * brig.KiB
)

// buildLog is the log of a running build.
type buildLog struct {
	now func() time.Time

	mu        sync.Mutex // guards the fields below
	all       []brig.BuildLine
	bytes     int
	truncated bool
}

func newBuildLog(now func() time.Time) *buildLog { return &buildLog{now: now} }

// add appends a line.
func (l *buildLog) add(level, step, text string) {
	const overhead = 64 // of a line in the store
	text = strings.ToValidUTF8(brig.Clip(text, maxLine), "\uFFFD")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes += len(text) + overhead; l.bytes > maxLogBytes && level != "error" {
		if l.truncated {
			return
		}
		l.truncated, level, text = true, "warn", "the log is full; the following output is not recorded"
	}
	l.all = append(l.all, brig.BuildLine{Time: l.now().UTC(), Level: level, Step: step, Text: text})
}

// lines returns the lines so far. The result must not be changed.
func (l *buildLog) lines() []brig.BuildLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[:len(l.all):len(l.all)]
}

// lineWriter adds the lines of a stream to a log.
type lineWriter struct {
	log         *buildLog
	level, step string

	mu   sync.Mutex // guards the fields below
	rest []byte
	last []string // the last lines
}

// keptLines is the number of lines that a failure quotes.
const keptLines = 20

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(w.rest); room > 0 {
			w.rest = append(w.rest, line[:min(len(line), room)]...)
		}
		if !whole {
			break
		}
		w.endLine()
		p = rest
	}
	return n, nil
}

// endLine ends the current line. The caller holds w.mu.
func (w *lineWriter) endLine() {
	text := strings.TrimRight(string(w.rest), "\r")
	w.rest = w.rest[:0]
	w.log.add(w.level, w.step, text)
	if w.last = append(w.last, text); len(w.last) > keptLines {
		w.last = w.last[1:]
	}
}

// flush ends the last line, and returns the last lines of the stream.
func (w *lineWriter) flush() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.endLine()
	}
	return w.last
}
