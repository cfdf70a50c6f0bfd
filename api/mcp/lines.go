package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// settleTime is how long pending requests may take after the end of the stream,
// because a file with messages ends immediately after them. Longer calls are
// canceled, because the client may have disconnected.
const settleTime = 1500 * time.Millisecond

// lines reads the messages of a stream, one message per line. The library would
// end the stream at an invalid line. lines answers such a line with an error
// and continues with the next one.
type lines struct {
	io.Closer
	from *bufio.Reader
	to   *lineWriter
	rest []byte // unread rest of a message
	err  error  // error to return after that message
}

func newLines(from io.ReadCloser, to *lineWriter) *lines {
	return &lines{Closer: from, from: bufio.NewReader(from), to: to}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			l.to.drain(settleTime)
			return 0, l.err
		}
		var line []byte
		line, l.err = l.next()
		if len(line) > maxMessage {
			l.rest = line // the library checks the limit and reports it
			break
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		asked, code, err := check(line)
		l.to.expect(asked)
		if err != nil {
			if _, err := fmt.Fprintf(l.to, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, err); err != nil {
				return 0, err
			}
			continue
		}
		l.rest = append(line, '\n')
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the next line, or the beginning of a line that is too long.
func (l *lines) next() ([]byte, error) {
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

// check returns how many responses a line needs, or an error with its JSON-RPC
// code. An invalid line needs one response.
func check(line []byte) (asked int, code int64, err error) {
	if !json.Valid(line) { // json.Valid also rejects text after a message, which the library would ignore
		return 1, jsonrpc.CodeParseError, errors.New("the line is not JSON")
	}
	var all []json.RawMessage // a separate slice, because line is passed on
	if line[0] != '[' {
		all = append(all, line)
	} else if err := json.Unmarshal(line, &all); err != nil || len(all) == 0 {
		return 1, jsonrpc.CodeInvalidRequest, errors.New("there is nothing in the batch")
	}
	for _, raw := range all {
		m, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return 1, jsonrpc.CodeInvalidRequest, errors.New("the line is not a message of JSON-RPC 2.0")
		}
		if r, ok := m.(*jsonrpc.Request); ok && r.ID.IsValid() {
			asked = 1 // the responses to a batch are one line
		}
	}
	return asked, 0, nil
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

// drain waits until all requests are answered, but at most for the duration
// most.
func (w *lineWriter) drain(most time.Duration) {
	w.mu.Lock()
	if w.open <= 0 || w.idle != nil {
		w.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	w.idle = idle
	w.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
