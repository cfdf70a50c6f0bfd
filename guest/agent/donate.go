package agent

import (
	"net"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// receiveDescriptors receives the descriptors that the host passes after a
// call. They are close-on-exec until a child process receives them as its own.
func receiveDescriptors(c net.Conn) ([]uintptr, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, newInvalidError("descriptors cannot be handed over here")
	}
	var b [1]byte
	oob := make([]byte, syscall.CmsgSpace(4*wire.Donated))
	_, n, _, _, err := uc.ReadMsgUnix(b[:], oob)
	if err != nil {
		return nil, err
	}
	var out []uintptr
	msgs, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			out = append(out, uintptr(fd))
		}
	}
	if len(out) != wire.Donated {
		closeAll(out)
		return nil, newInvalidError("%d descriptors were handed over, want %d", len(out), wire.Donated)
	}
	return out, nil
}

func closeAll(fds []uintptr) {
	for _, fd := range fds {
		syscall.Close(int(fd))
	}
}

// execDonated starts a process on descriptors of the host and ends the call
// with the process's exit. The process's data does not pass through the agent.
func (a *Agent) execDonated(call wire.Exec, c net.Conn, w *writer) {
	fds, err := receiveDescriptors(c)
	if err != nil {
		w.fail(err)
		return
	}
	defer func() { closeAll(fds) }()
	x, err := a.register(call)
	if err != nil {
		w.fail(err)
		return
	}
	theirs := fds
	switch {
	case call.Terminal != nil:
		if fds, err = x.attachTerminal(fds); err != nil {
			a.forget(x)
			w.fail(err)
			return
		}
		theirs = []uintptr{fds[0], fds[0], fds[0]}
	case call.Plain:
		theirs = fds[:3]
	}
	ended, err := a.start(x, theirs)
	if err != nil {
		a.forget(x)
		w.fail(err)
		return
	}
	parked := x.allowPark()
	// The child has its own copies. Close these, so that the streams end for the host when the
	// child and its children have ended.
	closeAll(fds)
	fds = nil
	w.writeJSON(wire.TypeStarted, wire.Started{PID: x.pid()})
	if x.reportExit(ended, parked, w) && call.Plain { // an interpreter's sandbox ends with its process
		a.restoreSignals()
	}
}

// reportExit ends the call with the exit of the process. If the process is parked before or while
// it ends, its carrier reports the exit, and reportExit returns false.
func (x *execution) reportExit(ended <-chan syscall.WaitStatus, parked <-chan *carrier, w *writer) bool {
	select {
	case k := <-parked:
		go k.await(ended)
		return false
	case status := <-ended:
		exit := x.finish(status) // from here on it cannot be parked
		select {
		case k := <-parked:
			k.recordEnd()
			return false
		default:
		}
		w.writeJSON(wire.TypeExit, exit)
		return true
	}
}

// attachTerminal connects a terminal to the donated descriptors, and returns
// the process's side of the terminal.
func (x *execution) attachTerminal(fds []uintptr) ([]uintptr, error) {
	ours, theirs, err := openTerminal(*x.call.Terminal, x.call.UID, x.call.GID)
	if err != nil {
		return fds, err
	}
	x.mu.Lock()
	x.terminal = ours
	x.mu.Unlock()
	relayTerminal(ours, fds[0], fds[1])
	closeAll(fds[2:])
	return []uintptr{uintptr(theirs)}, nil
}

// resize sets the size of a terminal. It also succeeds if the execution no longer exists.
func (a *Agent) resize(call wire.Resize) error {
	a.mu.Lock()
	x := a.execs[call.ID]
	a.mu.Unlock()
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.terminal == nil {
		return newInvalidError("the process has no terminal")
	}
	raw, err := x.terminal.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) { err = resize(int(fd), call.Terminal) })
	return err
}

// signal sends a signal to the process group of an execution's first process.
func (a *Agent) signal(call wire.Signal) {
	a.mu.Lock()
	x := a.execs[call.ID]
	a.mu.Unlock()
	if x == nil {
		return
	}
	x.mu.Lock()
	leader, ended := x.leader, x.exit != nil
	x.mu.Unlock()
	if leader > 1 && !ended {
		syscall.Kill(-leader, syscall.Signal(call.Number))
	}
}
