package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/brig-run/brig/api/v1"
)

// newInput returns a request's body: first, followed by the lines of the standard input, if any. stop
// ends the body without waiting for stdin, which may be an idle terminal.
func newInput(first []byte, stdin io.Reader) (body io.Reader, stop func()) {
	if stdin == nil {
		return bytes.NewReader(first), func() {}
	}
	pr, pw := io.Pipe()
	go func() {
		// The reader of the pipe receives the error, which aborts the request.
		_ = pw.CloseWithError(copyInput(pw, first, stdin))
	}()
	return pr, func() { _ = pw.Close() } // never fails
}

// copyInput writes first and then the content of stdin in wire.Input lines. It
// returns the error that stopped it, or nil at the end of stdin.
func copyInput(w io.Writer, first []byte, stdin io.Reader) error {
	line := append(bytes.Clone(first), '\n')
	buf := make([]byte, 32<<10)
	for {
		if _, err := w.Write(line); err != nil {
			return err
		}
		n, err := stdin.Read(buf)
		in := v1.Input{StdinB64: buf[:n], CloseStdin: errors.Is(err, io.EOF)}
		if n == 0 {
			in.StdinB64 = nil
		}
		b, merr := json.Marshal(in)
		if merr != nil {
			return merr
		}
		line = append(b, '\n')
		if err == nil {
			continue
		}
		if _, werr := w.Write(line); werr != nil {
			return werr
		}
		if in.CloseStdin {
			return nil
		}
		return err
	}
}
