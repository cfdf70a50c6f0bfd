package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"

	"github.com/brig-run/brig"
)

// Limits for a host's part of the TLS handshake. A host chooses
// its certificates, and each takes many times its length in memory.
const (
	maxHandshake    = 48 << 10 // bytes of the handshake, as received
	maxChain        = 16       // certificates
	maxChainBytes   = 32 << 10 // of the certificates together
	freeChainBytes  = 8 << 10  // requestCost includes a chain of this length
	chainCostFactor = 6        // the memory of a certificate, as a multiple of its length
)

var errLongHandshake = errors.New("its TLS handshake or its certificates are too long")

// dialTLS connects to the host with TLS and verifies its certificate. The
// handshake, further windows of HTTP/2, and long certificates are charged.
func (u *upstream) dialTLS(ctx context.Context, protocols []string) (net.Conn, error) {
	raw, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	var charges []func()
	conn := &hostConn{&closeNotifyConn{Conn: raw, ended: func() {
		for _, release := range charges {
			release()
		}
	}}, raw.closed}
	noMemory := func() (net.Conn, error) {
		_ = conn.Close()
		u.n.reportRefused(reasonNoMemory)
		return nil, &dialError{brig.Errorf(brig.RateLimited, reasonNoMemory)}
	}
	budget := u.n.budget
	handshaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if !budget.wait(handshaking, helloCost, budget.reservedForConnections()) {
		return noMemory()
	}
	limited := &handshakeLimit{hostConn: conn}
	limited.remaining.Store(maxHandshake)
	c := tls.Client(limited, &tls.Config{
		ServerName:            u.n.host,
		RootCAs:               u.n.roots,
		NextProtos:            protocols,
		MinVersion:            tls.VersionTLS12,
		Time:                  u.n.now,
		VerifyPeerCertificate: limited.checkChain,
	})
	err = c.HandshakeContext(handshaking)
	budget.release(helloCost)
	if err != nil {
		_ = conn.Close()
		return nil, &handshakeError{err}
	}
	limited.done.Store(true)
	if more := limited.chain - freeChainBytes; more > 0 {
		if !budget.reserve(more*chainCostFactor, budget.reservedForConnections()) {
			return noMemory()
		}
		charges = append(charges, func() { budget.release(more * chainCostFactor) })
	}
	framed := c.ConnectionState().NegotiatedProtocol == "h2"
	if framed {
		release, ok := u.reserveWindow(ctx)
		if !ok {
			return noMemory()
		}
		charges = append(charges, release)
	}
	if len(protocols) > 1 {
		u.lines.Store(!framed)
	}
	return c, nil
}

// reserveWindow reserves the window of an HTTP/2 connection. The first one uses the window of the
// inspection. A host that accepts few concurrent requests per connection causes further
// connections, and may fill each window.
func (u *upstream) reserveWindow(ctx context.Context) (release func(), ok bool) {
	u.mu.Lock()
	first := !u.window
	u.window = true
	u.mu.Unlock()
	if first {
		return func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.window = false
		}, true
	}
	if !u.n.budget.wait(ctx, u.n.window, u.n.budget.reservedForConnections()) {
		return nil, false
	}
	return func() { u.n.budget.release(u.n.window) }, true
}

// handshakeLimit is a connection that limits the bytes that are read during the
// TLS handshake.
type handshakeLimit struct {
	*hostConn
	remaining atomic.Int64
	done      atomic.Bool
	chain     int64 // bytes of the host's certificates
}

func (l *handshakeLimit) Read(p []byte) (int, error) {
	if l.done.Load() {
		return l.hostConn.Read(p)
	}
	remaining := l.remaining.Load()
	if remaining <= 0 {
		return 0, errLongHandshake
	}
	n, err := l.hostConn.Read(p[:min(int64(len(p)), remaining)])
	l.remaining.Add(-int64(n))
	return n, err
}

// checkChain rejects a long chain of certificates.
func (l *handshakeLimit) checkChain(certificates [][]byte, _ [][]*x509.Certificate) error {
	for _, c := range certificates {
		l.chain += int64(len(c))
	}
	if len(certificates) > maxChain || l.chain > maxChainBytes {
		return errLongHandshake
	}
	return nil
}
