package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// Read implements brig.Files.
func (f files) Read(ctx context.Context, p brig.Path, from, n int64) (*brig.Entry, io.ReadCloser, error) {
	rq := f.newRequest(http.MethodGet, p, "content")
	rq.accept = v1.Octets
	if from != 0 {
		rq.query.Set("offset", strconv.FormatInt(from, 10))
	}
	if n >= 0 {
		rq.query.Set("length", strconv.FormatInt(n, 10))
	}
	resp, err := f.c.send(ctx, rq)
	if err != nil {
		return nil, nil, err
	}
	var e v1.Entry
	if err := json.Unmarshal([]byte(resp.Header.Get(v1.EntryHeader)), &e); err != nil {
		resp.Body.Close()
		return nil, nil, f.c.connectionError(ctx, "the server's answer does not say which file it is", err)
	}
	return e.Domain(), content{resp.Body, ctx, f.c}, nil
}

// content reads a file during a download.
type content struct {
	io.ReadCloser
	ctx context.Context // Read returns an error after ctx has ended
	c   *conn
}

// Read implements io.Reader.
func (b content) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, b.c.connectionError(b.ctx, "the call has ended", err)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = b.c.connectionError(b.ctx, "the connection ended before the file", err)
	}
	return n, err
}

// Write implements brig.Files.
func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	if w.Mode > 0o777 {
		return nil, brig.InvalidField("mode", "%o is not a file's mode", w.Mode).WithHint("give permission bits, for example 0644 (420)")
	}
	header, err := encodeMetadata(w.Metadata)
	if err != nil {
		return nil, err
	}
	src := &source{r: r}
	rq := f.newRequest(http.MethodPut, p, "content")
	rq.header, rq.contentType, rq.body = header, v1.Octets, io.NopCloser(src) // the caller closes the reader
	if r == nil {
		rq.body = http.NoBody
	}
	if w.Mode != 0 {
		rq.query.Set("mode", fmt.Sprintf("%04o", w.Mode))
	}
	// Returning from this function cancels the request and stops reading from
	// r.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer src.stop()
	e, err := f.sendEntry(ctx, rq, nil)
	if failed := src.readError(); err != nil && failed != nil {
		return nil, fmt.Errorf("read content: %w", failed)
	}
	return e, err
}

// encodeMetadata encodes metadata as headers. It rejects metadata that headers
// cannot represent.
func encodeMetadata(m map[string]string) (http.Header, error) {
	h := http.Header{}
	for k, v := range m {
		outside := func(c rune) bool { return c < ' ' || c > '~' }
		if !isToken(k) || k != strings.ToLower(k) || strings.IndexFunc(v, outside) >= 0 || strings.TrimSpace(v) != v {
			return nil, brig.InvalidField("metadata", "%q cannot be a file's metadata", k).
				WithHint("keys are words in lower case; values are printable ASCII that does not begin or end with a space")
		}
		h[textproto.CanonicalMIMEHeaderKey(v1.MetadataPrefix+k)] = []string{v}
	}
	return h, nil
}

// isToken reports whether s is valid as part of a header name.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	}) < 0
}
