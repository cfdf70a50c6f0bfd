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
	"github.com/brig-run/brig/door"
)

// dialPort turns the request's connection into one to a port inside.
func (a *api) dialPort(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	port, err := whole(r, "port")
	if err != nil {
		return err
	}
	if !asks(r, "Connection", "upgrade") || !asks(r, "Upgrade", "tcp") {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "tcp")
		return door.WithStatus(http.StatusUpgradeRequired,
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
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n%s: %s\r\n\r\n"
	_, err = fmt.Fprintf(conn, answer, door.RequestID, w.Header().Get(door.RequestID))
	if err == nil { // otherwise the client has gone, and nobody is there to be told
		Relay(early{conn, buffered.Reader}, inside)
	}
	return nil
}

// asks reports whether one of r's headers has a word.
func asks(r *http.Request, header, word string) bool {
	for w := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

// early is a connection of which some was read before it was ours.
type early struct {
	net.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (c early) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends what is sent.
func (c early) CloseWrite() error { return closeWrite(c.Conn) }

// Relay carries bytes between two connections until both directions have
// ended or one has failed, and closes both. The end of one direction is passed
// on, so that the other may go on.
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

// closeWrite ends what is sent. A connection that cannot be half closed fails,
// and is then closed as a whole.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	return half.CloseWrite()
}
