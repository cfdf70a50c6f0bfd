package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/cgroup"
)

// machine is a running gVisor sandbox, in the process that started it.
type machine struct {
	kernel
	control     *net.UnixConn // the agent's control socket
	guest       *guest.Guest
	refused     *counters     // nil if refusals are not counted
	saving      sync.RWMutex  // write-locked during a save, so that no connection is passed to the agent
	lastRequest uint32        // number of the last release request; guarded by saving
	ended       chan struct{} // closed when the sandbox has ended
	status      atomic.Int32  // the sandbox's wait status, valid once ended is closed
}

// boot starts gVisor with the agent as init, in the given cgroup, if any.
func boot(l layout, o *order, g *cgroup.Group) (_ *machine, err error) {
	for _, dir := range []string{stateDir, overlayDir} {
		if err := os.MkdirAll(l.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("prepare folder: %w", err)
		}
	}
	if err := l.writeJSON(configFile, o.bundle(), false); err != nil {
		return nil, err
	}
	m := &machine{ended: make(chan struct{})}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "agent control")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	m.control = c.(*net.UnixConn)
	d := donatedFiles{control: theirs}
	if o.AgentAt == "" {
		if d.agent, err = os.Open(o.Agent); err != nil {
			return nil, fmt.Errorf("open agent: %w", err)
		}
		defer d.agent.Close()
	}
	start := withGofer
	if o.Alone {
		start = withoutGofer
	}
	if o.Counted {
		if m.refused, d.counters, err = newCounters(); err != nil {
			return nil, err
		}
		defer d.counters.Close()
	}
	// Lock this goroutine to its thread: the kernel kills the sandbox when the
	// thread that started it exits, so that the sandbox cannot outlive its
	// shim.
	runtime.LockOSThread()
	if m.kernel, err = start(l, o, g, d); err != nil {
		return nil, err
	}
	if err := m.checkCgroup(g); err != nil {
		return nil, errors.Join(err, m.kernel.destroy())
	}
	if err := m.run(); err != nil {
		return nil, errors.Join(err, m.kernel.destroy())
	}
	m.guest = &guest.Guest{Dial: m.dial, Env: o.Env, Limits: o.Limits}
	go func() {
		m.status.Store(int32(m.wait()))
		close(m.ended)
	}()
	return m, nil
}

// checkCgroup checks that the sentry is in its cgroup. It must be called before
// any code of the guest runs.
func (m *machine) checkCgroup(g *cgroup.Group) error {
	if g == nil {
		return nil
	}
	in, err := g.Contains(m.pid())
	if err == nil && !in {
		err = errors.New("the sandbox is not in its cgroup")
	}
	return err
}

// connect opens a connection to the agent and returns the host's end.
func (m *machine) connect() (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make connection: %w", err)
	}
	defer unix.Close(fds[1])
	m.saving.RLock()
	defer m.saving.RUnlock()
	for _, fd := range fds {
		// A larger buffer reduces the number of switches between host and
		// guest.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	if _, _, err := m.control.WriteMsgUnix([]byte{wire.ControlConnect}, unix.UnixRights(fds[1]), nil); err != nil {
		unix.Close(fds[0])
		return -1, fmt.Errorf("hand connection to agent: %w", err)
	}
	return fds[0], nil
}

// dial implements guest.Guest's Dial.
func (m *machine) dial(context.Context) (net.Conn, error) {
	fd, err := m.connect()
	if err != nil {
		return nil, err
	}
	return connOf(fd)
}

// kill kills all processes of the sandbox.
func (m *machine) kill(g *cgroup.Group) {
	if !m.kernel.kill() && g != nil {
		_ = g.Kill()
	}
}

func (m *machine) destroy() error {
	m.control.Close()
	return m.kernel.destroy()
}

// code returns the exit code of a sandbox that has ended.
func (m *machine) code() int {
	ws := unix.WaitStatus(m.status.Load())
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
