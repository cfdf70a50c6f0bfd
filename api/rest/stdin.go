package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// mostLine bounds one line of standard input.
const mostLine = 1 << 20

// stdinGrace is how long a client has to end its body once the process has
// ended, before the connection is given up.
const stdinGrace = 500 * time.Millisecond

// lines reads a body of NDJSON.
type lines struct{ r *bufio.Reader }

// next returns the next line that is not empty. It is valid until the next
// call. The end of the body is io.EOF.
func (l lines) next(most int) ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, brig.Errorf(brig.InvalidArgument, "a line of the body is longer than %s", brig.FormatBytes(int64(most)))
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

// bodyError translates what went wrong with the body, unless that is done.
func bodyError(err error) error {
	if _, ours := errors.AsType[*brig.Error](err); ours {
		return err
	}
	return door.BodyError(err)
}

// decodeInput reads one line of standard input.
func decodeInput(line []byte) (data []byte, closed bool, err error) {
	var in wire.Input
	if err := door.Decode(line, &in); err != nil {
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

// feed copies a body's lines to w until the body ends, and then closes w. It
// reads on after standard input was closed, and after the process has ended,
// because only who reads learns that the client has gone.
func (l lines) feed(w *io.PipeWriter) error {
	closed := false
	for {
		line, err := l.next(mostLine)
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
			// An error means that the process reads no more, which is its
			// right: what comes is read and dropped.
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

// duplex is a request whose body goes on while it is answered.
type duplex struct {
	w     http.ResponseWriter
	lines lines
}

// bothWays lets an answer begin while the request's body is still coming. The
// connection is not used again: when an answer ends before its request,
// net/http may take what is left of the body for the next request.
func bothWays(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		return brig.Errorf(brig.Unimplemented, "this connection cannot stream in both directions").Because(err)
	}
	w.Header().Set("Connection", "close")
	return nil
}

// newDuplex reads the first line of r's body, the request, into v.
func newDuplex(w http.ResponseWriter, r *http.Request, v any) (*duplex, error) {
	if err := bothWays(w); err != nil {
		return nil, err
	}
	door.LongBody(w)
	d := &duplex{w: w, lines: lines{bufio.NewReader(r.Body)}}
	first, err := d.lines.next(door.MaxBody)
	if errors.Is(err, io.EOF) {
		return nil, brig.Errorf(brig.InvalidArgument, "the request has no body").WithHint("send the request as the first line")
	}
	if err != nil {
		return nil, bodyError(err)
	}
	return d, door.Decode(first, v)
}

// stdin returns the process's input. A client that goes away or sends
// nonsense ends the context through cancel. Stop ends the reading.
func (d *duplex) stdin(cancel context.CancelCauseFunc) (in io.Reader, stop func()) {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.lines.feed(pw); err != nil {
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
		// The client ends its body when it has the result; one that does not
		// loses the connection, so that nothing waits for it.
		_ = http.NewResponseController(d.w).SetReadDeadline(time.Now().Add(stdinGrace))
		<-done
	}
}
