package rest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// portAPI has the handlers for ports of sandboxes.
type portAPI struct{ *base }

// routes returns the routes of ports of sandboxes.
func (a portAPI) routes() []route {
	get := http.MethodGet
	return []route{
		{id: "dial-port", method: get, pattern: "/v1/sandboxes/{name}/ports/{port}", tag: "ports", summary: "Connect to a TCP port inside a sandbox",
			notes:  "Send Connection: Upgrade and Upgrade: tcp. After the response, both sides send bytes, and can close their direction separately.",
			handle: a.dialPort, longLived: true, status: http.StatusSwitchingProtocols},
	}
}

// dialPort turns the request's connection into a connection to a port in the
// sandbox.
func (a portAPI) dialPort(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	port, err := intParam(r, "port")
	if err != nil {
		return err
	}
	if port < 1 || port > 65535 {
		return brig.InvalidField("port", "%d is not a port", port).WithHint("give a number from 1 to 65535")
	}
	if !headerContains(r, "Connection", "upgrade") || !headerContains(r, "Upgrade", "tcp") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "tcp")
		return httpapi.WithStatus(http.StatusUpgradeRequired,
			brig.Errorf(brig.InvalidArgument, "this path is for connections, not for requests").
				WithHint("send the headers Connection: Upgrade and Upgrade: tcp, or use brig sandbox forward"))
	}
	inside, err := a.Service.Dial(r.Context(), param(r, "name"), port)
	if err != nil {
		return err
	}
	defer inside.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return brig.Errorf(brig.Unimplemented, "this connection cannot be turned into another").Because(err)
	}
	defer conn.Close()
	const upgradeResponse = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n%s: %s\r\n\r\n"
	_, err = fmt.Fprintf(conn, upgradeResponse, httpapi.RequestID, w.Header().Get(httpapi.RequestID))
	if err == nil { // after an error the client has disconnected and needs no response
		Relay(bufferedConn{conn, buffered.Reader}, httpapi.NewBoundedConn(r.Context(), inside))
	}
	return nil
}

// headerContains reports whether a header of r contains a word.
func headerContains(r *http.Request, header, word string) bool {
	for w := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

// bufferedConn is a connection that first returns the bytes that net/http has
// already read.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (c bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite closes the write side of the connection.
func (c bufferedConn) CloseWrite() error { return closeWrite(c.Conn) }

// Relay copies bytes between two connections until both directions have ended
// or one has failed. Then it closes both connections. When one direction ends,
// Relay closes that direction of the other connection, and the opposite
// direction continues.
func Relay(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	whole := make(chan bool, 2)
	carry := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		whole <- err == nil
	}
	go carry(a, b)
	go carry(b, a)
	if !<-whole {
		a.Close()
		b.Close()
	}
	<-whole
}

// closeWrite closes the write side of c. It returns an error for a connection
// that cannot be half-closed, and the caller then closes the whole connection.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	return half.CloseWrite()
}
