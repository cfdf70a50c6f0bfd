// Package agent is the init process inside a sandbox. It starts processes,
// streams their output, records how they ended, kills whole process trees and
// transfers files. It imports only guest/wire, small internal packages and the
// standard library, so that it stays small and independent of the domain
// packages.
//
// The host does not trust the agent, and treats its reports about processes as
// claims of the guest. The host itself enforces limits and policy, and does the
// accounting.
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
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/supervise"
)

// maxRemembered is the maximum number of finished executions that are retained
// for Execs.
const maxRemembered = 64

// Agent serves the host's calls. It is the init of its PID namespace.
type Agent struct {
	reaper          reaper
	killer          killer
	signalsRestored sync.Once
	link            link
	shell           string
	plain           bool
	build           bool // programs of root have wire.BuildRights
	// createMu is locked for writing while the agent creates a file and changes its owner, and for
	// reading while a watch reports a file. No event thus reports the agent as the owner.
	createMu sync.RWMutex
	rights   *accountThreads

	mu    sync.Mutex // guards the fields below
	execs map[string]*execution
	order []string // ids by age, oldest first
	tag   uint32   // the supplementary group that was assigned last

	others           otherUsers
	carried          carriers
	calls            hostCalls
	term             term
	main             supervise.Main
	deliveringOutput atomic.Int32 // executions whose callers have not received all output
}

// Options configures how an agent takes over as init.
type Options struct {
	// KeepCapabilities leaves the bounding set unchanged, so that tests can run operations that are
	// otherwise not permitted.
	KeepCapabilities bool
	// Build gives programs of root the capabilities of wire.BuildRights.
	Build bool
	// Plain means that the agent runs all processes and creates all files under
	// its own account, because no other account is available.
	Plain bool
}

// New takes over as init and returns the agent.
func New(o Options) (*Agent, error) {
	// As init, the agent must not be killed by a stray signal from its children. It catches these
	// signals instead of ignoring them, because child processes inherit ignored signals, and
	// programs would then not react to SIGTERM and SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	if err := dropCapabilities(o); err != nil {
		return nil, err
	}
	a := &Agent{execs: map[string]*execution{}, shell: "/bin/sh", tag: firstTag, plain: o.Plain, build: o.Build, rights: newRights(o.Plain)}
	if st, err := os.Stat("/bin/bash"); err == nil && !st.IsDir() {
		a.shell = "/bin/bash"
	}
	if err := a.createDirs(); err != nil {
		return nil, err
	}
	a.reaper.start()
	return a, nil
}

// ServeControl serves calls on connections that arrive as descriptors on a donated socket, one per
// message, until the host closes that socket. It also handles the messages that prepare a save.
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
	var b [wire.MaxControl]byte
	for {
		n, oobn, _, _, err := ctl.ReadMsgUnix(b[:], oob)
		if err != nil {
			return fmt.Errorf("read control socket: %w", err)
		}
		if n == 0 && oobn == 0 {
			return nil // the host has closed the socket
		}
		if op, number, ok := wire.ParseControlRequest(b[:n]); ok {
			if err := a.closeHostDescriptors(op, number, ctl); err != nil {
				return fmt.Errorf("answer on control socket: %w", err)
			}
			continue
		}
		if conn := connFromMessage(oob[:oobn]); conn != nil {
			a.calls.add(conn)
			go func() {
				defer a.calls.remove(conn)
				a.Serve(conn)
			}()
		}
	}
}

// connFromMessage converts the single descriptor of a control message to a
// connection.
func connFromMessage(oob []byte) net.Conn {
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

// Serve serves the single call on c and closes c.
func (a *Agent) Serve(c net.Conn) {
	defer c.Close()
	r := wire.NewReader(c)
	w := &writer{c: c}
	call, err := readCall(r)
	if err != nil {
		w.fail(err)
		return
	}
	if a.plain && isForOtherUser(call) {
		w.fail(newFailure("unimplemented", "", "there is one account on this machine, and nothing is anybody else's"))
		return
	}
	switch {
	case call.Op == wire.OpExec && call.Exec != nil && call.Exec.Donated:
		a.deliveringOutput.Add(1)
		a.execDonated(*call.Exec, c, w)
		a.deliveringOutput.Add(-1)
	case call.Op == wire.OpExec && call.Exec != nil && call.Exec.Carried:
		a.execCarried(*call.Exec, r, w)
	case call.Op == wire.OpExec && call.Exec != nil:
		a.deliveringOutput.Add(1)
		a.exec(*call.Exec, r, w)
		a.deliveringOutput.Add(-1)
	case call.Op == wire.OpKill && call.Kill != nil:
		w.writeResult(a.kill(*call.Kill))
	case call.Op == wire.OpSignal && call.Signal != nil:
		a.signal(*call.Signal)
		w.writeOK()
	case call.Op == wire.OpResize && call.Resize != nil:
		w.writeResult(a.resize(*call.Resize))
	case call.Op == wire.OpOutput:
		a.sendOutput(call.ID, c, w)
	case call.Op == wire.OpInput:
		a.receiveInput(call.ID, r, w)
	case call.Op == wire.OpReattach:
		a.adopt(call.ID, r, w)
	case call.Op == wire.OpPark:
		a.park(call.ID, w)
	case call.Op == wire.OpDetach && call.Keep != nil:
		w.writeResult(a.carried.keep(*call.Keep))
	case call.Op == wire.OpMain && call.Exec != nil:
		a.runMain(*call.Exec, w)
	case call.Op == wire.OpWaitMain:
		a.reportMainExit(r, w)
	case call.Op == wire.OpLease && call.Lease != nil:
		a.term.lease.Renew(time.Duration(call.Lease.MS)*time.Millisecond, call.Lease.Own)
		w.writeOK()
	case call.Op == wire.OpDial:
		a.dial(call.Port, c, w)
	case call.Op == wire.OpUplink && call.Uplink != nil:
		a.serveUplink(*call.Uplink, c, w)
	case call.Op == wire.OpRenew && call.Renew != nil:
		w.writeResult(a.renew(*call.Renew))
	case call.Op == wire.OpName:
		w.writeResult(syscall.Sethostname([]byte(call.Name)))
	case call.Op == wire.OpExecs:
		for _, x := range a.list() {
			w.writeJSON(wire.TypeExec, x)
		}
		w.writeOK()
	case call.Op == wire.OpPut && call.Put != nil:
		w.writeResult(putFiles(*call.Put, r, &a.createMu))
	case call.Op == wire.OpCollect && call.Collect != nil:
		w.writeResult(collect(*call.Collect, w))
	case call.Op == wire.OpPack && call.Tree != nil:
		w.writeResult(sendTree(*call.Tree, w))
	case call.Op == wire.OpChanged && call.Tree != nil:
		w.writeResult(sendChanged(*call.Tree, w))
	case call.Op == wire.OpUnpack && call.Tree != nil:
		w.writeResult(unpack(*call.Tree, r, &a.createMu))
	case call.Op == wire.OpQuiet && call.Stop != nil:
		w.writeResult(endAllProcesses(*call.Stop))
	case call.Op == wire.OpStop && call.Stop != nil:
		a.stop(*call.Stop)
		w.writeOK()
		os.Exit(0)
	case call.FS != nil && fsCalls[call.Op] != nil:
		w.writeResult(fsCalls[call.Op](fsCall{*call.FS, c, r, w, &a.createMu, a.rights}))
	case call.Op == wire.OpPing:
		w.writeOK()
	default:
		w.fail(newInvalidError("unknown call %q", call.Op))
	}
}
