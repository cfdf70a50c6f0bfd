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

// maxMessage is the longest message of a carried process, in bytes.
const maxMessage = 64 << 20

// pipeful is what a pipe holds: what was written to one before a message was
// sent is found in one read of this size.
const pipeful = 64 << 10

// carriers are the carried processes by their ids.
type carriers struct {
	mu sync.Mutex // guards the field below, and of all of them holders and kept
	by map[string]*carrier
}

// carrier has the other ends of a process's descriptors. It carries what comes
// of them in the order in which it was written, to one host at a time. While
// there is none the pipes fill up, as they would for one who does not read.
type carrier struct {
	x       *execution
	plain   bool
	outs    [2]*os.File // standard output and error
	control *os.File    // messages; nil if it has none
	exited  chan struct{}

	inputs sync.Mutex // one input at a time
	stdin  *os.File

	hosts sync.Mutex // one host takes over at a time
	host  net.Conn
	left  chan struct{} // closed when that host is through

	sending sync.Mutex // guards the fields below: one read and its frame at a time
	buf     []byte
	pending []byte // of messages: no whole line yet
	outEnd  [2]bool
	ctlEnd  bool

	holders int // calls that hold it
	kept    bool
}

// newCarrier makes the descriptors of a process.
func newCarrier(plain bool) (_ *carrier, theirs []uintptr, err error) {
	k := &carrier{plain: plain, exited: make(chan struct{}), holders: 1, buf: make([]byte, wire.HeaderSize+pipeful)}
	defer func() {
		if err == nil {
			return
		}
		closeAll(theirs)
		for _, f := range append(k.files(), k.stdin) {
			f.Close() // of those that there are
		}
	}()
	for _, end := range []struct {
		ours **os.File
		name string
		mine int
	}{{&k.stdin, "stdin", writeEnd}, {&k.outs[0], "stdout", readEnd}, {&k.outs[1], "stderr", readEnd}} {
		f, fd, err := openPipe(end.name, end.mine)
		if err != nil {
			return nil, theirs, err
		}
		*end.ours, theirs = f, append(theirs, uintptr(fd))
	}
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, theirs, failure("exhausted", "", "open a socket: %v", err)
	}
	theirs = append(theirs, uintptr(p[1]))
	if err := syscall.SetNonblock(p[0], true); err != nil { // the runtime's poller waits for it
		syscall.Close(p[0])
		return nil, theirs, err
	}
	k.control = os.NewFile(uintptr(p[0]), "messages")
	if plain {
		k.control.Close()
		k.ctlEnd = true
	}
	return k, theirs, nil
}

// execCarried starts a process on descriptors of ours, and ends the call with
// its exit. The call holds it.
func (a *Agent) execCarried(call wire.Exec, r *wire.Reader, w *writer) {
	k, fds, err := newCarrier(call.Plain)
	if err != nil {
		w.fail(err)
		return
	}
	fail := func(err error) {
		closeAll(fds)
		k.close()
		w.fail(err)
	}
	if k.x, err = a.admit(call); err != nil {
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
	go func() {
		k.x.finish(<-ended)
		close(k.exited)
		k.wake()
	}()
	a.hold(k, r, w)
}

// adopt has the call hold a process that is there.
func (a *Agent) adopt(id string, r *wire.Reader, w *writer) {
	k := a.carried.hold(id)
	if k == nil {
		w.fail(failure("not_found", "", "nothing is kept of %q", id))
		return
	}
	a.hold(k, r, w)
}

// hold tells the host how a process ends. It is let go of when the host hangs
// up, and not before.
func (a *Agent) hold(k *carrier, r *wire.Reader, w *writer) {
	w.json(wire.TypeStarted, wire.Started{PID: k.x.pid()})
	go func() {
		<-k.exited
		k.x.mu.Lock()
		exit := *k.x.exit
		k.x.mu.Unlock()
		w.json(wire.TypeExit, exit)
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

// keep says whether a process stays without a holder.
func (s *carriers) keep(call wire.Keep) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.by[call.ID]
	switch {
	case k != nil:
		k.kept = call.On
		s.drop(k)
	case call.On:
		return failure("not_found", "", "nothing is there of %q", call.ID)
	}
	return nil
}

// drop closes what nobody wants any more: the process is told so as it would be
// of pipes. The caller holds s.mu.
func (s *carriers) drop(k *carrier) {
	if k.holders == 0 && !k.kept && s.by[k.x.call.ID] == k {
		delete(s.by, k.x.call.ID)
		go k.close()
	}
}

func (k *carrier) close() {
	k.wake()
	for _, f := range k.files() {
		f.Close()
	}
	k.stdin.Close()
}

// files are those from which something comes.
func (k *carrier) files() []*os.File { return []*os.File{k.outs[0], k.outs[1], k.control} }

// wake ends reads that wait.
func (k *carrier) wake() {
	for _, f := range k.files() {
		f.SetReadDeadline(past)
	}
}

// input carries what the host sends to a process's standard input.
func (a *Agent) input(id string, r *wire.Reader, w *writer) {
	k := a.carried.get(id)
	if k == nil {
		w.fail(failure("not_found", "", "nothing is there of %q", id))
		return
	}
	w.ok()
	for {
		f, err := r.Read()
		if err != nil {
			return // the host has gone, and another may come
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
			return // the process has closed it
		}
	}
}

// output carries what comes of a process to the host, and messages to it, until
// there is no more or the host has gone. A host that comes takes the place of
// one that is there.
func (a *Agent) output(id string, c net.Conn, w *writer) {
	k := a.carried.get(id)
	if k == nil {
		w.fail(failure("not_found", "", "nothing is there of %q", id))
		return
	}
	k.hosts.Lock()
	if k.host != nil {
		k.hangUp(k.host)
		<-k.left
		k.control.SetWriteDeadline(time.Time{})
	}
	left := make(chan struct{})
	defer close(left)
	k.host, k.left = c, left
	k.hosts.Unlock()
	w.ok()
	gone := make(chan struct{})
	go func() {
		k.messagesFrom(c)
		close(gone)
		k.wake()
	}()
	for k.goesOn(gone) {
		var ways sync.WaitGroup
		for i := range k.outs {
			ways.Go(func() { k.wait(k.outs[i], func(fd int) bool { return k.pull(i, fd, c) }) })
		}
		ways.Go(func() { k.wait(k.control, func(fd int) bool { return k.pullMessages(fd, c) }) })
		ways.Wait()
	}
	if !k.plain && over(k.exited) {
		k.last(c)
	}
	k.hangUp(c)
	<-gone
	k.control.SetWriteDeadline(time.Time{})
}

// hangUp ends what is carried to and from a host.
func (k *carrier) hangUp(c net.Conn) {
	c.Close()
	k.control.SetWriteDeadline(past) // a message for the process may wait
}

// goesOn gets ready for more, and reports whether there can be any. Whoever
// ends it says so first and wakes the readers then, so that one of both is seen.
func (k *carrier) goesOn(gone <-chan struct{}) bool {
	for _, f := range k.files() {
		f.SetReadDeadline(time.Time{})
	}
	k.sending.Lock()
	ended := k.outEnd[0] && k.outEnd[1] && k.ctlEnd
	k.sending.Unlock()
	return !ended && !over(gone) && (k.plain || !over(k.exited))
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// messagesFrom carries the host's messages until it hangs up.
func (k *carrier) messagesFrom(c net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := k.control.Write(buf[:n]); err != nil && k.plain {
				continue // there is nobody to tell
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

// wait calls f whenever there is something to read, until f returns true.
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

// pull carries what is in one of the outputs, and reports whether that is all.
// Messages have their turn between two reads.
func (k *carrier) pull(i, fd int, c net.Conn) bool {
	for {
		k.sending.Lock()
		n, err := k.pullOnce(i, fd, c)
		ended := k.outEnd[i]
		k.sending.Unlock()
		if err != nil {
			k.hangUp(c)
		}
		if err != nil || ended {
			return true
		}
		if n <= 0 {
			return false
		}
	}
}

// pullOnce carries one read of an output. The caller holds k.sending.
func (k *carrier) pullOnce(i, fd int, c net.Conn) (int, error) {
	if k.outEnd[i] {
		return 0, nil
	}
	n, err := syscall.Read(fd, k.buf[wire.HeaderSize:])
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return 0, nil
	}
	if n <= 0 {
		k.outEnd[i] = true
		return 0, nil
	}
	wire.PutHeader(k.buf, [...]wire.Type{wire.TypeStdout, wire.TypeStderr}[i], n)
	_, err = c.Write(k.buf[:wire.HeaderSize+n])
	return n, err
}

// pullMessages carries the messages that are there, each after the output that
// was written before it.
func (k *carrier) pullMessages(fd int, c net.Conn) bool {
	k.sending.Lock()
	defer k.sending.Unlock()
	buf := make([]byte, pipeful)
	for !k.ctlEnd {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return false
		}
		if n <= 0 {
			k.ctlEnd = true
			break
		}
		k.pending = append(k.pending, buf[:n]...)
		for {
			i := bytes.IndexByte(k.pending, '\n')
			if i < 0 {
				break
			}
			if k.each(c) != nil || send(c, wire.TypeResult, k.pending[:i+1]) != nil {
				k.hangUp(c)
				return true
			}
			if k.pending = k.pending[i+1:]; len(k.pending) == 0 {
				k.pending = nil
			}
		}
		if len(k.pending) > maxMessage {
			k.ctlEnd, k.pending = true, nil
		}
	}
	return true
}

// each carries one pipeful of each output, if there is any.
func (k *carrier) each(c net.Conn) (err error) {
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

// last carries what a process has left behind that has ended: its children may
// hold the pipes and write for ever.
func (k *carrier) last(c net.Conn) {
	if raw, err := k.control.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { k.pullMessages(int(fd), c) })
	}
	k.sending.Lock()
	defer k.sending.Unlock()
	_ = k.each(c)
}

// send sends bytes in frames.
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
