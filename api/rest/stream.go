package rest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// pingEvery is how often a stream shows that it lives. A ping that cannot be
// written is how a client's end is noticed while its body is still open.
const pingEvery = 15 * time.Second

// sendTimeout is how long a client may leave one event unread. Back-pressure
// is welcome, but a process must not hang for ever on a client that stopped.
const sendTimeout = 5 * time.Minute

// mostData bounds how many bytes of output one event carries.
const mostData = 32 << 10

// stream writes events, as NDJSON or as server-sent events. The answer begins
// with the first of them, so that what fails before has a status of its own.
type stream struct {
	w      http.ResponseWriter
	r      *http.Request
	sse    bool
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below
	begun bool
	err   error
}

// accepts reports which stream r's Accept header asks for, if one.
func accepts(r *http.Request) (ndjson, sse bool) {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch t, _, _ := mime.ParseMediaType(part); t {
		case wire.NDJSON:
			ndjson = true
		case wire.SSE:
			sse = true
		}
	}
	return ndjson, sse && !ndjson
}

// newStream returns a stream and a context that ends when the client goes
// away, or when close is called, which waits for the stream's goroutine.
func newStream(w http.ResponseWriter, r *http.Request) (s *stream, ctx context.Context, stop func()) {
	_, sse := accepts(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	s = &stream{w: w, r: r, sse: sse, cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if s.started() {
					_ = s.send(wire.EventPing, struct{}{}) // send remembers its error
				}
			}
		}
	}()
	return s, ctx, func() { cancel(nil); <-done }
}

func (s *stream) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// send writes one event and flushes it. After an error every send fails, and
// the stream's context has ended.
func (s *stream) send(event string, v any) error {
	body, err := door.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", wire.NDJSON)
		if s.sse {
			s.w.Header().Set("Content-Type", wire.SSE)
		}
		// Proxies that gather output before passing it on are told not to.
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	rc := http.NewResponseController(s.w)
	timed := rc.SetWriteDeadline(time.Now().Add(sendTimeout)) == nil
	if _, err = s.w.Write(s.frame(event, body)); err == nil {
		err = rc.Flush()
	}
	if err == nil && timed {
		err = rc.SetWriteDeadline(time.Time{}) // the connection may serve others
	}
	if err != nil {
		s.err = brig.Errorf(brig.Canceled, "the client went away").Because(err)
		s.cancel(s.err)
	}
	return s.err
}

// frame puts the event's name into its document, and both into a line or an
// SSE message.
func (s *stream) frame(event string, body []byte) []byte {
	var b bytes.Buffer
	if s.sse {
		fmt.Fprintf(&b, "event: %s\ndata: ", event)
	}
	fmt.Fprintf(&b, `{"event":%q`, event)
	if rest := body[1:]; rest[0] != '}' {
		b.WriteByte(',')
	}
	b.Write(body[1:]) // its line feed included
	if s.sse {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// end sends the last event: err if there is one, v otherwise. An error before
// anything was sent is returned, to be answered as such.
func (s *stream) end(v any, err error) error {
	if err == nil {
		return s.send(wire.EventResult, v)
	}
	if !s.started() {
		return err
	}
	err = inRequestTerms(err)
	door.Log(s.r, err)
	return s.send(wire.EventError, door.Body(err))
}

// output is a writer whose bytes go out as events. What it holds back is the
// beginning of a character whose end has not come yet.
type output struct {
	s     *stream
	event string

	mu   sync.Mutex // guards the field below
	held []byte
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := min(len(rest), mostData)
		data := append(o.held, rest[:n]...)
		rest = rest[n:]
		whole := len(data) - incomplete(data)
		o.held = bytes.Clone(data[whole:])
		if err := o.emit(data[:whole]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush sends what was held back, for no more is coming.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	data := o.held
	o.held = nil
	return o.emit(data)
}

func (o *output) emit(data []byte) error {
	switch {
	case len(data) == 0:
		return nil
	case utf8.Valid(data):
		return o.s.send(o.event, wire.Chunk{Data: string(data)})
	}
	return o.s.send(o.event, wire.Chunk{DataB64: data})
}

// incomplete returns how many bytes at the end of data begin a character that
// may yet become whole.
func incomplete(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// outputs are the writers of one execution.
type outputs []*output

// to returns a writer whose bytes go out as event, if the event is wanted.
func (s *stream) to(event string, wanted bool, all *outputs) io.Writer {
	if !wanted {
		return nil
	}
	o := &output{s: s, event: event}
	*all = append(*all, o)
	return o
}

func (all outputs) flush() error {
	for _, o := range all {
		if err := o.flush(); err != nil {
			return err
		}
	}
	return nil
}
