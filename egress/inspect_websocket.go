package egress

import (
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/brig-run/brig"
)

// leave readies a connection that leaves HTTP for WebSocket, once the host has
// proved that it speaks it: what goes by then is not judged.
//
// Values are not put into what the guest sends on it. What the host sends is
// searched, on the wire and without the frames that it comes in: a value that
// shows ends the connection.
func (x *exchange) leave(res *http.Response) error {
	sum := sha1.Sum([]byte(x.in.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok || res.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		return brig.Errorf(brig.Unavailable, "it does not speak WebSocket")
	}
	if x.scrub != nil {
		x.scrubHeader(res.Header)
		w := &watched{ReadWriteCloser: conn}
		w.r = x.scrub.values.reader(&frames{src: conn, s: x.scrub.values}, func(string) { w.seen = true })
		res.Body = w
	}
	return nil
}

// watched is a connection that ends when a value shows on it.
type watched struct {
	io.ReadWriteCloser
	r    *swapReader
	seen bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if w.seen {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// CloseWrite closes the direction to the host.
func (w *watched) CloseWrite() error {
	if c, ok := w.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return w.Close()
}
