// Package supervisor supervises machines made of plain processes, where no better isolation is
// available: on the server itself, on a host reached by SSH, or inside another service's sandbox.
// The supervisor is part of the agent's binary, so that there is only one file to copy. It outlives
// the client that started it. It depends only on the frames of guest/wire, the journal format and
// the common parts of supervisors.
//
// A machine is an agent as the init of a PID namespace, with a mount and a network namespace of its
// own. This prevents accidental interference between machines but is not a security boundary,
// because all machines share one kernel with the other programs on the host.
package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/journal"
	"github.com/brig-run/brig/internal/supervise"
)

// Files in a supervisor's directory.
const (
	socketFile    = "socket"
	machinesDir   = "machines"
	supervisorLog = "keeper.log"
)

// idleTimeout is how long a supervisor runs without machines before it exits.
const idleTimeout = 10 * time.Minute

// Supervisor manages the machines of one directory.
type Supervisor struct {
	dir     string
	plain   bool
	program *os.File // the program of a machine's first process

	mu       sync.Mutex // guards the fields below
	machines map[string]*machine
	creating map[string]chan struct{} // closed when the machine was created or its creation failed
}

// Main is the main function of the supervisor of the directory in its first
// argument. It returns the exit code.
func Main(args []string) int {
	if len(args) != 1 {
		return 2
	}
	// The process that started the supervisor may exit, and its group may
	// receive signals.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	if err := run(args[0]); err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return 0
}

func run(dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // a supervisor is already running
	}
	program, err := makeSealedCopy()
	if err != nil {
		return err
	}
	defer program.Close()
	k := &Supervisor{dir: dir, plain: !isPrivileged(), program: program, machines: map[string]*machine{}}
	if err := k.recoverEnded(); err != nil {
		return err
	}
	l, err := listen(dir)
	if err != nil {
		return err
	}
	defer l.Close()
	go k.quitWhenIdle(l)
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go k.serve(c, l)
	}
}

// listen listens on the socket in the directory.
func listen(dir string) (*net.UnixListener, error) {
	if err := os.Remove(filepath.Join(dir, socketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old socket: %w", err)
	}
	p, done, err := supervise.SocketPath(dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// dial connects to the supervisor of a directory.
func dial(dir string) (*net.UnixConn, error) {
	p, done, err := supervise.SocketPath(dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: p})
}

// quitWhenIdle ends the supervisor when it has had no machines for idleTimeout, or when
// its directory was removed.
func (k *Supervisor) quitWhenIdle(l net.Listener) {
	used := time.Now()
	for range time.Tick(time.Second) {
		if k.count() > 0 {
			used = time.Now()
		}
		if _, err := os.Stat(filepath.Join(k.dir, socketFile)); err != nil || time.Since(used) > idleTimeout {
			k.endAll()
			l.Close()
			return
		}
	}
}

func (k *Supervisor) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.machines)
}

// endAll ends all machines when clients can no longer reach them.
func (k *Supervisor) endAll() {
	for _, m := range k.list() {
		m.end(wire.Ending{Code: killedCode, Reason: "crashed"})
	}
}

func (k *Supervisor) list() []*machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*machine, 0, len(k.machines))
	for _, m := range k.machines {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *machine) int { return a.started.Compare(b.started) })
	return out
}

// get returns a machine. It waits for a creation in progress, so that a client can destroy a
// machine immediately after requesting its creation.
func (k *Supervisor) get(id string) *machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.creating[id] != nil {
		created := k.creating[id]
		k.mu.Unlock()
		<-created
		k.mu.Lock()
	}
	return k.machines[id]
}

// reserve records that a machine is being created. The returned function
// records whether the creation succeeded.
func (k *Supervisor) reserve(m *machine) (made func(bool)) {
	done := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.creating == nil {
		k.creating = map[string]chan struct{}{}
	}
	k.creating[m.id] = done
	return func(ok bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.creating, m.id)
		if ok {
			k.machines[m.id] = m
		}
		close(done)
	}
}

// destroy ends a machine and removes its data.
func (k *Supervisor) destroy(m *machine) error {
	m.end(wire.Ending{Code: killedCode, Reason: "killed"})
	<-m.done
	if err := remove(m.dir); err != nil {
		return err
	}
	k.mu.Lock()
	delete(k.machines, m.id)
	k.mu.Unlock()
	return nil
}

// recoverEnded takes over the machines that a previous supervisor of this directory has left. They
// ended when that supervisor exited.
func (k *Supervisor) recoverEnded() error {
	entries, err := os.ReadDir(filepath.Join(k.dir, machinesDir))
	if errors.Is(err, os.ErrNotExist) {
		return os.MkdirAll(filepath.Join(k.dir, machinesDir), 0o700)
	}
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	for _, e := range entries {
		m := newMachine(k, e.Name())
		if m.ending = m.readEnding(); m.ending == nil {
			m.ending = &wire.Ending{Code: killedCode, Reason: "crashed", AtMS: time.Now().UnixMilli()}
			m.writeEnding()
		}
		close(m.done)
		k.machines[m.id] = m
	}
	return nil
}

// serve handles the single request on a connection.
func (k *Supervisor) serve(c *net.UnixConn, l net.Listener) {
	defer c.Close()
	f, err := wire.NewReader(c).Read()
	var o wire.SupervisorRequest
	if err != nil || f.Type != wire.TypeOrder || json.Unmarshal(f.Payload, &o) != nil || o.Version != wire.SupervisorVersion {
		refuse(c, "invalid", "that is no order of version %d", wire.SupervisorVersion)
		return
	}
	switch o.Op {
	case wire.SupervisorCreate:
		k.make(c, o)
		return
	case wire.SupervisorList:
		for _, m := range k.list() {
			wire.WriteJSON(c, wire.TypeState, m.state())
		}
		wire.Write(c, wire.TypeOK, nil)
		return
	case wire.SupervisorQuit:
		wire.Write(c, wire.TypeOK, nil)
		if k.count() == 0 {
			l.Close()
		}
		return
	}
	m := k.get(o.ID)
	if m == nil {
		refuse(c, "not_found", "there is no machine %q", o.ID)
		return
	}
	switch o.Op {
	case wire.SupervisorWatch:
		m.watch(c, awaitFrame(c))
	case wire.SupervisorAgent:
		if err := m.passHostConn(c); err != nil {
			refuse(c, "gone", "%v", err)
		}
	case wire.SupervisorWaitMain:
		select {
		case <-m.main.Done():
			wire.Write(c, wire.TypeOK, nil)
		case <-m.done:
			refuse(c, "gone", "the machine has ended")
		}
	case wire.SupervisorLog:
		m.sendLog(c, o.Timed)
	default:
		if err := k.applyRequest(m, o); err != nil {
			refuse(c, "internal", "%v", err)
			return
		}
		wire.Write(c, wire.TypeOK, nil)
	}
}

// applyRequest handles a request whose response is only success or an error.
func (k *Supervisor) applyRequest(m *machine, o wire.SupervisorRequest) error {
	switch o.Op {
	case wire.SupervisorLease:
		if !m.lease.Renew(time.Duration(o.LeaseMS)*time.Millisecond, o.Own) {
			return errors.New("the machine has ended")
		}
		return nil
	case wire.SupervisorStartMain:
		m.begin(o.Linger)
		return nil
	case wire.SupervisorStop:
		m.stop(time.Duration(o.GraceMS)*time.Millisecond, o.Reason)
		return nil
	case wire.SupervisorAppendLog:
		return journal.Append(m.logFile(), o.Text)
	case wire.SupervisorDestroy:
		return k.destroy(m)
	}
	return fmt.Errorf("unknown order %q", o.Op)
}

func refuse(c net.Conn, kind, format string, args ...any) {
	wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: kind, Message: fmt.Sprintf(format, args...)})
}
