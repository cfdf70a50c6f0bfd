package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// pipeCapacity is the capacity of a pipe, and the maximum amount of output to
// read at a time.
const pipeCapacity = 64 << 10

// stream reads a process's output and messages in the order in which they were written, as far as
// that order can be determined. Data that is in the pipes when a message arrives was either written
// before the message or comes from other running processes, because a driver waits after a message
// until the host has received it. Drivers of earlier versions do not wait, and send a line with a
// position, "=12,0", before a message. The position is the number of unread bytes in each output
// when the message was sent. The stream returns that much output, then the message, then later
// output.
//
// It polls its descriptors itself. With a goroutine for each descriptor, a message could overtake
// the output before it.
type stream struct {
	stdout, stderr, control int
	wake                    int // an eventfd, signalled by disconnect and close

	buf     []byte
	pending messageBuffer // unread data of control
	next    []byte        // a complete message, due once the output before it was returned
	due     bool
	place   [2]int  // number of bytes of each output that precede the next message
	plain   bool    // there are no messages; the stream ends when all writers have closed the outputs
	drained [2]bool // whether the output that precedes next was read
	outEOF  [2]bool
	ctlEOF  bool

	mu     sync.Mutex // guards the fields below
	hung   bool
	closed bool
	users  int // number of calls that use the descriptors
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
	return &stream{stdout: stdout, stderr: stderr, control: control, wake: wake, plain: plain, place: noPosition}, nil
}

// beginUse marks the descriptors as in use, and returns false if the stream is
// closed.
func (s *stream) beginUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.users++
	}
	return !s.closed
}

// endUse ends the use of the descriptors, and completes a close that was
// requested during the use.
func (s *stream) endUse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.closed && s.users == 0 {
		s.release()
	}
}

// receive implements brig.Process.Receive.
func (s *stream) receive() (brig.From, []byte, error) {
	if !s.beginUse() {
		return 0, nil, net.ErrClosed
	}
	defer s.endUse()
	if s.buf == nil {
		s.buf = make([]byte, pipeCapacity)
	}
	for {
		if s.due {
			if from, p := s.readEarlierOutput(); p != nil {
				return from, p, nil
			}
			p := s.next
			s.due, s.next, s.place = false, nil, noPosition
			return brig.FromMessage, p, nil
		}
		if s.takeLine() {
			continue
		}
		if (s.ctlEOF || s.plain) && s.outEOF[0] && s.outEOF[1] {
			return 0, nil, io.EOF
		}
		if s.ctlEOF && !s.plain {
			// Processes that the program left behind may write indefinitely, so return only the
			// available output.
			s.drained, s.place = [2]bool{}, noPosition
			if from, p := s.readEarlierOutput(); p != nil {
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

// receiveRest returns output until all writers have closed the outputs, or until
// the deadline.
func (s *stream) receiveRest(deadline time.Time) (brig.From, []byte, error) {
	if !s.beginUse() {
		return 0, nil, net.ErrClosed
	}
	defer s.endUse()
	if s.buf == nil {
		s.buf = make([]byte, pipeCapacity)
	}
	for time.Now().Before(deadline) {
		var polled []unix.PollFd
		for i, fd := range [2]int{s.stdout, s.stderr} {
			if s.outEOF[i] {
				continue
			}
			n, err := read(fd, s.buf)
			if n > 0 {
				return brig.From(i + 1), s.buf[:n], nil
			}
			if s.outEOF[i] = !errors.Is(err, unix.EAGAIN); !s.outEOF[i] {
				polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(polled) == 0 {
			return 0, nil, io.EOF
		}
		left := max(time.Until(deadline), 0)
		if _, err := unix.Poll(polled, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, nil, fmt.Errorf("wait for a process: %w", err)
		}
	}
	return 0, nil, io.EOF
}

// takeLine takes the next complete line from pending, if there is one.
func (s *stream) takeLine() bool {
	next, ok := s.pending.line()
	if !ok {
		return false
	}
	s.next = next
	if place, ok := parsePosition(s.next); ok {
		s.place, s.next = place, nil
		return true
	}
	s.due, s.drained = true, [2]bool{}
	return true
}

// noPosition is the position of a message that is not preceded by a position
// line.
var noPosition = [2]int{pipeCapacity, pipeCapacity}

// parsePosition parses a line with the position of the next message. A process that sends a wrong
// position only reorders its own output.
func parsePosition(line []byte) (place [2]int, ok bool) {
	marked, ok := bytes.CutPrefix(line, []byte("="))
	if !ok {
		return place, false
	}
	for i, part := range bytes.SplitN(marked, []byte(","), 2) {
		n, err := strconv.ParseUint(string(part), 10, 31)
		if err != nil {
			return place, false
		}
		place[i], ok = min(int(n), pipeCapacity), i == 1
	}
	return place, ok
}

// subtractRead subtracts the n bytes that were read from the amount of output
// before the message.
func (s *stream) subtractRead(i, n int) { s.place[i] = max(s.place[i]-n, 0) }

// readEarlierOutput returns output that was written before the due message. One
// read of each pipe returns all of it. Output in excess of a pipe's capacity
// was read earlier, because otherwise the process could not have sent the
// message.
func (s *stream) readEarlierOutput() (brig.From, []byte) {
	for i, fd := range [2]int{s.stdout, s.stderr} {
		if s.drained[i] || s.outEOF[i] {
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
		s.outEOF[i] = err == nil
	}
	return 0, nil
}

// wait waits for data and reads it. It returns output, and appends messages to
// pending.
func (s *stream) wait() (brig.From, []byte, error) {
	fds := []unix.PollFd{
		{Fd: int32(s.control), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN},
		{Fd: int32(s.stdout), Events: unix.POLLIN}, {Fd: int32(s.stderr), Events: unix.POLLIN},
	}
	if s.plain {
		fds[0].Fd = -1 // no process has the other end open
	}
	for i := range s.outEOF {
		if s.outEOF[i] {
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
		if s.plain {
			// The process has exited, but processes that it left behind may continue to write. This
			// may also consume the wake-up of a close, which has already set closed.
			_, _ = unix.Read(s.wake, make([]byte, 8))
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return 0, nil, net.ErrClosed
		}
		s.ctlEOF = true // the process has exited, and all its messages were read
		return 0, nil, nil
	}
	for i := range s.outEOF {
		if fds[2+i].Revents == 0 {
			continue
		}
		n, err := read(int(fds[2+i].Fd), s.buf)
		if n > 0 {
			if s.place != noPosition {
				s.subtractRead(i, n)
			}
			return brig.From(i + 1), s.buf[:n], nil
		}
		s.outEOF[i] = err == nil || !errors.Is(err, unix.EAGAIN)
	}
	return 0, nil, nil
}

func (s *stream) readControl() error {
	n, err := read(s.control, s.buf)
	switch {
	case n > 0:
		return s.pending.add(s.buf[:n])
	case !errors.Is(err, unix.EAGAIN):
		s.ctlEOF = true
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

// send writes to control, and blocks while control is full.
func (s *stream) send(p []byte) error {
	if !s.beginUse() {
		return net.ErrClosed
	}
	defer s.endUse()
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

// disconnect makes receive return the available data and then io.EOF.
func (s *stream) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hung && !s.closed {
		s.hung = true
		s.signalWake()
	}
}

// close ends a pending receive, and closes the descriptors once no call uses
// them.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.signalWake()
	if s.users == 0 {
		s.release()
	}
}

// signalWake wakes a poll. The caller holds s.mu.
func (s *stream) signalWake() {
	// A full eventfd wakes the poll anyway.
	_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// release closes the descriptors and releases the messages. The caller holds s.mu.
func (s *stream) release() {
	s.pending.close()
	for _, fd := range []int{s.stdout, s.stderr, s.control, s.wake} {
		unix.Close(fd)
	}
}

// DialPort implements brig.Instance.Dial.
func (g *Guest) DialPort(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, brig.InvalidField("port", "%d is not a port", port).WithHint("give a number from 1 to 65535")
	}
	return g.openStream(ctx, wire.Call{Op: wire.OpDial, Port: port})
}

// openStream makes a call whose connection belongs to the caller after the
// response. The connection outlives ctx, which limits only the wait for the
// response.
func (g *Guest) openStream(ctx context.Context, c wire.Call) (net.Conn, error) {
	conn, _, err := g.callFrom(ctx, context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = finish(ctx, wire.NewReader(conn))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
