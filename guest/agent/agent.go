// Package agent is the process inside a sandbox, its init: it starts
// processes, streams them, remembers how they ended, kills whole trees of
// them, and moves files. It imports guest/wire and the standard library only,
// so that it stays small and never chases the domain.
//
// The host does not trust it. Whatever it says about a process is the word of
// the guest; limits, verdicts and accounts are the host's own.
package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
)

// remembered is how many finished executions are kept for Execs.
const remembered = 64

// Agent answers calls. It is the init of its process namespace.
type Agent struct {
	reaper reaper
	calmed sync.Once
	link   link
	shell  string
	plain  bool
	// making is held while something is made and given to the user, and for
	// reading by who tells of it: nobody is told that it is the agent's.
	making sync.RWMutex

	mu    sync.Mutex // guards the fields below
	execs map[string]*execution
	order []string // ids by age, for forgetting
	tag   uint32   // the last supplementary group that was given out

	carried carriers
	term    term
	telling atomic.Int32 // executions whose callers have not been told all

	over chan struct{} // closed when a main program that lingers has ended
	code int           // of that, once over is closed
}

// Options change what an agent does when it takes over.
type Options struct {
	// KeepCapabilities leaves the bounding set as it is, for a test that must
	// see what the agent prevents.
	KeepCapabilities bool
	// Plain says that there is one account, the agent's own, for all that it
	// starts and makes: no other can be had where it is.
	Plain bool
}

// New returns an agent that has taken over as init.
func New(o Options) (*Agent, error) {
	// As init it must not die of a stray signal that its children may send. It
	// catches them and does not ignore them: what is ignored is inherited, and
	// programs would be deaf to SIGTERM and SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	if err := shed(o); err != nil {
		return nil, err
	}
	a := &Agent{execs: map[string]*execution{}, over: make(chan struct{}), shell: "/bin/sh", tag: firstTag, plain: o.Plain}
	if st, err := os.Stat("/bin/bash"); err == nil && !st.IsDir() {
		a.shell = "/bin/bash"
	}
	if err := a.furnish(); err != nil {
		return nil, err
	}
	a.reaper.start()
	return a, nil
}

// ServeControl answers connections that arrive as descriptors on a donated
// socket, one per message, until that socket ends.
func (a *Agent) ServeControl(fd int) error {
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "control")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	ctl, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("control descriptor is not a unix socket")
	}
	defer ctl.Close()
	oob := make([]byte, syscall.CmsgSpace(4))
	var b [1]byte
	for {
		n, oobn, _, _, err := ctl.ReadMsgUnix(b[:], oob)
		if err != nil {
			return fmt.Errorf("read control socket: %w", err)
		}
		if n == 0 && oobn == 0 {
			return nil // the host has closed it: nobody is left to serve
		}
		if conn := received(oob[:oobn]); conn != nil {
			go a.Serve(conn)
		}
	}
}

// received turns the one descriptor of a control message into a connection.
func received(oob []byte) net.Conn {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) == 0 {
		return nil
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	syscall.CloseOnExec(fds[0])
	f := os.NewFile(uintptr(fds[0]), "call")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil
	}
	return c
}

// Serve answers the one call on c and closes it.
func (a *Agent) Serve(c net.Conn) {
	defer c.Close()
	r := wire.NewReader(c)
	w := &writer{c: c}
	call, err := readCall(r)
	if err != nil {
		w.fail(err)
		return
	}
	if a.plain && forOthers(call) {
		w.fail(failure("unimplemented", "", "there is one account on this machine, and nothing is anybody else's"))
		return
	}
	switch {
	case call.Op == wire.OpExec && call.Exec != nil && call.Exec.Donated:
		a.telling.Add(1)
		a.execDonated(*call.Exec, c, w)
		a.telling.Add(-1)
	case call.Op == wire.OpExec && call.Exec != nil && call.Exec.Carried:
		a.execCarried(*call.Exec, r, w)
	case call.Op == wire.OpExec && call.Exec != nil:
		a.telling.Add(1)
		a.exec(*call.Exec, r, w)
		a.telling.Add(-1)
	case call.Op == wire.OpKill && call.Kill != nil:
		a.kill(*call.Kill)
		w.ok()
	case call.Op == wire.OpSignal && call.Signal != nil:
		a.signal(*call.Signal)
		w.ok()
	case call.Op == wire.OpResize && call.Resize != nil:
		w.done(a.resize(*call.Resize))
	case call.Op == wire.OpOutput:
		a.output(call.ID, c, w)
	case call.Op == wire.OpInput:
		a.input(call.ID, r, w)
	case call.Op == wire.OpAdopt:
		a.adopt(call.ID, r, w)
	case call.Op == wire.OpKeep && call.Keep != nil:
		w.done(a.carried.keep(*call.Keep))
	case call.Op == wire.OpMain && call.Exec != nil:
		a.main(*call.Exec, w)
	case call.Op == wire.OpOver:
		a.tellOver(r, w)
	case call.Op == wire.OpLease && call.Lease != nil:
		a.term.renew(*call.Lease)
		w.ok()
	case call.Op == wire.OpDial:
		dial(call.Port, c, w)
	case call.Op == wire.OpUplink && call.Uplink != nil:
		a.uplink(*call.Uplink, c, w)
	case call.Op == wire.OpName:
		w.done(syscall.Sethostname([]byte(call.Name)))
	case call.Op == wire.OpExecs:
		for _, x := range a.list() {
			w.json(wire.TypeExec, x)
		}
		w.ok()
	case call.Op == wire.OpPut && call.Put != nil:
		w.done(put(*call.Put, r, &a.making))
	case call.Op == wire.OpCollect && call.Collect != nil:
		w.done(collect(*call.Collect, w))
	case call.Op == wire.OpPack && call.Tree != nil:
		w.done(pack(*call.Tree, w))
	case call.Op == wire.OpChanged && call.Tree != nil:
		w.done(changed(*call.Tree, w))
	case call.Op == wire.OpUnpack && call.Tree != nil:
		w.done(unpack(*call.Tree, r, &a.making))
	case call.Op == wire.OpQuiet && call.Stop != nil:
		w.done(quiet(*call.Stop))
	case call.Op == wire.OpStop && call.Stop != nil:
		a.stop(*call.Stop)
		w.ok()
		os.Exit(0)
	case call.FS != nil && fsCalls[call.Op] != nil:
		w.done(fsCalls[call.Op](fsCall{*call.FS, c, r, w, &a.making}))
	case call.Op == wire.OpPing:
		w.ok()
	default:
		w.fail(invalid("unknown call %q", call.Op))
	}
}
