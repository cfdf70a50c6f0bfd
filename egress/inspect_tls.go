package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

var errWrongName = errors.New("the client hello asks for another name")

// handshake terminates the guest's TLS with a certificate for the host, if the
// guest requests that host.
func (n *inspection) handshake(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	select {
	case n.handshakeSlots <- struct{}{}:
		defer func() { <-n.handshakeSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !n.budget.wait(ctx, helloCost, 0) {
		n.reportRefused(reasonNoMemory)
		return nil, errNoMemory
	}
	defer n.budget.release(helloCost)
	guest := tls.Server(conn, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // other connections do not have the ticket keys
		Time:                   n.now,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if canonicalHost(hello.ServerName) != n.host {
				return nil, errWrongName
			}
			return n.authority.issueLeaf(n.host, n.now())
		},
	})
	err := guest.HandshakeContext(ctx)
	switch {
	case err == nil:
		return guest, nil
	case errors.Is(err, errWrongName):
		n.reportRefused(errWrongName.Error())
	case ctx.Err() == nil:
		// The most common cause is that the guest does not trust the CA.
		n.report(Event{At: n.now(), Kind: Connect, Host: n.host, Port: n.port, Rule: -1, Why: "TLS with the sandbox failed: " + clip(err.Error())})
	}
	return nil, err
}

// upstream makes requests to the host of an inspection, on connections that are
// closed with the inspection.
type upstream struct {
	ctx context.Context
	n   *inspection
	// plain sends ordinary requests; upgrading sends those with a protocol
	// upgrade.
	plain, upgrading *http.Transport
	lines            atomic.Bool // the host speaks HTTP/1

	mu       sync.Mutex
	conns    int      // connections to the host, including those being established
	window   bool     // an HTTP/2 connection uses the window of the inspection
	releases []func() // releases the reservations of all but one of them
}

func newUpstream(ctx context.Context, n *inspection) *upstream {
	u := &upstream{ctx: ctx, n: n}
	u.lines.Store(!n.secure)
	u.plain = u.newTransport("h2", "http/1.1")
	u.upgrading = u.newTransport("http/1.1")
	return u
}

func (u *upstream) newTransport(protocols ...string) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := u.dial(ctx)
			if err != nil {
				return nil, err
			}
			return conn, nil
		},
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return u.dialTLS(ctx, protocols)
		},
		DisableCompression:     true, // a response is compressed only if the guest requested it
		ForceAttemptHTTP2:      protocols[0] == "h2",
		MaxResponseHeaderBytes: maxResponseHead,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  time.Second, // some servers never send 100 Continue
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize: maxHTTP2Frame, MaxReceiveBufferPerConnection: int(u.n.window),
			MaxReceiveBufferPerStream: int(max(u.n.window/4, requestWindow)),
		},
	}
	if !t.ForceAttemptHTTP2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	// Check again, because a reused connection was checked only when it was opened.
	if blocked := u.n.recheck; blocked != nil {
		if err := blocked(); err != nil {
			u.plain.CloseIdleConnections()
			return nil, &dialError{err}
		}
	}
	if r.Header.Get("Upgrade") != "" {
		return u.upgrading.RoundTrip(r)
	}
	return u.plain.RoundTrip(r)
}

// dial connects to the host of the inspection, regardless of the host of a
// request. The connection is closed when the inspection ends.
func (u *upstream) dial(ctx context.Context) (*hostConn, error) {
	leave, err := u.reserveConn()
	if err != nil {
		return nil, &dialError{err}
	}
	conn, err := u.n.inspector.dial(ctx, u.n.host, u.n.port)
	if err != nil {
		leave()
		return nil, &dialError{err}
	}
	stop := context.AfterFunc(u.ctx, func() { conn.Close() })
	closed, end := context.WithCancel(context.WithoutCancel(ctx))
	return &hostConn{&closeNotifyConn{Conn: conn, ended: func() { end(); stop(); leave() }}, closed}, nil
}

// hostConn is a connection to the host. Layers on it embed it, so that they have
// its context.
type hostConn struct {
	*closeNotifyConn
	closed context.Context // ends when the connection is closed
}

func (h *hostConn) closedContext() context.Context { return h.closed }

// closedContext returns a context that ends when a connection of an upstream is
// closed, or nil for another connection.
func closedContext(c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if h, ok := c.(interface{ closedContext() context.Context }); ok {
		return h.closedContext()
	}
	return nil
}

// reserveConn reserves one more connection to the host. One guest connection
// may need several: the host may speak HTTP/1, or accept few requests on each.
func (u *upstream) reserveConn() (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns > 0 && u.n.reserveConn != nil {
		give, reason := u.n.reserveConn()
		if reason != "" {
			u.n.report(Event{At: u.n.now(), Kind: Connect, Host: u.n.host, Port: u.n.port, Rule: -1, Why: reason})
			return nil, brig.Errorf(brig.RateLimited, "%s", reason)
		}
		u.releases = append(u.releases, give)
	}
	u.conns++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.conns--
		if last := len(u.releases) - 1; last >= 0 {
			u.releases[last]()
			u.releases = u.releases[:last]
		}
	}, nil
}

// dialError is the error of a connection that could not be made.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// handshakeError is the error of a connection on which the TLS handshake
// failed.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// describeError returns the reason of a failed request for the guest. It does not quote
// the host's data, which may contain a value.
func describeError(err error) string {
	var (
		handshake *handshakeError
		dialErr   *dialError
		reported  *brig.Error
		timeout   net.Error
	)
	switch {
	case errors.As(err, &reported):
		return reported.Message
	case errors.As(err, &handshake):
		return "TLS with it failed: " + clip(handshake.Error())
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.As(err, &dialErr):
		return "it cannot be reached"
	}
	return "the connection to it failed"
}

// clip shortens untrusted text.
func clip(s string) string { return brig.Clip(s, 300) }
