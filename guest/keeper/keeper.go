// Package keeper makes machines of plain processes, where there is nothing
// better: on a server itself, on a machine that is reached by SSH, inside
// somebody else's sandbox. It is part of the agent's program, so that this is
// all that has to be brought there, and outlives whoever brought it. It knows
// the frames of guest/wire and how a journal is kept, and nothing else of Brig.
//
// A machine is an agent as the init of a process namespace, with a mount and a
// network namespace of its own. That keeps machines apart from each other by
// accident, not on purpose: all share one kernel with whatever else runs there.
package keeper

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
)

// The files of a keeper's folder.
const (
	socketFile  = "socket"
	machinesDir = "machines"
	keeperLog   = "keeper.log"
)

// idleTime is how long a keeper stays that has nothing to keep.
const idleTime = 10 * time.Minute

// Keeper keeps the machines of one folder.
type Keeper struct {
	dir     string
	plain   bool
	program *os.File // what machines begin with

	mu       sync.Mutex // guards the fields below
	machines map[string]*machine
	making   map[string]chan struct{} // closed when it is made, or is not
}

// Main is the main of a keeper of the folder that is named first. It returns
// the exit code.
func Main(args []string) int {
	if len(args) != 1 {
		return 2
	}
	// Whoever started it may go, and everything that signals it with them.
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
		return nil // there is one
	}
	program, err := sealed()
	if err != nil {
		return err
	}
	defer program.Close()
	k := &Keeper{dir: dir, plain: !privileged(), program: program, machines: map[string]*machine{}}
	if err := k.find(); err != nil {
		return err
	}
	l, err := listen(dir)
	if err != nil {
		return err
	}
	defer l.Close()
	go k.idle(l)
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

// listen listens on the folder's socket. The folder's name may be longer than a
// socket's can be.
func listen(dir string) (*net.UnixListener, error) {
	if err := os.Remove(filepath.Join(dir, socketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old socket: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketFile)})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// dial connects to the keeper of a folder.
func dial(dir string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketFile)})
}

// idle ends a keeper that nobody needs, or whose folder has gone.
func (k *Keeper) idle(l net.Listener) {
	used := time.Now()
	for range time.Tick(time.Second) {
		if k.count() > 0 {
			used = time.Now()
		}
		if _, err := os.Stat(filepath.Join(k.dir, socketFile)); err != nil || time.Since(used) > idleTime {
			k.endAll()
			l.Close()
			return
		}
	}
}

func (k *Keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.machines)
}

// endAll ends every machine. Nobody can ask for them any more.
func (k *Keeper) endAll() {
	for _, m := range k.list() {
		m.end(wire.Ending{Code: killedCode, Reason: "crashed"})
	}
}

func (k *Keeper) list() []*machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*machine, 0, len(k.machines))
	for _, m := range k.machines {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *machine) int { return a.begun.Compare(b.begun) })
	return out
}

// get finds a machine. One that is being made is waited for: who erases what it
// has just asked for has to find it.
func (k *Keeper) get(id string) *machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.making[id] != nil {
		made := k.making[id]
		k.mu.Unlock()
		<-made
		k.mu.Lock()
	}
	return k.machines[id]
}

// begins notes that a machine is being made. The function that it returns notes
// whether it was.
func (k *Keeper) begins(m *machine) (made func(bool)) {
	done := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.making == nil {
		k.making = map[string]chan struct{}{}
	}
	k.making[m.id] = done
	return func(ok bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.making, m.id)
		if ok {
			k.machines[m.id] = m
		}
		close(done)
	}
}

// erase ends a machine and leaves nothing of it.
func (k *Keeper) erase(m *machine) error {
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

// find takes over what another keeper of this folder has left: it died, and all
// its machines with it.
func (k *Keeper) find() error {
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

// serve carries out the one order on a connection.
func (k *Keeper) serve(c *net.UnixConn, l net.Listener) {
	defer c.Close()
	f, err := wire.NewReader(c).Read()
	var o wire.Order
	if err != nil || f.Type != wire.TypeOrder || json.Unmarshal(f.Payload, &o) != nil || o.Version != wire.KeeperVersion {
		refuse(c, "invalid", "that is no order of version %d", wire.KeeperVersion)
		return
	}
	switch o.Op {
	case wire.KeeperMake:
		k.make(c, o)
		return
	case wire.KeeperList:
		for _, m := range k.list() {
			wire.WriteJSON(c, wire.TypeState, m.state())
		}
		wire.Write(c, wire.TypeOK, nil)
		return
	case wire.KeeperQuit:
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
	case wire.KeeperWatch:
		m.watch(c, answer(c))
	case wire.KeeperAgent:
		if err := m.handOver(c); err != nil {
			refuse(c, "gone", "%v", err)
		}
	case wire.KeeperOver:
		select {
		case <-m.over:
			wire.Write(c, wire.TypeOK, nil)
		case <-m.done:
			refuse(c, "gone", "the machine has ended")
		}
	case wire.KeeperLog:
		m.sendLog(c, o.Timed)
	default:
		if err := k.change(m, o); err != nil {
			refuse(c, "internal", "%v", err)
			return
		}
		wire.Write(c, wire.TypeOK, nil)
	}
}

// change carries out an order that answers nothing but its success.
func (k *Keeper) change(m *machine, o wire.Order) error {
	switch o.Op {
	case wire.KeeperLease:
		return m.renew(time.Duration(o.LeaseMS)*time.Millisecond, o.Own)
	case wire.KeeperBegin:
		m.begin(o.Linger)
		return nil
	case wire.KeeperStop:
		m.stop(time.Duration(o.GraceMS)*time.Millisecond, o.Reason)
		return nil
	case wire.KeeperSay:
		return m.log.append(o.Text)
	case wire.KeeperErase:
		return k.erase(m)
	}
	return fmt.Errorf("unknown order %q", o.Op)
}

func refuse(c net.Conn, kind, format string, args ...any) {
	wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: kind, Message: fmt.Sprintf(format, args...)})
}
