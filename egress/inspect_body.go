package egress

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// guestBody is the body of a request as the guest sends it. Its Close ends a
// Read that waits for the guest. A host may respond before it has the body, and
// a guest that has the complete response may never send the rest: then the
// HTTP/2 client, which waits for its last Read, would never release the
// response.
type guestBody struct {
	io.Reader
	stop func(time.Time) error // sets the time at which Read ends

	mu     sync.Mutex
	ended  bool
	closed bool
}

func (b *guestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = true
	}
	return n, err
}

// Close implements io.Closer. After a body that has ended, the server already
// reads the guest's next request, which must not fail.
func (b *guestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.closed {
		return nil
	}
	b.closed = true
	return b.stop(time.Unix(1, 0))
}

func (b *guestBody) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// hostBody is the body of a host's response. Its Close also closes the body of
// the request.
type hostBody struct {
	io.ReadCloser
	request *guestBody
}

func (b *hostBody) Close() error {
	_ = b.request.Close()
	return b.ReadCloser.Close()
}

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
		Reader: out.Body, Closer: x.body,
		ended: func() {
			for name := range trailer {
				trailer[name] = x.in.Trailer[name]
			}
			sent()
		},
		failed: func() {
			x.broken.Store(!x.body.isClosed())
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
