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
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// pingEvery is the interval of keepalives on a stream. A failed ping also
// reveals that a client has disconnected while its body is still open.
const pingEvery = 15 * time.Second

// maxData is the maximum number of output bytes in one event.
const maxData = 32 << 10

// stream writes events as NDJSON or as server-sent events. The response begins
// with the first event, so that an earlier error has its own status.
type stream struct {
	w      http.ResponseWriter
	r      *http.Request
	sse    bool
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below
	begun bool
	err   error
}

// acceptedFormat reports which stream format r's Accept header requests, if
// any.
func acceptedFormat(r *http.Request) (ndjson, sse bool) {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch t, _, _ := mime.ParseMediaType(part); t {
		case v1.NDJSON:
			ndjson = true
		case v1.SSE:
			sse = true
		}
	}
	return ndjson, sse && !ndjson
}

// newStream returns a stream and a context that ends when the client
// disconnects or when stop is called. stop waits for the stream's goroutine.
func newStream(w http.ResponseWriter, r *http.Request) (s *stream, ctx context.Context, stop func()) {
	_, sse := acceptedFormat(r)
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
				if s.hasStarted() {
					_ = s.send(v1.EventPing, struct{}{}) // send records its error
				}
			}
		}
	}()
	return s, ctx, func() { cancel(nil); <-done }
}

func (s *stream) hasStarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// send writes one event and flushes it. After an error, every later send fails,
// and the stream's context is canceled.
func (s *stream) send(event string, v any) error {
	body, err := httpapi.Marshal(v)
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
		s.w.Header().Set("Content-Type", v1.NDJSON)
		if s.sse {
			s.w.Header().Set("Content-Type", v1.SSE)
		}
		// This header disables output buffering in proxies.
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err = s.w.Write(s.frame(event, body)); err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	if err != nil {
		s.err = brig.Errorf(brig.Canceled, "the client disconnected").Because(err)
		s.cancel(s.err)
	}
	return s.err
}

// frame inserts the event's name into its document, and formats the document as
// a line or an SSE message.
func (s *stream) frame(event string, body []byte) []byte {
	var b bytes.Buffer
	if s.sse {
		fmt.Fprintf(&b, "event: %s\ndata: ", event)
	}
	fmt.Fprintf(&b, `{"event":%q`, event)
	if rest := body[1:]; rest[0] != '}' {
		b.WriteByte(',')
	}
	b.Write(body[1:]) // includes the line feed
	if s.sse {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// end sends the last event: err if it is not nil, otherwise v. If no event has
// been sent yet, it returns err for a normal error response.
func (s *stream) end(v any, err error) error {
	if err == nil {
		return s.send(v1.EventResult, v)
	}
	if !s.hasStarted() {
		return err
	}
	err = withRequestField(err)
	httpapi.Log(s.r, err)
	return s.send(v1.EventError, httpapi.Body(err))
}

// output is a writer that sends its bytes as events. It buffers the beginning
// of a character until the rest arrives.
type output struct {
	s     *stream
	event string

	mu      sync.Mutex // guards the field below
	pending []byte
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxData)
		data := append(o.pending, rest[:n]...)
		rest = rest[n:]
		whole := len(data) - httpapi.IncompleteBytes(data)
		o.pending = bytes.Clone(data[whole:])
		if err := o.emit(data[:whole]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush sends the buffered bytes when no more output follows.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	data := o.pending
	o.pending = nil
	return o.emit(data)
}

func (o *output) emit(data []byte) error {
	switch {
	case len(data) == 0:
		return nil
	case utf8.Valid(data):
		return o.s.send(o.event, v1.Chunk{Data: string(data)})
	}
	return o.s.send(o.event, v1.Chunk{DataB64: data})
}

// outputs are the output writers of one execution.
type outputs []*output

// writerFor returns a writer that sends its bytes as event, or nil if the event
// was not requested.
func (s *stream) writerFor(event string, requested bool, all *outputs) io.Writer {
	if !requested {
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
