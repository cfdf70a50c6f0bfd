package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// peeked is the number of bytes of a file that are read before the response
// begins. An early error thus gets its own status, and the length of a small
// file is known even if the kernel reports no size.
const peeked = 64 << 10

func (a fileAPI) download(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	want, err := toByteRange(r, q)
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
	length, lengthKnown := e.Size-want.from, e.Size > want.from
	if lengthKnown && want.n >= 0 {
		length = min(length, want.n)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		length, lengthKnown = int64(n), true
	case err != nil:
		return err
	}
	if want.ranged && (want.from >= e.Size || length == 0) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", e.Size))
		return httpapi.WithStatus(http.StatusRequestedRangeNotSatisfiable,
			brig.InvalidField("Range", "begins after the end of the file").WithHint("the file has %d bytes", e.Size))
	}
	entry, err := encodeHeader(e)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", v1.Octets)
	h.Set("Accept-Ranges", "bytes")
	h.Set(v1.EntryHeader, entry)
	if lengthKnown {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	status := http.StatusOK
	if want.ranged {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", want.from, want.from+length-1, e.Size))
	}
	w.WriteHeader(status)
	rest := io.MultiReader(bytes.NewReader(first), body)
	if !lengthKnown {
		return httpapi.SendFile(w, r, rest, -1)
	}
	return httpapi.SendFile(w, r, io.LimitReader(rest, length), length) // the file may grow while it is sent
}
