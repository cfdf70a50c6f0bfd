package egress

import (
	"io"
	"net"
	"sync"
)

// tunnel copies bytes in both directions until both have ended. The sandbox's first bytes must not
// name a host other than the one for which the connection is allowed. If they do, tunnel returns
// the reason without sending any of them.
func (s *Session) tunnel(f *flow, inside, outside net.Conn) (reason string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := carry(inside, outside, f.buffer); err != nil {
			_ = outside.Close()
			_ = inside.Close()
			return
		}
		_ = closeWrite(inside)
	})
	reason = s.forward(f, outside, inside)
	if reason != "" {
		_ = outside.Close()
		_ = inside.Close()
	}
	wg.Wait()
	return reason
}

// forward copies the bytes that the sandbox sends.
func (s *Session) forward(f *flow, outside, inside net.Conn) (reason string) {
	if f.host != "" {
		first, reason := s.sniff(f, outside, inside)
		if reason != "" {
			return reason
		}
		if _, err := outside.Write(first); err != nil {
			_ = inside.Close()
			return ""
		}
	}
	if err := carry(outside, inside, f.buffer); err != nil {
		_ = outside.Close()
		_ = inside.Close()
		return ""
	}
	_ = closeWrite(outside)
	return ""
}

// carry copies with a separate buffer: the WriteTo and ReadFrom methods of the
// connections may use more memory than the sandbox is charged for.
func carry(to, from net.Conn, buffer int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, copyBufferSize(buffer)))
	return err
}

// sniff reads the sandbox's first bytes, and charges them to its memory.
func (s *Session) sniff(f *flow, outside, inside net.Conn) (first []byte, reason string) {
	return sniff(inside, f.host, sniffer{
		reserveConn: func() bool { return s.budget.wait(f.ctx, helloCost, 0) },
		releaseConn: func() { s.budget.release(helloCost) },
		out: func(b []byte) error {
			_, err := outside.Write(b)
			return err
		},
	})
}
