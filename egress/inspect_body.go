package egress

import (
	"io"
	"net/http"
	"strings"
)

// outgoing is the body of a request on its way.
type outgoing struct {
	io.Reader
	io.Closer
	ended  func()
	failed func()
}

func (o *outgoing) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	switch err {
	case nil:
	case io.EOF:
		o.ended()
	default:
		o.failed()
	}
	return n, err
}

// send readies the body for the way, and returns the trailer, which is filled
// when the body has ended: of what the guest has announced, all that does not
// say where messages end or who one is. It tells when nothing more is sent.
func (x *exchange) send(out *http.Request, sent func()) (trailer http.Header) {
	for name := range x.in.Trailer {
		if trailerField(name+":") == "" && !isCredential(name) && !strings.HasPrefix(name, "Proxy-") && !isHop(name) {
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[name] = nil
		}
	}
	if out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	out.Body = &outgoing{
		Reader: out.Body, Closer: x.in.Body,
		ended: func() {
			for name := range trailer {
				trailer[name] = x.in.Trailer[name]
			}
			sent()
		},
		failed: func() {
			x.broken.Store(true)
			sent()
		},
	}
	return trailer
}

// isHop reports whether a field is about one connection only.
func isHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect":
		return true
	}
	return false
}
