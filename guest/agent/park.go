package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// parkTimeout is the maximum time for an interpreter to take its new descriptors.
const parkTimeout = 5 * time.Second

// park replaces the descriptors of an interpreter that was started on descriptors of the host. Its
// new descriptors are named pipes, whose other ends the agent holds, as for a carried process. The
// interpreter opens the pipes itself, because no process can change the descriptors of another
// process. If the interpreter does not respond, its descriptors are unchanged. If it has ended, or
// ends before it has opened the pipes, the failure is "not_found".
func (a *Agent) park(id string, w *writer) {
	x, err := a.findParkable(id)
	if err != nil {
		w.fail(err)
		return
	}
	k, dir, err := newPipeCarrier(x)
	defer os.RemoveAll(dir)
	if err != nil {
		w.fail(err)
		return
	}
	w.writeJSON(wire.TypeParking, wire.Parking{Dir: dir})
	deadline := time.Now().Add(parkTimeout)
	parked := make(chan struct{})
	defer close(parked)
	go func() {
		select {
		case <-x.done:
			k.wake() // no response can come
		case <-parked:
		}
	}()
	err = k.awaitLine(deadline)
	if isClosed(x.done) || err == nil && !x.giveTo(k) {
		k.close()
		w.fail(newFailure("not_found", "", "the interpreter has ended"))
		return
	}
	if err != nil {
		k.close()
		w.fail(newFailure("internal", "", "the interpreter did not take its new descriptors: %v", err))
		return
	}
	a.carried.add(id, k)
	// If the second line does not arrive, the interpreter has ended, or a save detects its
	// remaining host descriptors.
	_ = k.awaitLine(deadline)
	k.control.SetReadDeadline(time.Time{})
	w.writeOK()
}

// findParkable returns the execution of an interpreter that has descriptors of the
// host.
func (a *Agent) findParkable(id string) (*execution, error) {
	a.mu.Lock()
	x := a.execs[id]
	a.mu.Unlock()
	if x == nil || !x.isInterpreter() {
		return nil, newFailure("not_found", "", "%q is not an interpreter on descriptors of the host", id)
	}
	return x, nil
}

// isInterpreter reports whether an execution is a running process with a message channel and
// descriptors of the host that has not been parked.
func (x *execution) isInterpreter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.canBeParked()
}

// canBeParked is like isInterpreter, for a caller that holds x.mu.
func (x *execution) canBeParked() bool {
	return x.call.Donated && !x.call.Plain && x.parked != nil && x.exit == nil && x.leader > 1
}

// allowPark returns the channel for the carrier of a parked process. The call
// that started the process receives from it.
func (x *execution) allowPark() <-chan *carrier {
	c := make(chan *carrier, 1)
	x.mu.Lock()
	x.parked = c
	x.mu.Unlock()
	return c
}

// giveTo ends the call that started the process. The carrier then waits for the end of the process.
// giveTo returns false if the process has ended or is already parked.
func (x *execution) giveTo(k *carrier) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.parked == nil || x.exit != nil {
		return false
	}
	x.parked <- k // the channel has a buffer of one
	x.parked = nil
	return true
}

// newPipeCarrier creates the carrier of a parked interpreter, and the directory
// with its pipes. The caller removes the directory, even after an error.
func newPipeCarrier(x *execution) (_ *carrier, dir string, err error) {
	k := &carrier{x: x, exited: make(chan struct{}), kept: true, buf: make([]byte, wire.HeaderSize+pipeCapacity)}
	if dir, err = os.MkdirTemp("/tmp", ".brig-park-"); err != nil {
		return nil, "", newFailure("exhausted", "", "make a folder: %v", err)
	}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	for _, end := range []struct {
		ours **os.File
		name string
	}{{&k.orders, wire.PipeOrders}, {&k.control, wire.PipeMessages}, {&k.outs[0], wire.PipeStdout}, {&k.outs[1], wire.PipeStderr}} {
		name := path.Join(dir, end.name)
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			return nil, dir, newFailure("exhausted", "", "make a pipe: %v", err)
		}
		// With both directions open, opening the pipe does not block, and the agent does not read
		// an end of file before the interpreter has opened the pipe.
		if *end.ours, err = os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
			return nil, dir, newFailure("exhausted", "", "open a pipe: %v", err)
		}
		if err := os.Lchown(name, int(x.call.UID), int(x.call.GID)); err != nil {
			return nil, dir, newFailure("internal", "", "own a pipe: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, dir, newFailure("internal", "", "open a folder: %v", err)
	}
	return k, dir, nil
}

// awaitLine reads one line from a parked interpreter, which sends nothing else before it has
// received an order from the host.
func (k *carrier) awaitLine(deadline time.Time) error {
	if err := k.control.SetReadDeadline(deadline); err != nil {
		return err
	}
	if isClosed(k.x.done) { // an earlier wake-up of k may have come too early
		k.wake()
	}
	for b := make([]byte, 256); ; {
		if i := bytes.IndexByte(k.pending, '\n'); i >= 0 {
			if k.pending = k.pending[i+1:]; len(k.pending) == 0 {
				k.pending = nil
			}
			return nil
		}
		if len(k.pending) > len(b) {
			return newInvalidError("its line is too long")
		}
		n, err := k.control.Read(b)
		if err != nil {
			return err
		}
		k.pending = append(k.pending, b[:n]...)
	}
}

// park replaces the host's descriptors of the driver and of bash, which cannot
// be saved, by the pipes in dir. Without the pipes, it has no effect. An error
// means that the driver cannot continue.
func (d *shellDriver) park(dir string) error {
	var pipes []*os.File
	for _, name := range []string{wire.PipeOrders, wire.PipeMessages, wire.PipeStdout, wire.PipeStderr} {
		flags := os.O_WRONLY
		if len(pipes) == 0 {
			flags = os.O_RDONLY
		}
		f, err := os.OpenFile(path.Join(dir, name), flags, 0)
		if err != nil {
			break
		}
		pipes = append(pipes, f)
	}
	parked := shellMessage{Type: "parked"}
	sent := len(pipes) == 4
	if sent {
		err := json.NewEncoder(pipes[1]).Encode(parked)
		sent = err == nil
	}
	if !sent {
		for _, f := range pipes {
			f.Close()
		}
		return nil
	}
	d.channel.Close()
	d.use(pipes[0], pipes[1])
	none, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	for i, f := range []*os.File{none, pipes[2], pipes[3]} {
		if err := syscall.Dup3(int(f.Fd()), i, 0); err != nil {
			return err
		}
		f.Close()
	}
	mark := newMark()
	script := "exec >" + quote(path.Join(dir, wire.PipeStdout)) + " 2>" + quote(path.Join(dir, wire.PipeStderr)) +
		"; builtin echo '" + mark + " parked' >&" + reportFD + "\n"
	if _, err := d.bash.runScript(script, mark, nil); err != nil {
		return err
	}
	return d.send(parked)
}
