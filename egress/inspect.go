package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// The bounds of what a guest may ask of a server.
const (
	maxHeader     = 64 << 10
	maxAnswerHead = 256 << 10
	maxStreams    = 100 // requests at once on a connection of HTTP/2
	headerTime    = 10 * time.Second
	handshakeTime = 10 * time.Second
	idleTime      = 2 * time.Minute
)

// inspector serves the HTTP of one sandbox: it reads each request, asks
// whether it may be made, and makes it anew.
type inspector struct {
	authority *Authority
	// judge says whether a request may be made.
	judge func(host string, port int, q brig.Request) (brig.Verdict, int)
	// dial connects to a host that has been judged, in the clear.
	dial    func(ctx context.Context, host string, port int) (net.Conn, error)
	roots   *x509.CertPool  // nil: the system's; to verify upstream certificates
	secrets func() []Secret // those of the sandbox, as they are now
	given   *given          // the values that it was lent
	report  func(Event)
	now     func() time.Time
}

// inspection is one connection of the guest that is being inspected, to one
// host and port.
type inspection struct {
	*inspector
	host    string
	port    int
	secure  bool
	forward *upstream

	mu      sync.Mutex
	ended   bool
	scrub   *scrubber // of the last request
	serving sync.WaitGroup
}

// serve speaks HTTP with the guest on conn until it ends, or ctx does, and
// closes conn. When secure is set the guest speaks TLS, whose client hello asks
// for host.
//
// HTTP/2 is only spoken where TLS has agreed on it.
func (i *inspector) serve(ctx context.Context, conn net.Conn, host string, port int, secure bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what was dialled is closed
	n := &inspection{inspector: i, host: canonicalHost(host), port: port, secure: secure}
	n.forward = newUpstream(ctx, n)
	closed := make(chan struct{})
	conn = &closing{Conn: conn, ended: func() { close(closed) }}
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	protocol := ""
	if secure {
		guest, err := n.handshake(ctx, conn)
		if err != nil {
			conn.Close()
			return
		}
		conn, protocol = guest, guest.ConnectionState().NegotiatedProtocol
	}
	if protocol != "h2" {
		conn = &gate{Conn: conn, refused: func(why string) { n.reportRefused(why) }}
	}
	// What goes wrong with a connection says nothing to an operator, and might
	// quote what nobody is to see.
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server := &http.Server{
		Handler:                      n,
		DisableGeneralOptionsHandler: true,
		TLSConfig:                    &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHeader,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:                     quiet,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
	}
	// It returns as soon as it has accepted the only connection.
	_ = server.Serve(&single{conn: conn})
	<-closed
	cancel()
	n.wait()
}

// single is a listener for a connection that there is already.
type single struct{ conn net.Conn }

func (s *single) Accept() (net.Conn, error) {
	c := s.conn
	if c == nil {
		return nil, net.ErrClosed
	}
	s.conn = nil
	return c, nil
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }

// closing is a connection that says when it is closed.
type closing struct {
	net.Conn
	once  sync.Once
	ended func()
}

func (c *closing) Close() error {
	defer c.once.Do(c.ended)
	return c.Conn.Close()
}

// CloseWrite closes one direction.
func (c *closing) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// canonicalHost returns a name as rules have it.
func canonicalHost(name string) string {
	return strings.TrimSuffix(strings.ToLower(name), ".")
}
