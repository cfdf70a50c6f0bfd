package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// maxLine limits one line of standard input.
const maxLine = 1 << 20

// stdinGrace is how long a client may take to end its body after the process
// has ended. After that time the connection is closed.
const stdinGrace = 500 * time.Millisecond

// lines reads an NDJSON body.
type lines struct {
	r *bufio.Reader
	// reserve accounts for the memory of a line. It is called with the number
	// of bytes by which a line exceeds the longest line so far. If it is nil,
	// memory is not counted.
	reserve func(n int64) error
	longest int
}

// next returns the next line that is not empty. The line is valid until the
// next call. At the end of the body, next returns io.EOF.
func (l *lines) next(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, brig.Errorf(brig.InvalidArgument, "a line of the body is longer than %s", brig.FormatBytes(int64(limit)))
		}
		if growth := len(line) + len(part) - l.longest; growth > 0 && l.reserve != nil {
			if err := l.reserve(int64(growth)); err != nil {
				return nil, err
			}
			l.longest += growth
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && (!errors.Is(err, io.EOF) || len(bytes.TrimSpace(line)) == 0):
			return nil, err
		case len(bytes.TrimSpace(line)) == 0:
			line = line[:0]
		default:
			return line, nil
		}
	}
}

// bodyError translates a read error of the body unless it is already
// translated.
func bodyError(err error) error {
	if _, translated := errors.AsType[*brig.Error](err); translated {
		return err
	}
	return httpapi.BodyError(err)
}

// decodeInput decodes one line of standard input.
func decodeInput(line []byte) (data []byte, closed bool, err error) {
	var in v1.Input
	if err := httpapi.DecodeDescribed(line, &in); err != nil {
		return nil, false, err
	}
	if in.Stdin != nil && in.StdinB64 != nil {
		return nil, false, brig.InvalidField("stdin_b64", "is given beside stdin").WithHint("give one of the two")
	}
	if in.Stdin != nil {
		return []byte(*in.Stdin), in.CloseStdin, nil
	}
	return in.StdinB64, in.CloseStdin, nil
}

// copyTo copies a body's lines to w until the body ends, and then closes w. It
// keeps reading after standard input was closed and after the process has
// ended, because only a read detects that the client has disconnected.
func (l *lines) copyTo(w *io.PipeWriter) error {
	closed := false
	for {
		line, err := l.next(maxLine)
		if errors.Is(err, io.EOF) {
			return w.Close()
		}
		if err != nil {
			return errors.Join(bodyError(err), w.CloseWithError(io.ErrUnexpectedEOF))
		}
		data, end, err := decodeInput(line)
		if err == nil && closed && len(data) > 0 {
			err = brig.InvalidField("stdin", "comes after close_stdin")
		}
		if err != nil {
			return errors.Join(err, w.CloseWithError(io.ErrUnexpectedEOF))
		}
		if len(data) > 0 {
			// An error means that the process no longer reads its input. Later
			// input is read and discarded.
			_, _ = w.Write(data)
		}
		if end && !closed {
			closed = true
			if err := w.Close(); err != nil {
				return err
			}
		}
	}
}

// duplex is a request whose body continues to arrive during the response.
type duplex struct {
	w     http.ResponseWriter
	lines lines
}

// enableFullDuplex lets the response begin while the request body is still
// arriving. It disables reuse of the connection. Otherwise, if a response ends
// before its request, net/http may parse the rest of the body as the next
// request.
func enableFullDuplex(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		return brig.Errorf(brig.Unimplemented, "this connection cannot stream in both directions").Because(err)
	}
	w.Header().Set("Connection", "close")
	return nil
}

// newDuplex decodes the first line of r's body, the request, into v.
func newDuplex(w http.ResponseWriter, r *http.Request, v any) (*duplex, error) {
	if err := enableFullDuplex(w); err != nil {
		return nil, err
	}
	lease, tenant := httpapi.LeaseOf(r.Context()), brig.ActorFrom(r.Context()).Tenant
	d := &duplex{w: w, lines: lines{r: bufio.NewReader(r.Body), reserve: func(n int64) error { return lease.Reserve(tenant, n) }}}
	first, err := d.lines.next(httpapi.MaxBody)
	httpapi.AllowOpenBody(r) // input may arrive at any time
	if errors.Is(err, io.EOF) {
		return nil, brig.Errorf(brig.InvalidArgument, "the request has no body").WithHint("send the request as the first line")
	}
	if err != nil {
		return nil, bodyError(err)
	}
	return d, httpapi.DecodeDescribed(first, v)
}

// stdin returns the input of the process. If the client disconnects or sends
// invalid input, the context is canceled with cancel. stop ends the reading.
func (d *duplex) stdin(cancel context.CancelCauseFunc) (in io.Reader, stop func()) {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.lines.copyTo(pw); err != nil {
			cancel(err)
		}
	}()
	return pr, func() {
		_ = pr.Close() // never fails
		select {
		case <-done:
			return
		default:
		}
		// The client ends its body when it has received the result. If it does
		// not, the read deadline ends the wait.
		_ = http.NewResponseController(d.w).SetReadDeadline(time.Now().Add(stdinGrace))
		<-done
	}
}

// toStdin decodes the two forms of standard input. It returns nil if neither is
// present.
func toStdin(text *string, b64 []byte) (io.Reader, error) {
	switch {
	case text != nil && b64 != nil:
		return nil, brig.InvalidField("stdin_b64", "is given beside stdin").WithHint("give one of the two")
	case text != nil:
		return strings.NewReader(*text), nil
	case b64 != nil:
		return strings.NewReader(string(b64)), nil
	}
	return nil, nil
}
