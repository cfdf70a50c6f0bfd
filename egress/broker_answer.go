package egress

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// prepareResponse prepares the host's response for the guest.
func (x *exchange) prepareResponse(res *http.Response) error {
	res.Header.Del("Alt-Svc") // it offers other paths to the host, which bypass the proxy
	if res.StatusCode == http.StatusSwitchingProtocols {
		return x.upgradeToWebSocket(res)
	}
	if res.StatusCode < 200 || res.StatusCode > 999 {
		// net/http panics for a status below 100.
		return brig.Errorf(brig.Unavailable, "its answer has an invalid status")
	}
	if x.body != nil {
		res.Body = &hostBody{res.Body, x.body}
	}
	if len(res.Trailer) > 0 && x.in.ProtoMajor == 1 {
		res.Header.Del("Content-Length") // HTTP/1 sends no trailer with it
	}
	empty := x.in.Method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
	if empty {
		res.Body = emptyBody{res.Body}
	}
	if x.scrub == nil {
		return nil
	}
	x.scrubHeader(res.Header)
	removeDigests(res.Header)
	x.scrubHeader(res.Trailer) // the names; the values arrive later
	removeDigests(res.Trailer)
	ended := func() {
		x.scrubHeader(res.Trailer)
		removeDigests(res.Trailer)
	}
	if contentCoding(res.Header) != "" {
		// The compressed length reveals whether a guess in the response also
		// occurs elsewhere in it. HEAD, 304 and 206 would report the length
		// without a body.
		res.Header.Del("Content-Length")
		res.Header.Del("Content-Range")
	}
	if empty || res.ContentLength == 0 {
		// In HTTP/2, an empty body may be followed by trailers.
		res.Body = &scrubbedBody{res.Body, res.Body, ended}
		return nil
	}
	plain, err := newDecoder(res.Header, res.Body)
	if err != nil {
		return err
	}
	var blind io.Reader = x.scrub.values.newReader(plain, boundariesOf(res.Header))
	if x.n.scrubbing != nil {
		blind = x.n.scrubbing(plain)
	}
	res.Body = &scrubbedBody{blind, res.Body, ended}
	res.ContentLength = -1
	for _, name := range []string{
		"Content-Length", "Content-Encoding", "Accept-Ranges", // of the original body
	} {
		res.Header.Del(name)
	}
	return nil
}

// removeDigests removes the digests of a response: they would let the guest
// verify guesses of a value.
func removeDigests(h http.Header) {
	for name := range h {
		switch lower := strings.ToLower(name); {
		case lower == "content-md5", lower == "digest", lower == "content-digest", lower == "repr-digest", lower == "x-goog-hash",
			strings.HasPrefix(lower, "x-amz-checksum-"), strings.HasPrefix(lower, "x-checksum-"):
			delete(h, name)
		}
	}
}

type scrubbedBody struct {
	io.Reader
	io.Closer
	ended func()
}

func (b *scrubbedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

func (b *scrubbedBody) Close() error {
	defer b.ended()
	return b.Closer.Close()
}

// emptyBody is the body of a response without one. The HTTP/2 client reports a
// missing body as an error if the header has a length.
type emptyBody struct{ io.ReadCloser }

func (b emptyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.ErrUnexpectedEOF && n == 0 {
		err = io.EOF
	}
	return n, err
}

// scrubHeader removes values from a header. Field names may lose their case in transit, so a field
// whose name contains a value in any case is removed.
func (x *exchange) scrubHeader(h http.Header) {
	if len(h) == 0 {
		return
	}
	// A scan needs much more memory than a short field, so all fields share one scan.
	inValues, inNames := x.scrub.values.newScan(), x.scrub.names.newScan()
	for name, values := range h {
		for i, v := range values {
			values[i] = inValues.replaceAll(v)
		}
		if inNames.matches(strings.ToLower(name)) {
			delete(h, name)
		}
	}
}

// boundariesOf returns the boundaries at which a body may be released before it
// has ended, by its media type. In JSON, a line break cannot occur within a
// string.
func boundariesOf(h http.Header) boundaries {
	kind, _, _ := strings.Cut(strings.ToLower(h.Get("Content-Type")), ";")
	kind = strings.TrimSpace(kind)
	sub, app := strings.CutPrefix(kind, "application/")
	switch {
	case kind == "text/event-stream":
		return &events{}
	case !app:
		return nil
	case strings.HasPrefix(sub, "grpc-web-text"): // in base64
		return nil
	case sub == "grpc", sub == "grpc-web", strings.HasPrefix(sub, "grpc+"), strings.HasPrefix(sub, "grpc-web+"), strings.HasPrefix(sub, "connect+"):
		return &envelopes{}
	case sub == "json" || strings.HasSuffix(sub, "+json") || slices.Contains(jsonLines, sub):
		return lines{}
	}
	return nil
}

// jsonLines are the media subtypes of newline-delimited JSON.
var jsonLines = []string{"x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines", "json-seq", "x-json-stream"}

// contentCoding returns the compression of a response, or "" if it has none.
func contentCoding(h http.Header) string {
	c := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ",")))
	if c == "identity" {
		return ""
	}
	return c
}

// newDecoder returns a reader of the decompressed body. A host may compress a response although the request did
// not allow compression.
func newDecoder(h http.Header, body io.Reader) (io.Reader, error) {
	switch c := contentCoding(h); c {
	case "":
		return body, nil
	case "gzip", "x-gzip", "deflate":
		return &decompressor{src: bufio.NewReader(body), gzip: c != "deflate"}, nil
	}
	return nil, brig.Errorf(brig.Unavailable, "it is compressed in a way that cannot be searched for secrets")
}

// decompressor starts to decompress on the first read, so that the header is
// sent before the body arrives.
type decompressor struct {
	src  *bufio.Reader
	gzip bool
	r    io.Reader
	err  error
}

func (d *decompressor) Read(p []byte) (int, error) {
	if d.r == nil && d.err == nil {
		d.r, d.err = d.start()
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.r.Read(p)
}

func (d *decompressor) start() (io.Reader, error) {
	if d.gzip {
		return gzip.NewReader(d.src)
	}
	// The standard defines deflate as the zlib format; some servers send raw
	// deflate.
	if head, err := d.src.Peek(2); err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(d.src)
	}
	return flate.NewReader(d.src), nil
}

// responseWriter writes the response to the guest. It also scrubs informational
// responses (early hints), which bypass answer.
type responseWriter struct {
	http.ResponseWriter
	x             *exchange
	informational int // answers so far
}

// maxInformational limits the informational responses to a request. A host may send any number of
// them, and each of them is searched.
const maxInformational = 10

// Unwrap implements the interface that http.ResponseController expects.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack takes over the connection from the HTTP server.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if g, ok := conn.(*gate); ok {
		g.stopChecking()
	}
	return conn, buf, err
}

func (w *responseWriter) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.informational++
		if w.informational > maxInformational || !w.x.in.ProtoAtLeast(1, 1) { // HTTP/1.0 has none
			return
		}
	}
	if w.x.scrub != nil && status < 200 {
		w.x.scrubHeader(w.Header())
		removeDigests(w.Header())
	}
	if _, has := w.Header()["Content-Type"]; !has && status >= 200 {
		// Otherwise net/http may sniff a content type, depending on how fast the body arrives.
		w.Header()["Content-Type"] = nil
	}
	w.ResponseWriter.WriteHeader(status)
}
