package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/cgroup"
)

// machine is a running gVisor sandbox, seen by the process that started it.
type machine struct {
	kernel
	control *net.UnixConn // the agent's control socket
	guest   *guest.Guest
	gone    chan struct{} // closed when the sandbox has ended
	status  atomic.Int32  // its wait status, when gone
}

// boot starts gVisor with the agent as init, in the group if there is one.
func boot(l layout, o *order, g *cgroup.Group) (_ *machine, err error) {
	for _, dir := range []string{stateDir, overlayDir} {
		if err := os.MkdirAll(l.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("prepare folder: %w", err)
		}
	}
	if err := l.writeJSON(configFile, o.bundle(), false); err != nil {
		return nil, err
	}
	m := &machine{gone: make(chan struct{})}
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
	agent, err := os.Open(o.Agent)
	if err != nil {
		return nil, fmt.Errorf("open agent: %w", err)
	}
	defer agent.Close()

	// The sandbox dies with the thread that starts it, so that it cannot
	// outlive its shim. This one stays.
	runtime.LockOSThread()
	start := withGofer
	if o.Alone {
		start = alone
	}
	if m.kernel, err = start(l, o, g, donated{control: theirs, agent: agent}); err != nil {
		return nil, err
	}
	if err := m.confined(g); err != nil {
		return nil, errors.Join(err, m.kernel.destroy())
	}
	if err := m.run(); err != nil {
		return nil, errors.Join(err, m.kernel.destroy())
	}
	m.guest = &guest.Guest{Dial: m.dial, Env: o.Env, Limits: o.Limits}
	go func() {
		m.status.Store(int32(m.wait()))
		close(m.gone)
	}()
	return m, nil
}

// confined makes sure that the sentry is where its limits are. Nothing of the
// guest has run yet.
func (m *machine) confined(g *cgroup.Group) error {
	if g == nil {
		return nil
	}
	in, err := g.Holds(m.pid())
	if err == nil && !in {
		err = errors.New("the sandbox is not in its cgroup")
	}
	return err
}

// connect makes a connection to the agent and returns the host's end.
func (m *machine) connect() (int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make connection: %w", err)
	}
	defer unix.Close(fds[1])
	for _, fd := range fds {
		// More in flight means fewer switches between host and guest.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	if _, _, err := m.control.WriteMsgUnix([]byte{0}, unix.UnixRights(fds[1]), nil); err != nil {
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

// kill ends every process of the sandbox at once.
func (m *machine) kill(g *cgroup.Group) {
	if !m.kernel.kill() && g != nil {
		_ = g.Kill()
	}
}

func (m *machine) destroy() error {
	m.control.Close()
	return m.kernel.destroy()
}

// code is the exit code of a machine that has gone.
func (m *machine) code() int {
	ws := unix.WaitStatus(m.status.Load())
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
