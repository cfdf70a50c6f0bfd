package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/brig-run/brig/door/wire"
)

// input returns a request's body: first, and when there is a standard input
// its lines after it. Stop ends the body; it does not wait for stdin, which
// may be a terminal where nobody types.
func input(first []byte, stdin io.Reader) (body io.Reader, stop func()) {
	if stdin == nil {
		return bytes.NewReader(first), func() {}
	}
	pr, pw := io.Pipe()
	go func() {
		// The pipe's reader sees the error, which is how the request ends.
		_ = pw.CloseWithError(copyInput(pw, first, stdin))
	}()
	return pr, func() { _ = pw.Close() } // never fails
}

// copyInput writes first and then what stdin holds, line by line. It returns
// what stopped it, nil at stdin's end.
func copyInput(w io.Writer, first []byte, stdin io.Reader) error {
	line := append(bytes.Clone(first), '\n')
	buf := make([]byte, 32<<10)
	for {
		if _, err := w.Write(line); err != nil {
			return err
		}
		n, err := stdin.Read(buf)
		in := wire.Input{StdinB64: buf[:n], CloseStdin: errors.Is(err, io.EOF)}
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
