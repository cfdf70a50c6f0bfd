// Package outbound makes the server's own connections: to registries, identity
// providers, webhooks, buckets and other services.
//
// It resolves a name when it dials, and checks each address immediately before
// it connects. Therefore, neither DNS nor a response of another service can
// redirect the server to a forbidden address.
package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// CheckFunc returns an error if the server must not connect to an address. The host
// is the dialed name or address.
type CheckFunc func(host string, addr netip.Addr) error

// DialFunc dials an address, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Refusal is the error of a connection to an address that the check refused. No data was sent.
type Refusal struct{ Err error }

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error of the check.
func (r *Refusal) Unwrap() error { return r.Err }

// refuse checks an address and wraps the error of the check in a Refusal.
func refuse(check CheckFunc, host string, addr netip.Addr) error {
	if err := check(host, addr); err != nil {
		return &Refusal{err}
	}
	return nil
}

// NewDialFunc returns a function that dials with d and connects only to addresses that the check
// accepts. For a refused address, it returns an error that wraps a Refusal.
func NewDialFunc(d net.Dialer, check CheckFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		judged := d
		judged.Control = func(_, resolved string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", resolved, err)
			}
			return refuse(check, host, ap.Addr())
		}
		return judged.DialContext(ctx, network, address)
	}
}

// Transport is an HTTP transport that checks the address of each connection.
// For requests through a proxy from the environment, it only checks literal
// addresses in the URL: the proxy resolves names, so the proxy must check the
// resulting addresses.
type Transport struct {
	check           CheckFunc
	direct, proxied *http.Transport
}

// NewDefaultTransport returns a transport for calls with small responses.
func NewDefaultTransport(check CheckFunc) *Transport {
	return NewTransport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}, net.Dialer{Timeout: 10 * time.Second}, check)
}

// NewTransport returns a transport with the settings of base. If base.Proxy is
// nil, the transport uses no proxy.
func NewTransport(base *http.Transport, d net.Dialer, check CheckFunc) *Transport {
	t := &Transport{check: check, direct: base.Clone(), proxied: base}
	t.direct.Proxy = nil
	t.direct.DialContext = NewDialFunc(d, check)
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.proxied.Proxy == nil {
		return t.direct.RoundTrip(r)
	}
	if proxy, err := t.proxied.Proxy(r); err != nil || proxy == nil {
		return t.direct.RoundTrip(r)
	}
	if addr, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := refuse(t.check, r.URL.Hostname(), addr); err != nil {
			return nil, err
		}
	}
	return t.proxied.RoundTrip(r)
}

// CloseIdleConnections closes connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
