package e2b

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// sendTimeout is how long a client may leave one line unread.
const sendTimeout = 5 * time.Minute

// lines streams what code does. The answer begins with its first line, so
// that what fails before has a status of its own; or with the first sign of
// life, while the code waits for its turn.
type lines struct {
	w      http.ResponseWriter
	cancel context.CancelCauseFunc
	// alive fires after silence.
	alive   *time.Timer
	silence time.Duration

	out, err door.Text // these are RunCode's alone

	gather   time.Duration
	gathered gathered

	mu     sync.Mutex // guards the fields below
	begun  bool
	ran    bool
	failed bool // an exception was told of
	closed bool
	broken error
}

// newLines returns a stream, a context that ends when nobody reads it, and
// what ends its signs of life.
func newLines(w http.ResponseWriter, r *http.Request, silence, gather time.Duration) (*lines, context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	l := &lines{w: w, cancel: cancel, silence: silence, gather: gather}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive = time.AfterFunc(silence, func() {
		_ = l.send(line{Type: "keepalive"}) // send remembers its error
	})
	return l, ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed = true
		l.alive.Stop()
		cancel(nil)
	}
}

// lineEnd is the type of the last line.
const lineEnd = "end_of_execution"

// line is every line but a result.
type line struct {
	Type      string  `json:"type"`
	Count     *int    `json:"execution_count,omitempty"`
	Text      *string `json:"text,omitempty"`
	Timestamp string  `json:"timestamp,omitempty"`
	Name      *string `json:"name,omitempty"`
	Value     *string `json:"value,omitempty"`
	Traceback *string `json:"traceback,omitempty"`
}

func (l *lines) hasBegun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// hasRun reports whether any of the code has run.
func (l *lines) hasRun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran
}

// send writes one line. Clients decode what they read piece by piece, so
// there is nothing but ASCII in it, and it is flushed at its end.
func (l *lines) send(v any) error {
	b, err := door.Marshal(v) // with a line feed
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil || l.closed {
		return l.broken
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("X-Accel-Buffering", "no")
		l.w.WriteHeader(http.StatusOK)
	}
	rc := http.NewResponseController(l.w)
	timed := rc.SetWriteDeadline(time.Now().Add(sendTimeout)) == nil
	if _, err = l.w.Write(ascii(b)); err == nil {
		err = rc.Flush()
	}
	if err == nil && timed {
		err = rc.SetWriteDeadline(time.Time{}) // the connection may serve others
	}
	if err != nil {
		l.broken = brig.Errorf(brig.Canceled, "the client went away").Because(err)
		l.cancel(l.broken)
		return l.broken
	}
	if last, ok := v.(line); ok && last.Type == lineEnd {
		l.closed = true // no sign of life comes after it
		l.alive.Stop()
		return nil
	}
	l.alive.Reset(l.silence)
	return nil
}

// ascii writes what is not ASCII in a JSON document as escapes.
func ascii(b []byte) []byte {
	plain := bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
	if plain < 0 {
		return b
	}
	const hex = "0123456789abcdef"
	out := append(make([]byte, 0, len(b)+64), b[:plain]...)
	unit := func(r rune) {
		out = append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	for _, r := range string(b[plain:]) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			unit(high)
			unit(low)
		default:
			unit(r)
		}
	}
	return out
}
