package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Dial implements brig.Service. The connection to the server becomes the one
// to the port.
func (c *Client) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	var mu sync.Mutex // of under: a transport may still be dialling another
	var under net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		under = i.Conn
	}})
	resp, err := c.send(ctx, request{
		method: http.MethodGet, path: sandboxPath(name, "ports", strconv.Itoa(port)),
		header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}},
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	body, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || under == nil || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, brig.Errorf(brig.ConnectionFailed, "the server did not turn the connection into one to the port").
			WithHint("is there a proxy on the way that does not pass on upgrades?")
	}
	return tunnel{body, under}, nil
}

// tunnel is a connection that was one to the server: what has been read of it
// already is in the body.
type tunnel struct {
	io.ReadWriteCloser
	under net.Conn
}

// CloseWrite ends what is sent.
func (t tunnel) CloseWrite() error {
	if half, ok := t.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// LocalAddr implements net.Conn.
func (t tunnel) LocalAddr() net.Addr { return t.under.LocalAddr() }

// RemoteAddr implements net.Conn: it is the server's.
func (t tunnel) RemoteAddr() net.Addr { return t.under.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t tunnel) SetDeadline(at time.Time) error { return t.under.SetDeadline(at) }

// SetReadDeadline implements net.Conn.
func (t tunnel) SetReadDeadline(at time.Time) error { return t.under.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (t tunnel) SetWriteDeadline(at time.Time) error { return t.under.SetWriteDeadline(at) }
