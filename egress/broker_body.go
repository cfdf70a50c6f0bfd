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

// maxWhole is the size up to which a body in which values are put is read
// whole, so that its new length can be told: not every server takes chunks.
const maxWhole = 64 << 10

// searched reports whether values are put into the body while it is sent.
func (x *exchange) searched(out *http.Request) bool {
	_, ok := out.Body.(*searchedBody)
	return ok
}

type searchedBody struct {
	io.Reader
	io.Closer
	x *exchange
}

// Read implements io.Reader. What may not go in the clear is not given out,
// and ends the request.
func (b *searchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if why := b.x.exposed(); why != "" {
		clear(p[:n])
		return 0, brig.Errorf(brig.PolicyBlocked, "%s", why)
	}
	return n, err
}

// putBody puts values into the body. One that is compressed, or whose pieces
// have lengths of their own, is left as it is.
func (x *exchange) putBody(out *http.Request) *refusal {
	kind, _, _ := mime.ParseMediaType(out.Header.Get("Content-Type"))
	coded := strings.Trim(strings.Join(out.Header["Content-Encoding"], ","), " \t")
	if out.Body == nil || out.Body == http.NoBody || out.ContentLength == 0 ||
		coded != "" && !strings.EqualFold(coded, "identity") || strings.HasPrefix(kind, "application/grpc") {
		return nil
	}
	s := x.swapsFor(brig.SecretBody, writer(kind))
	if s.count == 0 {
		return nil
	}
	out.Header.Del("Content-Length")
	if out.ContentLength < 0 || out.ContentLength > maxWhole {
		out.ContentLength = -1
		out.Body = &searchedBody{s.reader(out.Body, x.put), out.Body, x}
		return nil
	}
	whole, err := io.ReadAll(s.reader(out.Body, x.put))
	if err != nil {
		return &refusal{http.StatusBadRequest, "its body cannot be read"}
	}
	out.Header.Del("Expect") // the guest has sent it already
	out.ContentLength = int64(len(whole))
	out.Body = io.NopCloser(bytes.NewReader(whole))
	return nil
}

// writer says how a value is written in a body of some media type.
func writer(kind string) func([]byte) []byte {
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		return inJSON
	case kind == "application/x-www-form-urlencoded":
		return func(v []byte) []byte { return []byte(url.QueryEscape(string(v))) }
	}
	return asIs
}

// inJSON returns a value as it is within a string of JSON.
func inJSON(value []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(value)); err != nil {
		return value // no string fails
	}
	quoted := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return quoted[1 : len(quoted)-1]
}
