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

// portCalls are the calls for ports.
type portCalls struct{ *conn }

// Dial implements brig.Service. It upgrades its connection to the server to a
// connection to the port.
func (c portCalls) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	var mu sync.Mutex // guards conn, because a transport may still be dialing another connection
	var conn net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		conn = i.Conn
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
	if !ok || conn == nil || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, brig.Errorf(brig.ConnectionFailed, "the server did not upgrade the connection").
			WithHint("if a proxy is in front of the server, let it pass on HTTP upgrades")
	}
	return tunnel{body, conn}, nil
}

// tunnel is an upgraded connection to the server. The body starts with the bytes that were already
// read from the connection.
type tunnel struct {
	io.ReadWriteCloser
	conn net.Conn
}

// CloseWrite closes the write side.
func (t tunnel) CloseWrite() error {
	if half, ok := t.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// LocalAddr implements net.Conn.
func (t tunnel) LocalAddr() net.Addr { return t.conn.LocalAddr() }

// RemoteAddr implements net.Conn. It returns the address of the server.
func (t tunnel) RemoteAddr() net.Addr { return t.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (t tunnel) SetDeadline(deadline time.Time) error { return t.conn.SetDeadline(deadline) }

// SetReadDeadline implements net.Conn.
func (t tunnel) SetReadDeadline(deadline time.Time) error { return t.conn.SetReadDeadline(deadline) }

// SetWriteDeadline implements net.Conn.
func (t tunnel) SetWriteDeadline(deadline time.Time) error { return t.conn.SetWriteDeadline(deadline) }
