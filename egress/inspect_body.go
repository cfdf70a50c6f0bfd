package egress

import (
	"io"
	"net/http"
	"strings"
)

// outgoingBody is the body of a request that is being sent.
type outgoingBody struct {
	io.Reader
	io.Closer
	ended  func()
	failed func()
}

func (o *outgoingBody) Read(p []byte) (int, error) {
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

// send prepares the body for sending, and returns the trailer, which is filled
// when the body has ended. The trailer has the fields that the guest announced,
// except those that frame messages or identify the client. If a secret is
// exclusive, the trailer has only fields that are also allowed in a header.
// send calls sent when the body has been sent or has failed.
func (x *exchange) send(out *http.Request, sent func()) (trailer http.Header) {
	for name := range x.in.Trailer {
		if x.exclusive && !isHarmlessHeader(name) && refusingSecret(x.n.bound(), "", name) != "" {
			continue
		}
		if trailerField(name+":") == "" && !isCredentialField(name) && !strings.HasPrefix(name, "Proxy-") && !isHopByHop(name) {
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[name] = nil
		}
	}
	if out.Body == nil || out.Body == http.NoBody {
		return nil
	}
	out.Body = &outgoingBody{
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

// isHopByHop reports whether a field applies to one connection only.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect":
		return true
	}
	return false
}

// outputBuffer is output that a reader has produced and not returned yet.
type outputBuffer struct {
	out []byte // to be returned
	buf []byte // the buffer that contains out
	err error  // returned after out
}

// read implements Read for a reader whose fill produces more output, or sets
// err. want is the approximate number of bytes needed.
func (r *outputBuffer) read(p []byte, fill func(want int)) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		fill(len(p))
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}
