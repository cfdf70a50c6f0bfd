package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// guestBody is the body of a request as the guest sends it. Its Close ends a Read that waits for
// the guest. A host may respond before it has received the body, and the guest may then never send
// the rest. The HTTP/2 client, which waits for its last Read, would never release the response.
type guestBody interface {
	io.ReadCloser
	isClosed() bool
	// finish closes the body, and reports whether the guest can use its
	// connection again.
	finish() bool
}

func newGuestBody(w http.ResponseWriter, r *http.Request) guestBody {
	if r.ProtoMajor == 2 {
		return &streamBody{server: r.Body, stop: http.NewResponseController(w).SetReadDeadline, signal: newSignal()}
	}
	return &connBody{server: r.Body, waits: r.Header.Get("Expect") != "", results: make(chan readResult, 1), signal: newSignal()}
}

var errUploadEnded = errors.New("the host has responded")

// signal is a channel that is closed once.
type signal struct {
	closed chan struct{}
	once   sync.Once
}

func newSignal() *signal { return &signal{closed: make(chan struct{})} }

func (s *signal) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// streamBody is a body of HTTP/2, whose server can end a Read of one stream.
type streamBody struct {
	*signal
	server io.Reader
	stop   func(time.Time) error // sets the time at which Read ends
	mu     sync.Mutex            // held during Read
	ended  atomic.Bool
}

// Read implements io.Reader.
func (b *streamBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed() {
		return 0, errUploadEnded
	}
	n, err := b.server.Read(p)
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (b *streamBody) Close() error {
	b.once.Do(func() {
		close(b.closed)
		if !b.ended.Load() {
			_ = b.stop(time.Unix(1, 0))
		}
	})
	return nil
}

// finish implements guestBody. The rest of the body belongs to the stream only.
func (b *streamBody) finish() bool {
	_ = b.Close()
	b.mu.Lock() // no Read continues
	defer b.mu.Unlock()
	return true
}

// connBody is a body of HTTP/1. If a Read of the server's body were aborted, the connection would be
// unusable, and the server would take the rest of the body for the guest's next request. Therefore
// each Read runs in a goroutine that Close does not wait for, and finish reads the rest.
type connBody struct {
	*signal
	server io.Reader
	waits  bool // the guest sends the body when it is read

	mu      sync.Mutex // guards the fields below; held during Read
	buf     []byte
	running bool            // a read of the server's body
	results chan readResult // of that
	ended   bool
}

type readResult struct {
	n   int
	err error
}

const (
	// guestRead is the number of bytes that are read of a body of HTTP/1 at a time.
	guestRead = 16 << 10
	// maxRest and restTimeout limit what finish reads. net/http has the same limit for the rest of
	// a body that a handler has not read.
	maxRest     = 256 << 10
	restTimeout = time.Second
)

// Read implements io.Reader.
func (b *connBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed() {
		return 0, errUploadEnded
	}
	data, err := b.readNext(len(p), b.closed)
	return copy(p, data), err
}

// readNext returns up to n bytes, which are valid until the following call, or
// errUploadEnded when leave is closed. The caller holds b.mu.
func (b *connBody) readNext(n int, leave <-chan struct{}) ([]byte, error) {
	if b.buf == nil {
		b.buf = make([]byte, guestRead)
	}
	if !b.running {
		b.running = true
		part := b.buf[:min(n, len(b.buf))]
		go func() {
			n, err := b.server.Read(part)
			b.results <- readResult{n, err}
		}()
	}
	select {
	case r := <-b.results:
		if b.running = false; r.err != nil {
			b.ended = true
		}
		return b.buf[:r.n], r.err
	case <-leave:
		return nil, errUploadEnded
	}
}

// Close implements io.Closer.
func (b *connBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// finish implements guestBody. It reads the rest of the body, and reports whether the connection is
// at the body's end. net/http would also read the rest, but without a time limit. In full duplex,
// net/http also panics if the guest then uses its connection again. A guest that waits for permission
// to send a body that was not read will not send it, and net/http ends its connection.
func (b *connBody) finish() bool {
	_ = b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return true
	}
	if b.waits && b.buf == nil {
		return false
	}
	late := make(chan struct{})
	defer time.AfterFunc(restTimeout, func() { close(late) }).Stop()
	for rest := 0; rest < maxRest; {
		data, err := b.readNext(guestRead, late)
		if err != nil {
			return err == io.EOF
		}
		rest += len(data)
	}
	return false
}

// hostBody is the body of a host's response. Its Close also closes the body of
// the request.
type hostBody struct {
	io.ReadCloser
	request guestBody
}

func (b *hostBody) Close() error {
	_ = b.request.Close()
	return b.ReadCloser.Close()
}

// outgoingBody is the body of a request that is being sent. It ends when the
// connection to the host is closed: net/http's client for HTTP/1 waits for its
// last Read before it reports that, and the guest may never send more.
type outgoingBody struct {
	io.Reader
	body   guestBody
	ended  func()
	failed func()

	mu     sync.Mutex      // guards the fields below
	begun  bool            // a Read has begun
	closed context.Context // ends when the connection is closed; nil: there is none yet
	stop   func() bool     // forgets that connection
}

// Read implements io.Reader.
func (o *outgoingBody) Read(p []byte) (int, error) {
	o.mu.Lock()
	o.begun = true
	closed := o.closed
	o.mu.Unlock()
	if closed != nil && closed.Err() != nil {
		_ = o.body.Close()
	}
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

// Close implements io.Closer.
func (o *outgoingBody) Close() error { return o.body.Close() }

// onConnection is called when the client has chosen a connection.
func (o *outgoingBody) onConnection(info httptrace.GotConnInfo) {
	o.releaseConnection()
	closed := closedContext(info.Conn)
	if closed == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = closed
	o.stop = context.AfterFunc(closed, func() {
		o.mu.Lock()
		// The client may retry an unread body on another connection, because the host had closed
		// the kept connection.
		end := o.begun && o.closed == closed
		o.mu.Unlock()
		if end {
			_ = o.body.Close()
		}
	})
}

// releaseConnection ends the use of a connection.
func (o *outgoingBody) releaseConnection() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		o.stop()
		o.closed, o.stop = nil, nil
	}
}

// send prepares the body for sending, and returns the trailer, which is filled
// when the body has ended. The trailer has the fields that the guest announced,
// except those that frame messages or identify the client. If a secret is
// exclusive, the trailer has only fields that are also allowed in a header.
// send calls sent when the body has been sent or has failed.
func (x *exchange) send(out *http.Request, sent func()) (trailer http.Header) {
	for name := range x.in.Trailer {
		if x.exclusive && !isHarmlessHeader(name) && refusingSecret(x.bound, "", name) != "" {
			continue
		}
		if checkTrailerField(name+":") == "" && !isCredentialField(name) && !strings.HasPrefix(name, "Proxy-") && !isHopByHop(name) {
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
		Reader: out.Body, body: x.body,
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
