package agent

import (
	"net"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// donated takes the descriptors that the host hands over after a call. They
// are closed on exec until a child gets them as its own.
func donated(c net.Conn) ([]uintptr, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, invalid("descriptors cannot be handed over here")
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
		return nil, invalid("%d descriptors were handed over, want %d", len(out), wire.Donated)
	}
	return out, nil
}

func closeAll(fds []uintptr) {
	for _, fd := range fds {
		syscall.Close(int(fd))
	}
}

// execDonated starts a process on descriptors of the host's and ends the call
// with its exit. Its bytes never pass through here.
func (a *Agent) execDonated(call wire.Exec, c net.Conn, w *writer) {
	fds, err := donated(c)
	if err != nil {
		w.fail(err)
		return
	}
	defer func() { closeAll(fds) }()
	x, err := a.admit(call)
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
	// The child has them: the host sees their end when it and its children end.
	closeAll(fds)
	fds = nil
	w.json(wire.TypeStarted, wire.Started{PID: x.pid()})
	w.json(wire.TypeExit, x.finish(<-ended))
	if call.Plain { // an interpreter ends with its sandbox
		a.calm()
	}
}

// attachTerminal puts a terminal between a process and what was donated for it,
// and returns the one that is the process's.
func (x *execution) attachTerminal(fds []uintptr) ([]uintptr, error) {
	ours, theirs, err := openTerminal(*x.call.Terminal, x.call.UID, x.call.GID)
	if err != nil {
		return fds, err
	}
	x.mu.Lock()
	x.terminal = ours
	x.mu.Unlock()
	screen(ours, fds[0], fds[1])
	closeAll(fds[2:])
	return []uintptr{uintptr(theirs)}, nil
}

// resize says how large a terminal is. It is no error when it has gone.
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
		return invalid("the process has no terminal")
	}
	raw, err := x.terminal.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) { err = resize(int(fd), call.Terminal) })
	return err
}

// signal signals what an execution started with.
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
