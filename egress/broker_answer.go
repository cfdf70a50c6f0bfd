package egress

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/brig-run/brig"
)

// answer readies what has come back for the guest.
func (x *exchange) answer(res *http.Response) error {
	res.Header.Del("Alt-Svc") // of other ways to the host, which are not these
	if res.StatusCode == http.StatusSwitchingProtocols {
		return x.leave(res)
	}
	if len(res.Trailer) > 0 && x.in.ProtoMajor == 1 {
		res.Header.Del("Content-Length") // with which HTTP/1 knows no trailer
	}
	if x.scrub == nil {
		return nil
	}
	x.scrubHeader(res.Header)
	x.scrubHeader(res.Trailer) // the names; there are no values yet
	if x.in.Method == http.MethodHead || res.StatusCode == http.StatusNoContent ||
		res.StatusCode == http.StatusNotModified || res.ContentLength == 0 {
		// HTTP/2 has trailers behind a body of which nothing comes, too.
		res.Body = &scrubbedBody{res.Body, res.Body, func() { x.scrubHeader(res.Trailer) }}
		return nil
	}
	plain, err := decoded(res.Header, res.Body)
	if err != nil {
		return err
	}
	res.Body = &scrubbedBody{x.scrub.values.reader(plain, nil), res.Body, func() { x.scrubHeader(res.Trailer) }}
	res.ContentLength = -1
	for _, name := range []string{
		"Content-Length", "Content-Encoding", "Accept-Ranges", // of what came
		"Content-Md5", "Digest", "Content-Digest", "Repr-Digest", // and by which a value could be guessed
	} {
		res.Header.Del(name)
	}
	return nil
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

// scrubHeader takes values out of a header. Names of fields lose their case on
// the way, so those in which a value is, whatever its case, are dropped. So is
// what it takes too much to search.
func (x *exchange) scrubHeader(h http.Header) {
	var names, rest effort
	for name, values := range h {
		seen := false
		x.scrub.names.within(&names, strings.ToLower(name), func(string) { seen = true })
		for i, v := range values {
			values[i] = x.scrub.values.within(&rest, v, nil)
		}
		if seen || names.over() || rest.over() {
			delete(h, name)
		}
	}
}

// decoded returns a body without its compression, which the host was asked not
// to use.
func decoded(h http.Header, body io.Reader) (io.Reader, error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ",")))
	switch coding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip", "deflate":
		return &inflating{src: bufio.NewReader(body), gzip: coding != "deflate"}, nil
	}
	return nil, brig.Errorf(brig.Unavailable, "it is compressed in a way that cannot be searched for secrets")
}

// inflating begins to decompress when it is first read, so that a header does
// not wait for a body.
type inflating struct {
	src  *bufio.Reader
	gzip bool
	r    io.Reader
	err  error
}

func (d *inflating) Read(p []byte) (int, error) {
	if d.r == nil && d.err == nil {
		d.r, d.err = d.start()
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.r.Read(p)
}

func (d *inflating) start() (io.Reader, error) {
	if d.gzip {
		return gzip.NewReader(d.src)
	}
	// By the standard deflate is zlib's format; some send it without.
	if head, err := d.src.Peek(2); err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(d.src)
	}
	return flate.NewReader(d.src), nil
}

// answerWriter is how the guest is answered. What comes before an answer (early
// hints) is scrubbed here: nothing else sees it.
type answerWriter struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack takes the connection out of HTTP.
func (w *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if g, ok := conn.(*gate); ok {
		g.open()
	}
	return conn, buf, err
}

func (w *answerWriter) WriteHeader(status int) {
	if w.x.scrub != nil && status < 200 {
		w.x.scrubHeader(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}
