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

// settleTime is how long what was asked before a stream's end may take to be
// answered: a file of messages has its end right behind them. What takes longer
// is ended, for nobody may be there any more.
const settleTime = 1500 * time.Millisecond

// lines reads the messages of a stream, a line each. The library takes a line
// that is no message for the end of all of them: here it is answered, and the
// next one is read.
type lines struct {
	io.Closer
	from *bufio.Reader
	to   *whole
	rest []byte // of a message
	err  error  // what comes after it
}

func newLines(from io.ReadCloser, to *whole) *lines {
	return &lines{Closer: from, from: bufio.NewReader(from), to: to}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			l.to.settle(settleTime)
			return 0, l.err
		}
		var line []byte
		line, l.err = l.next()
		if len(line) > maxMessage {
			l.rest = line // the library has a bound, and says so
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

// next is the next line, or the beginning of one that is too long.
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

// check counts the requests of a line, or says what is wrong with it, in
// JSON-RPC's numbers. What is wrong is answered once.
func check(line []byte) (asked int, code int64, err error) {
	if !json.Valid(line) { // the library does not mind what comes behind a message
		return 1, jsonrpc.CodeParseError, errors.New("the line is not JSON")
	}
	var all []json.RawMessage // of their own: line is handed on
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
			asked = 1 // a batch has one line of answers
		}
	}
	return asked, 0, nil
}

// whole is a stream to which several write, each a whole line.
type whole struct {
	io.WriteCloser
	mu   sync.Mutex // is held while a line is written, and guards the fields below
	open int        // lines that wait for an answer
	idle chan struct{}
}

// Write implements io.Writer.
func (w *whole) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.WriteCloser.Write(p)
	// What has an id is an answer: nothing is asked of clients.
	if bytes.HasPrefix(p, []byte(`{"jsonrpc":"2.0","id":`)) || bytes.HasPrefix(p, []byte("[")) {
		if w.open--; w.open <= 0 && w.idle != nil {
			close(w.idle)
			w.idle = nil
		}
	}
	return n, err
}

func (w *whole) expect(answers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += answers
}

// settle waits until all is answered, and no longer than most.
func (w *whole) settle(most time.Duration) {
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
