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
	"github.com/brig-run/brig/api/httpapi"
)

// headerTimeout is the longest time that a client waits for the response header. An
// error within that time is answered with its own status. Code that waits for
// an interpreter must not look like an unresponsive server, because the
// clients' timeout covers the time until the header.
const headerTimeout = 250 * time.Millisecond

// resolveTimeout is the longest time that a client waits for the response
// header while the context of a language is created. Only the creation of the
// context shows whether the image supports the language. If it does not, the
// request fails. resolveTimeout is less than the clients' timeout.
const resolveTimeout = 20 * time.Second

// lines streams the events of running code. The response begins with its first
// line, so that an earlier error has its own status. It begins at the latest
// headerTimeout after the code has a context.
type lines struct {
	w      http.ResponseWriter
	cancel context.CancelCauseFunc
	// alive fires after an interval without output.
	alive             *time.Timer
	head              *time.Timer
	keepaliveInterval time.Duration

	out, err httpapi.Text    // used only by RunCode
	pending  *brig.CodeError // an exception that is not sent yet; used only by RunCode

	flushDelay   time.Duration
	outputBuffer outputBuffer

	mu            sync.Mutex // guards the fields below
	responseBegun bool
	// resolving means that the context of the code is not known yet.
	resolving bool
	ran       bool
	failed    bool // an exception was sent
	closed    bool
	writeErr  error
}

// newLines returns a stream, a context that ends when the client disconnects,
// and a function that stops the keepalives.
func newLines(w http.ResponseWriter, r *http.Request, keepaliveInterval, flushDelay time.Duration, resolving bool) (*lines, context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	l := &lines{w: w, cancel: cancel, keepaliveInterval: keepaliveInterval, flushDelay: flushDelay, resolving: resolving}
	wait := headerTimeout
	if resolving {
		wait = resolveTimeout
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive = time.AfterFunc(keepaliveInterval, func() {
		if l.isPostponed() {
			return
		}
		_ = l.send(line{Type: "keepalive"}) // send records its error
	})
	l.head = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.resolving = false
		if l.responseBegun || l.closed || l.writeErr != nil {
			return
		}
		l.begin()
		if err := http.NewResponseController(l.w).Flush(); err != nil {
			l.writeErr = brig.Errorf(brig.Canceled, "the client disconnected").Because(err)
			l.cancel(l.writeErr)
		}
	})
	return l, ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed = true
		l.alive.Stop()
		l.head.Stop()
		cancel(nil)
	}
}

// isPostponed reports whether a keepalive is not sent yet, because it would begin
// the response.
func (l *lines) isPostponed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resolving && !l.closed {
		l.alive.Reset(l.keepaliveInterval)
	}
	return l.resolving
}

// resolved starts the timer for the response header, because the code now has a
// context.
func (l *lines) resolved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resolving {
		l.resolving = false
		l.head.Reset(headerTimeout)
	}
}

// lineEnd is the type of the last line.
const lineEnd = "end_of_execution"

// line has the fields of all lines of the stream except results.
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
	return l.responseBegun
}

// hasRun reports whether the code has begun to run.
func (l *lines) hasRun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran
}

// begin sends the response header. The caller holds l.mu.
func (l *lines) begin() {
	l.responseBegun = true
	l.w.Header().Set("Content-Type", "application/x-ndjson")
	l.w.Header().Set("X-Accel-Buffering", "no")
	l.w.WriteHeader(http.StatusOK)
}

// send writes one line and flushes it. The line is pure ASCII, because clients
// decode the stream in chunks that may split a character.
func (l *lines) send(v any) error {
	b, err := httpapi.Marshal(v) // includes a line feed
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writeErr != nil || l.closed {
		return l.writeErr
	}
	if !l.responseBegun {
		l.begin()
	}
	if _, err = l.w.Write(ascii(b)); err == nil {
		err = http.NewResponseController(l.w).Flush()
	}
	if err != nil {
		l.writeErr = brig.Errorf(brig.Canceled, "the client disconnected").Because(err)
		l.cancel(l.writeErr)
		return l.writeErr
	}
	if last, ok := v.(line); ok && last.Type == lineEnd {
		l.closed = true // no keepalive may follow the last line
		l.alive.Stop()
		return nil
	}
	l.alive.Reset(l.keepaliveInterval)
	return nil
}

// ascii escapes non-ASCII characters in a JSON document.
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
