package egress

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
)

// maxBufferedBody is the size up to which a body that receives values is read
// completely, so that its new length can be sent: some servers do not accept
// chunked bodies.
const maxBufferedBody = 64 << 10

// hasSubstitutedBody reports whether values are inserted into the body while it is sent.
func (x *exchange) hasSubstitutedBody(out *http.Request) bool {
	_, ok := out.Body.(*substitutedBody)
	return ok
}

type substitutedBody struct {
	io.Reader
	io.Closer
	x *exchange
}

// Read implements io.Reader. If the request must not be sent in clear text,
// Read returns an error instead of the data, and the request fails.
func (b *substitutedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if reason := b.x.checkCleartext(); reason != "" {
		clear(p[:n])
		return 0, brig.Errorf(brig.PolicyBlocked, "%s", reason)
	}
	return n, err
}

// substituteBody replaces placeholders in the body. It leaves compressed bodies
// and gRPC messages, which have length prefixes, unchanged.
func (x *exchange) substituteBody(out *http.Request) *refusal {
	kind, _, _ := mime.ParseMediaType(out.Header.Get("Content-Type"))
	coded := strings.Trim(strings.Join(out.Header["Content-Encoding"], ","), " \t")
	if out.Body == nil || out.Body == http.NoBody || out.ContentLength == 0 ||
		coded != "" && !strings.EqualFold(coded, "identity") || strings.HasPrefix(kind, "application/grpc") {
		return nil
	}
	s := x.swapsIn(brig.SecretBody, valueEncoder(kind))
	if s.count == 0 {
		return nil
	}
	if refused := x.charge(swapCost); refused != nil {
		return refused
	}
	out.Header.Del("Content-Length")
	if out.ContentLength < 0 || out.ContentLength > maxBufferedBody {
		out.ContentLength = -1
		out.Body = &substitutedBody{x.newGrowingReader(s, out.Body, x.recordInserted), out.Body, x}
		return nil
	}
	whole, err := io.ReadAll(out.Body)
	if err != nil {
		return &refusal{http.StatusBadRequest, "its body cannot be read"}
	}
	out.Header.Del("Expect") // the guest has already sent the body
	// The encoded body may be much longer. It is encoded while it is sent.
	out.ContentLength = int64(len(whole)) + s.growth(whole, x.recordInserted)
	out.Body = io.NopCloser(x.newGrowingReader(s, bytes.NewReader(whole), nil))
	return nil
}

// growingBody is a body that values make longer. The additional bytes are
// traffic of the sandbox, although the sandbox has not sent them.
type growingBody struct {
	io.Reader
	x       *exchange
	in, out int64 // bytes that were read of the original, and returned
	counted int64 // growth of the body
	src     io.Reader
}

// newGrowingReader returns src with its placeholders replaced, and counts the additional
// bytes.
func (x *exchange) newGrowingReader(s *swaps, src io.Reader, found func(string)) io.Reader {
	g := &growingBody{x: x, src: src}
	g.Reader = s.newReader(original{g}, found)
	return g
}

func (g *growingBody) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	g.out += int64(n)
	if more := g.out - g.in - g.counted; more > 0 {
		g.counted += more
		if lost := g.x.grow(more); lost != nil {
			return 0, lost
		}
	}
	return n, err
}

// original is the source of a growingBody.
type original struct{ *growingBody }

func (o original) Read(p []byte) (int, error) {
	n, err := o.src.Read(p)
	o.in += int64(n)
	return n, err
}

// grow counts n bytes that values add to the request, and waits until the
// sandbox's bandwidth allows them.
func (x *exchange) grow(n int64) error {
	if x.n.countGrown == nil || n <= 0 {
		return nil
	}
	return x.n.countGrown(n)
}

// headLength returns the length of the parts of a header in which values may be.
func headLength(r *http.Request) (n int64) {
	for name, values := range r.Header {
		for _, v := range values {
			n += int64(len(name) + len(v))
		}
	}
	return n + int64(len(r.URL.RawQuery))
}

// valueEncoder returns the function that encodes a value for a body of a media type.
func valueEncoder(kind string) func([]byte) []byte {
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return escapeJSON
	case kind == "application/x-www-form-urlencoded":
		return func(v []byte) []byte { return []byte(url.QueryEscape(string(v))) }
	}
	return identity
}

// escapeJSON returns a value as it is written within a JSON string.
func escapeJSON(value []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(value)); err != nil {
		return value // encoding a string cannot fail
	}
	quoted := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return quoted[1 : len(quoted)-1]
}
