package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

var errWrongName = errors.New("the client hello asks for another name")

// handshake ends the guest's TLS with a certificate for the host, if that is
// whom the guest asks for.
func (n *inspection) handshake(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	guest := tls.Server(conn, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // another connection does not know this one's keys
		Time:                   n.now,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if canonicalHost(hello.ServerName) != n.host {
				return nil, errWrongName
			}
			return n.authority.leaf(n.host, n.now())
		},
	})
	err := guest.HandshakeContext(ctx)
	switch {
	case err == nil:
		return guest, nil
	case errors.Is(err, errWrongName):
		n.reportRefused(errWrongName.Error())
	case ctx.Err() == nil:
		// Most of all: that it does not trust the authority.
		n.report(Event{At: n.now(), What: Connect, Host: n.host, Port: n.port, Rule: -1, Why: "TLS with the sandbox failed: " + clip(err.Error())})
	}
	return nil, err
}

// upstream makes requests to the host of an inspection, on connections that
// end with it.
type upstream struct {
	ctx context.Context
	n   *inspection
	// plain makes requests, upgrading those that leave HTTP.
	plain, upgrading *http.Transport
}

func newUpstream(ctx context.Context, n *inspection) *upstream {
	u := &upstream{ctx: ctx, n: n}
	u.plain = u.transport("h2", "http/1.1")
	u.upgrading = u.transport("http/1.1")
	return u
}

func (u *upstream) transport(protocols ...string) *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx) },
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return u.dialTLS(ctx, protocols)
		},
		DisableCompression:     true, // what the guest does not ask for it does not get
		ForceAttemptHTTP2:      protocols[0] == "h2",
		MaxResponseHeaderBytes: maxAnswerHead,
		IdleConnTimeout:        idleTime,
		ExpectContinueTimeout:  time.Second, // not every server says that it waits
	}
	if !t.ForceAttemptHTTP2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return t
}

// RoundTrip makes a request.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return u.upgrading.RoundTrip(r)
	}
	return u.plain.RoundTrip(r)
}

// dial connects to the host, whatever a request says, until the inspection
// ends.
func (u *upstream) dial(ctx context.Context) (net.Conn, error) {
	conn, err := u.n.inspector.dial(ctx, u.n.host, u.n.port)
	if err != nil {
		return nil, &dialError{err}
	}
	stop := context.AfterFunc(u.ctx, func() { conn.Close() })
	return &closing{Conn: conn, ended: func() { stop() }}, nil
}

// dialTLS speaks TLS with the host, who has to prove that it is it.
func (u *upstream) dialTLS(ctx context.Context, protocols []string) (net.Conn, error) {
	conn, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c := tls.Client(conn, &tls.Config{
		ServerName: u.n.host,
		RootCAs:    u.n.roots,
		NextProtos: protocols,
		MinVersion: tls.VersionTLS12,
		Time:       u.n.now,
	})
	if err := c.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &handshakeError{err}
	}
	return c, nil
}

// dialError says that there is no connection.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// handshakeError says that there is one, and no TLS on it.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// cause says to the guest why a request failed. Of what came back from the
// host nothing is quoted: it may hold a value.
func cause(err error) string {
	var (
		handshake *handshakeError
		dialled   *dialError
		own       *brig.Error
		timeout   net.Error
	)
	switch {
	case errors.As(err, &own):
		return own.Message
	case errors.As(err, &handshake):
		return "TLS with it failed: " + clip(handshake.Error())
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.As(err, &dialled):
		return "it cannot be reached"
	}
	return "the connection to it failed"
}

// clip shortens what somebody else wrote.
func clip(s string) string { return brig.Clip(s, 300) }
