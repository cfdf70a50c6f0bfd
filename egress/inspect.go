package egress

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Limits for a guest's requests.
const (
	maxHeader        = 64 << 10
	maxResponseHead  = 64 << 10
	maxStreams       = 100 // concurrent requests on an HTTP/2 connection
	headerTimeout    = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 2 * time.Minute
)

// inspector serves the HTTP of one sandbox: it reads each request, checks
// whether it is allowed, and sends it as a new request.
type inspector struct {
	authority *CA
	// judge decides whether a request is allowed.
	judge func(host string, port int, q brig.Request) (brig.Verdict, int)
	// dial opens an unencrypted connection to a host that has been checked.
	dial func(ctx context.Context, host string, port int) (net.Conn, error)
	// reserveConn reserves one more connection for an inspection, and returns the
	// reason if none is available. The first connection of an inspection uses
	// the reservation of the guest's connection. If further is nil, connections
	// are not counted.
	reserveConn func() (leave func(), reason string)
	// isRestricted reports whether a rule for the host restricts methods or paths. If isRestricted
	// is nil, restrictions are assumed.
	isRestricted func(host string, port int) bool
	// recheck closes the connections to the host whose addresses may no longer be used, and returns
	// the reason. If recheck is nil, addresses are not checked again.
	recheck    func() error
	roots      *x509.CertPool    // to verify upstream certificates; nil: the system's
	secrets    func() []Secret   // the sandbox's current secrets
	countGrown func(int64) error // counts bytes that values add to requests; nil: they are not counted
	valuesSent *sentValues       // the values that were sent for the sandbox
	report     func(Event)
	now        func() time.Time
	// scrubbing replaces the scrubber in tests.
	scrubbing      func(io.Reader) io.Reader
	budget         *budget       // the server memory that the sandbox may use
	handshakeSlots chan struct{} // one slot for each concurrent handshake
}

// inspection is one connection of the guest that is being inspected, to one
// host and port.
type inspection struct {
	*inspector
	host           string
	port           int
	secure         bool
	upstream       *upstream
	gate           *gate // nil: the guest uses HTTP/2
	requestTracker requestTracker
	window         int64 // HTTP/2 window for the host's responses

	mu      sync.Mutex
	ended   bool
	serving sync.WaitGroup
}

// serve speaks HTTP with the guest on conn until the connection or ctx ends,
// and closes conn. When secure is set, the guest speaks TLS, and its client
// hello requests host.
//
// HTTP/2 is used only if it was negotiated in TLS.
func (i *inspector) serve(ctx context.Context, conn net.Conn, host string, port int, secure bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connections to the host
	n := &inspection{inspector: i, host: canonicalHost(host), port: port, secure: secure, requestTracker: requestTracker{b: i.budget}}
	if !i.budget.reserve(inspectCost, i.budget.reservedForRequests()) {
		n.reportRefused(reasonNoMemory)
		conn.Close()
		return
	}
	defer i.budget.release(inspectCost)
	if secure { // HTTP/2 is available only over TLS
		var ok bool
		if n.window, ok = i.budget.reserveWindow(); !ok {
			n.reportRefused(reasonNoMemory)
			conn.Close()
			return
		}
		defer i.budget.release(n.window)
	}
	n.upstream = newUpstream(ctx, n)
	closed := make(chan struct{})
	raw := &closeNotifyConn{Conn: conn, ended: func() { close(closed) }}
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn = raw

	protocol := ""
	if secure {
		guest, err := n.handshake(ctx, conn)
		if err != nil {
			conn.Close()
			return
		}
		conn, protocol = guest, guest.ConnectionState().NegotiatedProtocol
	}
	begin := func() bool { return n.requestTracker.begin(ctx) }
	var protocols http.Protocols
	if protocol == "h2" {
		// The gate hides the TLS connection, so the server must treat it as
		// unencrypted HTTP/2.
		protocols.SetUnencryptedHTTP2(true)
		conn = &frameGate{Conn: conn, ctx: ctx, requestTracker: &n.requestTracker, refused: n.reportRefused}
	} else {
		protocols.SetHTTP1(true)
		n.gate = &gate{Conn: conn, begin: begin, refused: n.reportRefused}
		conn = n.gate
	}
	// Connection errors are of no use to an operator, and could quote secret
	// data.
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server := &http.Server{
		Handler:                      n,
		DisableGeneralOptionsHandler: true,
		Protocols:                    &protocols,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxHTTP2Frame,
			MaxReceiveBufferPerStream: requestWindow, MaxReceiveBufferPerConnection: requestsWindow,
		},
		ErrorLog:    quiet,
		ConnState:   n.onStateChange,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	// Serve returns as soon as it has accepted the only connection.
	_ = server.Serve(&singleListener{conn: conn})
	<-closed
	cancel()
	n.wait()
	n.requestTracker.end()
}

// singleListener is a listener that returns one existing connection.
type singleListener struct{ conn net.Conn }

func (s *singleListener) Accept() (net.Conn, error) {
	c := s.conn
	if c == nil {
		return nil, net.ErrClosed
	}
	s.conn = nil
	return c, nil
}

func (s *singleListener) Close() error   { return nil }
func (s *singleListener) Addr() net.Addr { return &net.TCPAddr{} }

// closeNotifyConn is a connection that reports when it is closed.
type closeNotifyConn struct {
	net.Conn
	once  sync.Once
	ended func()
}

func (c *closeNotifyConn) Close() error {
	defer c.once.Do(c.ended)
	return c.Conn.Close()
}

// CloseWrite closes the write side.
func (c *closeNotifyConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// canonicalHost returns a name in the form that rules use.
func canonicalHost(name string) string {
	return strings.TrimSuffix(strings.ToLower(name), ".")
}
