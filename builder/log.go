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

// Bounds of the output that a failure quotes.
const (
	keptLines = 20
	keptBytes = 2000
)

// lastLines keeps the last lines of a command. Both of its streams write to it, because the reason of
// a failure may be in either: apt-get writes the errors of dpkg to its standard output.
type lastLines struct {
	mu    sync.Mutex // guards the field below
	lines []string
}

func (l *lastLines) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines = append(l.lines, text); len(l.lines) > keptLines {
		l.lines = l.lines[1:]
	}
}

// text returns the last lines that have at most keptBytes together.
func (l *lastLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, size := len(l.lines), 0
	for first > 0 {
		if size += len(l.lines[first-1]) + 1; size > keptBytes+1 {
			break
		}
		first--
	}
	if first == len(l.lines) && first > 0 {
		return brig.Clip(l.lines[first-1], keptBytes)
	}
	return strings.Join(l.lines[first:], "\n")
}

// lineWriter adds the lines of a stream to a log.
type lineWriter struct {
	log         *buildLog
	level, step string
	last        *lastLines

	mu   sync.Mutex // guards the field below
	rest []byte
}

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
	w.last.add(text)
}

// flush ends the last line.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) > 0 {
		w.endLine()
	}
}
