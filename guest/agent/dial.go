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

// dialTimeout is the timeout for a connection inside the sandbox.
const dialTimeout = 5 * time.Second

// dial connects c to a port on the sandbox's loopback and copies data in both
// directions until both have ended.
func (a *Agent) dial(port int, c net.Conn, w *writer) {
	service, err := dialLoopback(port)
	if err != nil {
		w.fail(err)
		return
	}
	defer service.Close()
	a.calls.closeWith(c, service)
	w.writeOK()
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(service, c) })
	wg.Go(func() { copyHalf(c, service) })
	wg.Wait()
}

func dialLoopback(port int) (net.Conn, error) {
	var refused error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), dialTimeout)
		if err == nil {
			return c, nil
		}
		if refused == nil || !errors.Is(err, syscall.EADDRNOTAVAIL) {
			refused = err
		}
	}
	if errors.Is(refused, syscall.ECONNREFUSED) || errors.Is(refused, syscall.EADDRNOTAVAIL) {
		return nil, newFailure("refused", "", "no program listens on port %d of the sandbox", port)
	}
	return nil, newFailure("refused", "", "connect to port %d of the sandbox: %v", port, refused)
}

// copyHalf copies until the source ends, and then closes the target's write side. If the target no
// longer accepts data, copyHalf closes both connections.
func copyHalf(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
