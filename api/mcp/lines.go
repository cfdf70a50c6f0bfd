package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// settleTimeout is how long pending requests may take after the end of the
// stream. A stream from a file, for example, ends immediately after its last
// message. Longer calls are canceled, because the client may have disconnected.
const settleTimeout = 1500 * time.Millisecond

// lines reads the messages of a stream, one message per line. The library would
// end the stream at an invalid line. lines answers such a line with an error
// and continues with the next one.
type lines struct {
	io.Closer
	from *bufio.Reader
	to   *lineWriter
	rest []byte // unread rest of a message
	// noBatches means that the client has requested a version without batches.
	noBatches bool
	err       error // error to return after that message
}

func newLines(from io.ReadCloser, to *lineWriter) *lines {
	return &lines{Closer: from, from: bufio.NewReader(from), to: to}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			l.to.drain(settleTimeout)
			return 0, l.err
		}
		var line []byte
		line, l.err = l.readNext()
		if len(line) > maxMessage {
			l.rest = line // the library checks the limit and reports it
			break
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		messages, invalid := decodeMessages(line)
		if invalid == nil {
			invalid = l.checkBatch(&messages)
		}
		if invalid != nil {
			l.to.expect(1)
			if _, err := l.to.Write(append(invalid.response(), '\n')); err != nil {
				return 0, err
			}
			continue
		}
		l.to.expect(messages.countResponses())
		l.rest = messages.toLine(line)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// readNext returns the next line, or the beginning of a line that is too long.
func (l *lines) readNext() ([]byte, error) {
	var line []byte
	for {
		part, err := l.from.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxMessage {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
			return line, err
		}
	}
}

// checkBatch rejects a batch for which the library would end the stream.
func (l *lines) checkBatch(m *messages) *protocolError {
	ids := map[jsonrpc.ID]bool{}
	for _, message := range m.all {
		r, ok := message.(*jsonrpc.Request)
		switch {
		case !ok || !r.ID.IsValid():
		case m.batch && ids[r.ID]:
			return &protocolError{code: jsonrpc.CodeInvalidRequest, message: "two requests of the batch have the same id"}
		case r.Method == "initialize":
			l.noBatches = !withBatches[parseVersion(r.Params)]
		}
		if ok {
			ids[r.ID] = true
		}
	}
	if m.batch && l.noBatches {
		return errBatch()
	}
	return nil
}

func parseVersion(params json.RawMessage) string {
	var p struct {
		Version string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(params, &p) // the library reports the error
	return p.Version
}

// toLine returns the messages of a line for the library. The library would wait
// for a response to a notification in a batch, so notifications are moved to
// their own lines.
func (m *messages) toLine(line []byte) []byte {
	if !m.batch {
		return append(line, '\n')
	}
	var out, calls []byte
	for i, message := range m.all {
		if r, ok := message.(*jsonrpc.Request); ok && r.ID.IsValid() {
			calls = append(append(calls, ','), m.raw[i]...)
			continue
		}
		out = append(append(out, m.raw[i]...), '\n')
	}
	if calls != nil {
		calls[0] = '['
		out = append(append(out, calls...), "]\n"...)
	}
	return out
}

// countResponses returns the number of response lines for the messages of one line.
// The responses to a batch are sent as one line.
func (m *messages) countResponses() int {
	for _, message := range m.all {
		if r, ok := message.(*jsonrpc.Request); ok && r.ID.IsValid() {
			return 1
		}
	}
	return 0
}

// lineWriter is a stream for concurrent writers, each of which writes whole
// lines.
type lineWriter struct {
	io.WriteCloser
	mu   sync.Mutex // held during a write; guards the fields below
	open int        // lines that are not answered yet
	idle chan struct{}
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.WriteCloser.Write(p)
	// A message with an id is a response, because this server sends no
	// requests.
	if bytes.HasPrefix(p, []byte(`{"jsonrpc":"2.0","id":`)) || bytes.HasPrefix(p, []byte("[")) {
		if w.open--; w.open <= 0 && w.idle != nil {
			close(w.idle)
			w.idle = nil
		}
	}
	return n, err
}

func (w *lineWriter) expect(answers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += answers
}

// drain waits until all requests are answered or the timeout has passed.
func (w *lineWriter) drain(timeout time.Duration) {
	w.mu.Lock()
	if w.open <= 0 || w.idle != nil {
		w.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	w.idle = idle
	w.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
