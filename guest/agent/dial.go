package agent

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// dialTime bounds how long a connection inside a sandbox may take.
const dialTime = 5 * time.Second

// dial connects c to a port of the sandbox's loopback and carries bytes both
// ways until both have ended.
func dial(port int, c net.Conn, w *writer) {
	there, err := dialLoopback(port)
	if err != nil {
		w.fail(err)
		return
	}
	defer there.Close()
	w.ok()
	var ways sync.WaitGroup
	ways.Go(func() { carry(there, c) })
	ways.Go(func() { carry(c, there) })
	ways.Wait()
}

func dialLoopback(port int) (net.Conn, error) {
	var refused error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), dialTime)
		if err == nil {
			return c, nil
		}
		if refused == nil || !errors.Is(err, syscall.EADDRNOTAVAIL) {
			refused = err
		}
	}
	if errors.Is(refused, syscall.ECONNREFUSED) || errors.Is(refused, syscall.EADDRNOTAVAIL) {
		return nil, failure("refused", "", "nobody listens on port %d of the sandbox", port)
	}
	return nil, failure("refused", "", "connect to port %d of the sandbox: %v", port, refused)
}

// carry copies until the source ends, and ends the target's input with it.
// When the target does not take more, the source is told so.
func carry(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
