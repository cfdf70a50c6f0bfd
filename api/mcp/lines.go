package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// lines reads the messages of a stream, a line each. The library takes a line
// that is no message for the end of all of them: here it is answered, and the
// next one is read.
type lines struct {
	io.Closer
	from *bufio.Reader
	to   io.Writer
	rest []byte // of a message
	err  error  // what comes after it
}

func newLines(from io.ReadCloser, to io.Writer) *lines {
	return &lines{Closer: from, from: bufio.NewReader(from), to: to}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
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
		if code, err := check(line); err != nil {
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

// check says what is wrong with a line, in JSON-RPC's numbers.
func check(line []byte) (code int64, err error) {
	if !json.Valid(line) {
		return jsonrpc.CodeParseError, errors.New("the line is not JSON")
	}
	all := []json.RawMessage{line}
	if line[0] == '[' {
		if err := json.Unmarshal(line, &all); err != nil || len(all) == 0 {
			return jsonrpc.CodeInvalidRequest, errors.New("there is nothing in the batch")
		}
	}
	for _, m := range all {
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			return jsonrpc.CodeInvalidRequest, errors.New("the line is not a message of JSON-RPC 2.0")
		}
	}
	return 0, nil
}

// whole is a stream to which several write, each a whole line.
type whole struct {
	io.WriteCloser
	mu sync.Mutex // is held while a line is written
}

// Write implements io.Writer.
func (w *whole) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.WriteCloser.Write(p)
}
