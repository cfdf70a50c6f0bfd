package agent

import (
	"bytes"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// maxMessage is the maximum length of a message of a carried process, in bytes.
const maxMessage = 64 << 20

// pipeCapacity is the capacity of a pipe in bytes. One read of this size
// returns everything that was written to the pipe before a message was sent.
const pipeCapacity = 64 << 10

// carriers contains the carriers of all carried processes by id.
type carriers struct {
	mu sync.Mutex // guards the field below, and holders and kept of each carrier
	by map[string]*carrier
}

// carrier owns the agent's ends of a process's descriptors. It sends the output to one host
// connection at a time, in the order of the process's writes. Without a host connection the pipes
// fill up, and the process blocks.
type carrier struct {
	x       *execution
	plain   bool
	outs    [2]*os.File // standard output and error
	control *os.File    // messages from the process; nil if it has none
	orders  *os.File    // messages to the process; the same socket unless it was parked
	exited  chan struct{}

	inputs sync.Mutex // serializes writes to stdin
	stdin  *os.File

	hosts     sync.Mutex // serializes takeovers by host connections
	host      net.Conn
	callEnded chan struct{} // closed when the call of that host connection has ended

	sending sync.Mutex // guards the fields below, and serializes reads and their frames
	buf     []byte
	pending []byte // messages without a complete line yet
	outEOF  [2]bool
	ctlEOF  bool

	holders int // number of calls that hold the process
	kept    bool
}

// newCarrier creates a carrier and the descriptors of its process.
func (a *Agent) newCarrier(call wire.Exec) (_ *carrier, theirs []uintptr, err error) {
	k := &carrier{plain: call.Plain, exited: make(chan struct{}), holders: 1, buf: make([]byte, wire.HeaderSize+pipeCapacity)}
	defer func() {
		if err == nil {
			return
		}
		closeAll(theirs)
		for _, f := range append(k.openFiles(), k.stdin) {
			f.Close() // not all of them were opened
		}
	}()
	for _, end := range []struct {
		ours     **os.File
		name     string
		agentEnd int
	}{{&k.stdin, "stdin", writeEnd}, {&k.outs[0], "stdout", readEnd}, {&k.outs[1], "stderr", readEnd}} {
		f, fd, err := a.openPipe(end.name, end.agentEnd, call)
		if err != nil {
			return nil, theirs, err
		}
		*end.ours, theirs = f, append(theirs, uintptr(fd))
	}
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, theirs, newFailure("exhausted", "", "open a socket: %v", err)
	}
	theirs = append(theirs, uintptr(p[1]))
	if err := syscall.SetNonblock(p[0], true); err != nil { // required by the runtime's poller
		syscall.Close(p[0])
		return nil, theirs, err
	}
	k.control = os.NewFile(uintptr(p[0]), "messages")
	k.orders = k.control
	if call.Plain {
		k.control.Close()
		k.ctlEOF = true
	}
	return k, theirs, nil
}

// execCarried starts a process on descriptors of the agent, and ends the call with the process's
// exit. The call is a holder of the process.
func (a *Agent) execCarried(call wire.Exec, r *wire.Reader, w *writer) {
	k, fds, err := a.newCarrier(call)
	if err != nil {
		w.fail(err)
		return
	}
	fail := func(err error) {
		closeAll(fds)
		k.close()
		w.fail(err)
	}
	if k.x, err = a.register(call); err != nil {
		fail(err)
		return
	}
	theirs := fds
	switch {
	case call.Terminal != nil:
		if fds, err = k.x.attachTerminal(fds); err == nil {
			theirs = []uintptr{fds[0], fds[0], fds[0]}
		}
	case call.Plain:
		theirs = fds[:3]
	}
	var ended <-chan syscall.WaitStatus
	if err == nil {
		ended, err = a.start(k.x, theirs)
	}
	if err != nil {
		a.forget(k.x)
		fail(err)
		return
	}
	closeAll(fds)
	a.carried.add(call.ID, k)
	go k.await(ended)
	a.reportEnd(k, r, w)
}

// await records the end of the process.
func (k *carrier) await(ended <-chan syscall.WaitStatus) {
	k.x.finish(<-ended)
	k.recordEnd()
}

// recordEnd reports the recorded end of the process to its holders.
func (k *carrier) recordEnd() {
	close(k.exited)
	k.wake()
}

// adopt makes the call a holder of an existing process.
func (a *Agent) adopt(id string, r *wire.Reader, w *writer) {
	k := a.carried.hold(id)
	if k == nil {
		w.fail(newFailure("not_found", "", "nothing is kept of %q", id))
		return
	}
	a.reportEnd(k, r, w)
}

// reportEnd reports to the host how a process ends. It releases the process
// only when the host closes the connection.
func (a *Agent) reportEnd(k *carrier, r *wire.Reader, w *writer) {
	w.writeJSON(wire.TypeStarted, wire.Started{PID: k.x.pid()})
	go func() {
		<-k.exited
		k.x.mu.Lock()
		exit := *k.x.exit
		k.x.mu.Unlock()
		w.writeJSON(wire.TypeExit, exit)
	}()
	for {
		if _, err := r.Read(); err != nil {
			a.carried.release(k)
			return
		}
	}
}

func (s *carriers) add(id string, k *carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*carrier{}
	}
	s.by[id] = k
}

func (s *carriers) get(id string) *carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[id]
}

func (s *carriers) hold(id string) *carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.by[id]
	if k != nil {
		k.holders++
	}
	return k
}

func (s *carriers) release(k *carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.holders--
	s.drop(k)
}

// keep sets whether a process keeps running without a holder.
func (s *carriers) keep(call wire.Keep) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.by[call.ID]
	switch {
	case k != nil:
		k.kept = call.On
		s.drop(k)
	case call.On:
		return newFailure("not_found", "", "nothing is there of %q", call.ID)
	}
	return nil
}

// drop closes a carrier that is neither held nor kept. The process's ends of the pipes then report
// that the other ends are closed. The caller holds s.mu.
func (s *carriers) drop(k *carrier) {
	if k.holders == 0 && !k.kept && s.by[k.x.call.ID] == k {
		delete(s.by, k.x.call.ID)
		go k.close()
	}
}

func (k *carrier) close() {
	k.wake()
	for _, f := range k.openFiles() {
		f.Close()
	}
	k.stdin.Close() // a parked process has none
	k.orders.Close()
}

// openFiles returns the files from which the agent reads.
func (k *carrier) openFiles() []*os.File { return []*os.File{k.outs[0], k.outs[1], k.control} }

// wake interrupts pending reads.
func (k *carrier) wake() {
	for _, f := range k.openFiles() {
		f.SetReadDeadline(pastDeadline)
	}
}

// receiveInput transfers data from the host to a process's standard input.
func (a *Agent) receiveInput(id string, r *wire.Reader, w *writer) {
	k := a.carried.get(id)
	if k == nil {
		w.fail(newFailure("not_found", "", "nothing is there of %q", id))
		return
	}
	w.writeOK()
	for {
		f, err := r.Read()
		if err != nil {
			return // the host has disconnected, and may connect again
		}
		k.inputs.Lock()
		switch f.Type {
		case wire.TypeStdin:
			_, err = k.stdin.Write(f.Payload)
		case wire.TypeStdinEOF:
			err = k.stdin.Close()
		}
		k.inputs.Unlock()
		if err != nil {
			return // the process has closed its input
		}
	}
}

// sendOutput sends a process's output to the host, and messages to the process,
// until the output ends or the host disconnects. A new host connection replaces
// the current one.
func (a *Agent) sendOutput(id string, c net.Conn, w *writer) {
	k := a.carried.get(id)
	if k == nil {
		w.fail(newFailure("not_found", "", "nothing is there of %q", id))
		return
	}
	k.hosts.Lock()
	if k.host != nil {
		k.disconnect(k.host)
		<-k.callEnded
		k.orders.SetWriteDeadline(time.Time{})
	}
	disconnected := make(chan struct{})
	defer close(disconnected)
	k.host, k.callEnded = c, disconnected
	k.hosts.Unlock()
	w.writeOK()
	closed := make(chan struct{})
	go func() {
		k.relayMessages(c)
		close(closed)
		k.wake()
	}()
	for k.prepareReads(closed) {
		var wg sync.WaitGroup
		for i := range k.outs {
			wg.Go(func() { k.wait(k.outs[i], func(fd int) bool { return k.pull(i, fd, c, time.Time{}) }) })
		}
		wg.Go(func() { k.wait(k.control, func(fd int) bool { return k.pullMessages(fd, c) }) })
		wg.Wait()
	}
	if !k.plain && isClosed(k.exited) {
		k.sendRemaining(c, closed)
	}
	k.disconnect(c)
	<-closed
	k.orders.SetWriteDeadline(time.Time{})
}

// disconnect ends the transfer between a process and a host connection.
func (k *carrier) disconnect(c net.Conn) {
	c.Close()
	k.orders.SetWriteDeadline(pastDeadline) // a write of a message to the process may be blocked
}

// prepareReads prepares for further reads, and reports whether reads are still possible. The code
// that ends the transfer first closes its channel and then wakes the readers, so that either
// prepareReads or the readers notice the end.
func (k *carrier) prepareReads(closed <-chan struct{}) bool {
	for _, f := range k.openFiles() {
		f.SetReadDeadline(time.Time{})
	}
	k.sending.Lock()
	ended := k.outEOF[0] && k.outEOF[1] && k.ctlEOF
	k.sending.Unlock()
	return !ended && !isClosed(closed) && (k.plain || !isClosed(k.exited))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// relayMessages transfers messages from the host to the process until the host
// disconnects.
func (k *carrier) relayMessages(c net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := k.orders.Write(buf[:n]); err != nil && k.plain {
				continue // a plain process may have closed its end
			} else if err != nil {
				c.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait calls pull whenever data is available, until pull returns true.
func (k *carrier) wait(f *os.File, pull func(fd int) bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for done := false; !done; {
		if raw.Read(func(fd uintptr) bool {
			done = pull(int(fd))
			return done
		}) != nil {
			return
		}
	}
}

// pull sends the available data of one output to the host, and reports whether that output has
// ended. It releases the lock between two reads so that messages can be sent. It returns at the
// deadline, if there is one, even while data is available.
func (k *carrier) pull(i, fd int, c net.Conn, deadline time.Time) bool {
	for {
		if !deadline.IsZero() && time.Now().After(deadline) {
			return true
		}
		k.sending.Lock()
		n, err := k.pullOnce(i, fd, c)
		ended := k.outEOF[i]
		k.sending.Unlock()
		if err != nil {
			k.disconnect(c)
		}
		if err != nil || ended {
			return true
		}
		if n <= 0 {
			return false
		}
	}
}

// pullOnce sends the data of a single read of an output. The caller holds
// k.sending.
func (k *carrier) pullOnce(i, fd int, c net.Conn) (int, error) {
	if k.outEOF[i] {
		return 0, nil
	}
	n, err := syscall.Read(fd, k.buf[wire.HeaderSize:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return 0, nil
	}
	if n <= 0 {
		k.outEOF[i], n = true, 0 // an empty frame reports the end to the host
	}
	wire.PutHeader(k.buf, [...]wire.Type{wire.TypeStdout, wire.TypeStderr}[i], n)
	_, err = c.Write(k.buf[:wire.HeaderSize+n])
	return n, err
}

// pullMessages sends the available messages, each after the output that was
// written before it.
func (k *carrier) pullMessages(fd int, c net.Conn) bool {
	k.sending.Lock()
	defer k.sending.Unlock()
	buf := make([]byte, pipeCapacity)
	for !k.ctlEOF {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return false
		}
		if n <= 0 {
			k.ctlEOF = true
			break
		}
		k.pending = append(k.pending, buf[:n]...)
		for {
			i := bytes.IndexByte(k.pending, '\n')
			if i < 0 {
				break
			}
			if k.sendChunk(c) != nil || send(c, wire.TypeResult, k.pending[:i+1]) != nil {
				k.disconnect(c)
				return true
			}
			if k.pending = k.pending[i+1:]; len(k.pending) == 0 {
				k.pending = nil
			}
		}
		if len(k.pending) > maxMessage {
			// The host rejects a message of this length, and ends the process.
			_ = send(c, wire.TypeResult, k.pending)
			k.ctlEOF, k.pending = true, nil
		}
	}
	return true
}

// sendChunk sends the available data of each output, up to the capacity of a pipe.
func (k *carrier) sendChunk(c net.Conn) (err error) {
	for i, f := range k.outs {
		raw, rawErr := f.SyscallConn()
		if rawErr != nil {
			continue
		}
		if raw.Control(func(fd uintptr) { _, err = k.pullOnce(i, int(fd), c) }) == nil && err != nil {
			return err
		}
	}
	return nil
}

// sendRemaining sends the remaining messages of an ended process, and its output until all of its
// children have closed it, for a limited time.
func (k *carrier) sendRemaining(c net.Conn, closed <-chan struct{}) {
	if raw, err := k.control.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { k.pullMessages(int(fd), c) })
	}
	tail := time.Now().Add(wire.TailTimeout)
	if k.stdin == nil { // a parked process: the agent itself keeps its pipes open
		tail = pastDeadline
	}
	for _, f := range k.outs {
		f.SetReadDeadline(tail)
	}
	if isClosed(closed) {
		k.wake()
	}
	var wg sync.WaitGroup
	for i := range k.outs {
		wg.Go(func() { k.wait(k.outs[i], func(fd int) bool { return k.pull(i, fd, c, tail) }) })
	}
	wg.Wait()
	k.sending.Lock()
	defer k.sending.Unlock()
	_ = k.sendChunk(c)
}

// send sends p in one or more frames.
func send(c net.Conn, t wire.Type, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), wire.MaxPayload)
		if err := wire.Write(c, t, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}
