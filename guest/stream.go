package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// maxMessage is the longest message that a process may send, in bytes. One
// that is longer ends the channel.
const maxMessage = 64 * brig.MiB

// pipeful is how much of an output is read at once: what a pipe holds.
const pipeful = 64 << 10

// stream reads a process's output and messages in the order in which they
// were written, as far as that can be told: what is in the pipes when a
// message is there was written before it, or is output of something else that
// still runs. A message before whose line stands a place, "=12,0", comes after
// as many bytes of each output as were unread when it was sent: what has been
// written since is left for later.
//
// It polls its descriptors itself. With a goroutine for each, a message could
// overtake the output before it.
type stream struct {
	stdout, stderr, control int
	wake                    int // an eventfd: hung up or closed

	buf      []byte
	pending  []byte // of control: what has not been returned, and perhaps no whole line
	searched int    // of pending: how far there is no line feed
	next     []byte // a whole message, due when the output before it is out
	due      bool
	place    [2]int  // how much of each output is before next, or what becomes that
	plain    bool    // no messages: it ends when nobody holds the outputs
	drained  [2]bool // which outputs have been read to the end for next
	outEnd   [2]bool
	ctlEnd   bool

	mu     sync.Mutex // guards the fields below
	hung   bool
	closed bool
	users  int // calls that use the descriptors
}

func newStream(stdout, stderr, control int, plain bool) (*stream, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	for _, fd := range []int{stdout, stderr, control} {
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(wake)
			return nil, fmt.Errorf("prepare stream: %w", err)
		}
	}
	return &stream{stdout: stdout, stderr: stderr, control: control, wake: wake, plain: plain, place: anyPlace}, nil
}

// enter marks that the descriptors are in use, and reports whether they may
// be.
func (s *stream) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.users++
	}
	return !s.closed
}

// leave ends the use; a close that came meanwhile is carried out.
func (s *stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.closed && s.users == 0 {
		s.release()
	}
}

// receive implements the Receive of brig.Process.
func (s *stream) receive() (brig.From, []byte, error) {
	if !s.enter() {
		return 0, nil, net.ErrClosed
	}
	defer s.leave()
	if s.buf == nil {
		s.buf = make([]byte, pipeful)
	}
	for {
		if s.due {
			if from, p := s.before(); p != nil {
				return from, p, nil
			}
			p := s.next
			s.due, s.next, s.place = false, nil, anyPlace
			return brig.FromMessage, p, nil
		}
		if s.line() {
			continue
		}
		if (s.ctlEnd || s.plain) && s.outEnd[0] && s.outEnd[1] {
			return 0, nil, io.EOF
		}
		if s.ctlEnd && !s.plain {
			// Nothing tells when the output of what it left behind ends: what
			// is there is what is returned.
			s.drained, s.place = [2]bool{}, anyPlace
			if from, p := s.before(); p != nil {
				return from, p, nil
			}
			return 0, nil, io.EOF
		}
		from, p, err := s.wait()
		if p != nil || err != nil {
			return from, p, err
		}
	}
}

// line takes the next whole line of control, if there is one.
func (s *stream) line() bool {
	i := bytes.IndexByte(s.pending[s.searched:], '\n')
	if i < 0 {
		s.searched = len(s.pending)
		return false
	}
	i += s.searched
	s.next, s.pending, s.searched = s.pending[:i:i], s.pending[i+1:], 0
	if place, ok := parsePlace(s.next); ok {
		s.place, s.next = place, nil
		return true
	}
	s.due, s.drained = true, [2]bool{}
	return true
}

// anyPlace is that of a message that does not say how much output is before it.
var anyPlace = [2]int{pipeful, pipeful}

// parsePlace reads a line that says where the next message stands. Whoever
// breaks it has its own output in disorder.
func parsePlace(line []byte) (place [2]int, ok bool) {
	marked, ok := bytes.CutPrefix(line, []byte("="))
	if !ok {
		return place, false
	}
	for i, part := range bytes.SplitN(marked, []byte(","), 2) {
		n, err := strconv.ParseUint(string(part), 10, 31)
		if err != nil {
			return place, false
		}
		place[i], ok = min(int(n), pipeful), i == 1
	}
	return place, ok
}

// took counts what was read of an output: it is no longer before the message.
func (s *stream) took(i, n int) { s.place[i] = max(s.place[i]-n, 0) }

// before returns output that was written before the message that is due. One
// read of each pipe is all of that: what does not fit into a pipe had to be
// read before the message could be sent.
func (s *stream) before() (brig.From, []byte) {
	for i, fd := range [2]int{s.stdout, s.stderr} {
		if s.drained[i] || s.outEnd[i] {
			continue
		}
		s.drained[i] = true
		if s.place[i] == 0 {
			continue
		}
		n, err := read(fd, s.buf[:s.place[i]])
		if n > 0 {
			return brig.From(i + 1), s.buf[:n]
		}
		s.outEnd[i] = err == nil
	}
	return 0, nil
}

// wait waits until there is something, and reads it. Output is returned,
// messages go to pending.
func (s *stream) wait() (brig.From, []byte, error) {
	fds := []unix.PollFd{
		{Fd: int32(s.control), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN},
		{Fd: int32(s.stdout), Events: unix.POLLIN}, {Fd: int32(s.stderr), Events: unix.POLLIN},
	}
	if s.plain {
		fds[0].Fd = -1 // nobody has the other end
	}
	for i := range s.outEnd {
		if s.outEnd[i] {
			fds[2+i].Fd = -1
		}
	}
	if _, err := unix.Poll(fds, -1); err != nil {
		if errors.Is(err, unix.EINTR) {
			return 0, nil, nil
		}
		return 0, nil, fmt.Errorf("wait for a process: %w", err)
	}
	if fds[0].Revents != 0 {
		return 0, nil, s.readControl()
	}
	if fds[1].Revents != 0 {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return 0, nil, net.ErrClosed
		}
		if s.plain {
			// It has exited. Whatever it left behind may go on writing.
			_, _ = unix.Read(s.wake, make([]byte, 8))
		}
		s.ctlEnd = true // it has exited, and what it sent before is read
		return 0, nil, nil
	}
	for i := range s.outEnd {
		if fds[2+i].Revents == 0 {
			continue
		}
		n, err := read(int(fds[2+i].Fd), s.buf)
		if n > 0 {
			if s.place != anyPlace {
				s.took(i, n)
			}
			return brig.From(i + 1), s.buf[:n], nil
		}
		s.outEnd[i] = err == nil || !errors.Is(err, unix.EAGAIN)
	}
	return 0, nil, nil
}

func (s *stream) readControl() error {
	n, err := read(s.control, s.buf)
	switch {
	case n > 0:
		s.pending = append(s.pending, s.buf[:n]...)
		if len(s.pending) > maxMessage {
			return brig.Errorf(brig.FailedPrecondition, "the interpreter sent a message that is too long").
				WithHint("write large results to files")
		}
	case !errors.Is(err, unix.EAGAIN):
		s.ctlEnd = true
	}
	return nil
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// send writes to control, and waits when it is full.
func (s *stream) send(p []byte) error {
	if !s.enter() {
		return net.ErrClosed
	}
	defer s.leave()
	for len(p) > 0 {
		n, err := unix.SendmsgN(s.control, p, nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			p = p[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			fds := []unix.PollFd{{Fd: int32(s.control), Events: unix.POLLOUT}, {Fd: int32(s.wake), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("send to a process: %w", err)
			}
			if fds[1].Revents != 0 {
				return fmt.Errorf("send to a process: %w", io.ErrClosedPipe)
			}
		default:
			return fmt.Errorf("send to a process: %w", err)
		}
	}
	return nil
}

// hangUp makes receive return what is there and then end.
func (s *stream) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hung && !s.closed {
		s.hung = true
		s.poke()
	}
}

// close ends a receive that waits, and closes the descriptors when nobody
// uses them any more.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.poke()
	if s.users == 0 {
		s.release()
	}
}

// poke wakes whoever polls. The caller holds s.mu.
func (s *stream) poke() {
	// An eventfd that is full has been poked.
	_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// release closes the descriptors. The caller holds s.mu.
func (s *stream) release() {
	for _, fd := range []int{s.stdout, s.stderr, s.control, s.wake} {
		unix.Close(fd)
	}
}
