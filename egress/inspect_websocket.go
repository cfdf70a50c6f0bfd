package egress

import (
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/brig-run/brig"
)

// upgradeToWebSocket prepares a connection that changes from HTTP to WebSocket, after the
// host has confirmed that it speaks WebSocket. The rules do not apply to the
// messages that follow.
//
// The broker does not insert values into the guest's messages. It searches each
// message of the host, and ends the connection if one contains a value.
func (x *exchange) upgradeToWebSocket(res *http.Response) error {
	sum := sha1.Sum([]byte(x.in.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok || res.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		return brig.Errorf(brig.Unavailable, "it does not speak WebSocket")
	}
	res.Status = "" // its text may have a value; the standard one is sent
	if x.scrub != nil {
		x.scrubHeader(res.Header)
		removeDigests(res.Header)
		res.Body = &searchedConn{conn, x.scrub.values.newFrames(conn)}
	}
	return nil
}

// searchedConn is a connection on which all data from the host is searched.
type searchedConn struct {
	io.ReadWriteCloser
	r *frames
}

func (w *searchedConn) Read(p []byte) (int, error) { return w.r.Read(p) }

// CloseWrite closes the direction to the host.
func (w *searchedConn) CloseWrite() error {
	if c, ok := w.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return w.Close()
}
