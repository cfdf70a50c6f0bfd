package guest

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// maxAhead is the maximum amount of data that Ahead peeks at in the socket, in
// bytes. A socket buffers less than that.
const maxAhead = 1 << 20

// Ahead returns the messages that have arrived but have not been received yet, and whether the
// process has ended. It does not consume the messages. It must not be called during a Receive.
//
// A receiver that is delayed by a slow reader uses Ahead to detect the end of the process early.
func (p *Process) Ahead() (sent []byte, ended bool) { return p.stream.unreadMessages() }

// Unread returns the host memory, in bytes, of the messages that were sent to the process but have
// not been read yet. ok is false if the size is unknown.
func (p *Process) Unread() (n int, ok bool) {
	if p.stream.plain || !p.stream.beginUse() {
		return 0, false
	}
	defer p.stream.endUse()
	n, err := unix.IoctlGetInt(p.stream.control, unix.TIOCOUTQ)
	return n, err == nil
}

// Ahead reports whether the process has ended. It does not return messages,
// because they follow the output on the same connection.
func (p *CarriedProcess) Ahead() (sent []byte, ended bool) {
	select {
	case <-p.exited:
		return nil, true
	default:
		return nil, false
	}
}

func (s *stream) unreadMessages() (sent []byte, ended bool) {
	if !s.beginUse() {
		return nil, true
	}
	defer s.endUse()
	s.mu.Lock()
	ended = s.hung
	s.mu.Unlock()
	if s.plain {
		return nil, ended
	}
	if s.due {
		sent = append(bytes.Clone(s.next), '\n')
	}
	sent = append(sent, s.pending.unread()...)
	if s.ctlEOF {
		return sent, true
	}
	size, err := unix.IoctlGetInt(s.control, unix.TIOCINQ)
	if err != nil || size <= 0 {
		return sent, ended
	}
	peeked := make([]byte, min(size, maxAhead))
	n, _, err := unix.Recvfrom(s.control, peeked, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err == nil && n > 0 {
		sent = append(sent, peeked[:n]...)
	}
	return sent, ended
}
