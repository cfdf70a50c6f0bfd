package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// peeked is how much of a file is read before its answer begins: then errors
// have a status of their own, and of a small file the length is known even
// where the kernel does not say it.
const peeked = 64 << 10

func (a *api) download(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	want, err := toSpan(r, q)
	if err != nil {
		return err
	}
	e, body, err := a.files(r).Read(r.Context(), p, want.from, want.n)
	if err != nil {
		return err
	}
	defer body.Close()
	first := make([]byte, peeked)
	n, err := io.ReadFull(body, first)
	first = first[:n]
	length, known := e.Size-want.from, e.Size > want.from
	if known && want.n >= 0 {
		length = min(length, want.n)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		length, known = int64(n), true
	case err != nil:
		return err
	}
	if want.ranged && (want.from >= e.Size || length == 0) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", e.Size))
		return door.WithStatus(http.StatusRequestedRangeNotSatisfiable,
			brig.InvalidField("Range", "begins after the end of the file").WithHint("the file has %d bytes", e.Size))
	}
	entry, err := inHeader(e)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", wire.Octets)
	h.Set("Accept-Ranges", "bytes")
	h.Set(wire.EntryHeader, entry)
	if known {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	status := http.StatusOK
	if want.ranged {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", want.from, want.from+length-1, e.Size))
	}
	w.WriteHeader(status)
	rest := io.MultiReader(bytes.NewReader(first), body)
	if !known {
		return sendFile(w, r, rest, -1)
	}
	return sendFile(w, r, io.LimitReader(rest, length), length) // a file may grow meanwhile
}

// sendFile sends a body after its header, of a length that is known unless it
// is negative.
func sendFile(w http.ResponseWriter, r *http.Request, body io.Reader, length int64) error {
	if r.Method == http.MethodHead {
		return nil
	}
	sent, err := io.Copy(patient{w}, body)
	if err == nil && sent < length {
		err = fmt.Errorf("%d of %d bytes: %w", sent, length, io.ErrUnexpectedEOF)
	}
	switch {
	case err == nil:
		return nil
	case r.Context().Err() != nil:
		return brig.Errorf(brig.Canceled, "the client went away").Because(err)
	}
	return fmt.Errorf("send file: %w", err) // which breaks the connection
}

// patient is an answer whose client may not leave it unread for ever.
type patient struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (p patient) Write(b []byte) (int, error) {
	rc := http.NewResponseController(p.w)
	// A writer that has no deadlines, as in tests, needs none.
	_ = rc.SetWriteDeadline(time.Now().Add(sendTimeout))
	n, err := p.w.Write(b)
	if err == nil {
		_ = rc.SetWriteDeadline(time.Time{}) // the connection may serve others
	}
	return n, err
}
