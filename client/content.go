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
	"github.com/brig-run/brig/door/wire"
)

// Read implements brig.Files.
func (f files) Read(ctx context.Context, p brig.Path, from, n int64) (*brig.Entry, io.ReadCloser, error) {
	rq := f.request(http.MethodGet, p, "content")
	rq.accept = wire.Octets
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
	var e wire.Entry
	if err := json.Unmarshal([]byte(resp.Header.Get(wire.EntryHeader)), &e); err != nil {
		resp.Body.Close()
		return nil, nil, f.c.lost(ctx, "the server's answer does not say which file it is", err)
	}
	return toEntry(e), content{resp.Body, ctx, f.c}, nil
}

// content is a file's, while it comes.
type content struct {
	io.ReadCloser
	ctx context.Context // whose end is an error of Read
	c   *Client
}

// Read implements io.Reader.
func (b content) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, b.c.lost(b.ctx, "the call has ended", err)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = b.c.lost(b.ctx, "the connection ended before the file", err)
	}
	return n, err
}

// Write implements brig.Files.
func (f files) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	if w.Mode > 0o777 {
		return nil, brig.InvalidField("mode", "%o is not a file's mode", w.Mode).WithHint("give permission bits, for example 0644 (420)")
	}
	header, err := metadataHeader(w.Metadata)
	if err != nil {
		return nil, err
	}
	src := &source{r: r}
	rq := f.request(http.MethodPut, p, "content")
	rq.header, rq.contentType, rq.body = header, wire.Octets, io.NopCloser(src) // the reader stays the caller's to close
	if r == nil {
		rq.body = http.NoBody
	}
	if w.Mode != 0 {
		rq.query.Set("mode", fmt.Sprintf("%04o", w.Mode))
	}
	// What ends the call ends the request, and with it the reading of r.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer src.stop()
	e, err := f.entry(ctx, rq, nil)
	if failed := src.failed(); err != nil && failed != nil {
		return nil, fmt.Errorf("read content: %w", failed)
	}
	return e, err
}

// metadataHeader writes metadata as headers, or refuses what they cannot say.
func metadataHeader(m map[string]string) (http.Header, error) {
	h := http.Header{}
	for k, v := range m {
		outside := func(c rune) bool { return c < ' ' || c > '~' }
		if !token(k) || k != strings.ToLower(k) || strings.IndexFunc(v, outside) >= 0 || strings.TrimSpace(v) != v {
			return nil, brig.InvalidField("metadata", "%q cannot be a file's metadata", k).
				WithHint("keys are words in lower case; values are printable ASCII that does not begin or end with a space")
		}
		h[textproto.CanonicalMIMEHeaderKey(wire.MetadataPrefix+k)] = []string{v}
	}
	return h, nil
}

// token reports whether s can be a part of a header's name.
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c))
	}) < 0
}
