package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/cgroup"
)

// sentry is a kernel without a gofer that the shim itself has started. The
// image's files are donated to the sentry as detached mounts (see tree). The
// sentry runs the "boot" command of gVisor's command line, with the arguments
// that gVisor's own library would pass.
type sentry struct {
	id         string
	restoreDir string // directory of the save to restore, or empty
	cmd        *exec.Cmd
	trees      trees
	calls      *controlSocket
	ended      chan struct{} // closed when status is valid
	mu         sync.Mutex    // guards exited
	exited     bool
}

// controlFile is the name of the socket on which a sentry accepts calls. It is
// in the directory of gVisor's state.
const controlFile = "sentry.sock"

// withoutGofer starts a kernel without a gofer. The kernel kills the sandbox when
// the calling thread exits.
func withoutGofer(l layout, o *order, g *cgroup.Group, d donatedFiles) (_ kernel, err error) {
	s := &sentry{id: o.ID, restoreDir: o.From, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.destroy())
		}
	}()
	a := sentryLaunch{cmd: exec.Command(o.Engine)}
	defer a.close()
	a.cmd.Args = []string{sentryName}
	for name, value := range o.flags(l, false) {
		a.cmd.Args = append(a.cmd.Args, "--"+name+"="+value)
	}
	slices.Sort(a.cmd.Args[1:])
	a.cmd.Env = []string{}
	a.cmd.Dir = "/"
	// Pass the control socket first, so that it has the same number in every
	// sentry: a restore finds donated sockets by number.
	passed := a.passToGuest(d.control, agentFD)
	if err := a.log("panic-log-fd", l.path(panicFile)); err != nil {
		return nil, err
	}
	total, err := hostMemory()
	if err != nil {
		return nil, err
	}
	a.cmd.Args = append(a.cmd.Args, "boot", "--bundle="+l.bundleDir(), "--gofer-mount-confs="+o.mountConfs(),
		"--apply-caps=true", "--setup-root", "--attached",
		fmt.Sprintf("--total-host-memory=%d", total), fmt.Sprintf("--total-memory=%d", total))
	a.cmd.Args = append(a.cmd.Args, passed)
	if s.trees, err = a.donateTrees(o); err != nil {
		return nil, err
	}
	if err := a.donateStore(l); err != nil {
		return nil, err
	}
	if err := a.donateLayer(o.FilesFrom); err != nil {
		return nil, err
	}
	booted, err := a.pipe("start-sync-fd")
	if err != nil {
		return nil, err
	}
	defer booted.Close()
	if s.calls, err = a.listen(l); err != nil {
		return nil, err
	}
	spec, err := os.Open(l.path(configFile))
	if err != nil {
		return nil, fmt.Errorf("open configuration: %w", err)
	}
	a.donate("spec-fd", spec)
	a.donateOpen("stdio-fds", os.Stdin, os.Stdout, os.Stderr)
	if d.agent != nil {
		a.donateOpen("exec-fd", d.agent)
	}
	if d.counters != nil {
		a.donateOpen(countersFlag, d.counters)
	}
	a.cmd.Args = append(a.cmd.Args, o.ID)
	err = a.start(g)
	if a.cmd.Process != nil {
		s.cmd = a.cmd
		go s.reap()
	}
	if err != nil {
		return nil, err
	}
	a.close() // so that the read below sees the end of the pipe if the sentry exits
	if _, err := io.ReadFull(booted, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("wait for the sentry: %w", err)
	}
	return s, nil
}

func (s *sentry) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exited || s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// kill ends the sentry. The sentry is the init of a PID namespace, so the
// kernel also ends every process in that namespace.
func (s *sentry) kill() bool {
	_ = s.cmd.Process.Kill() // the process may have ended already
	return true
}

// reap waits for the sentry to exit.
func (s *sentry) reap() {
	_ = s.cmd.Wait() // ProcessState holds the result
	s.mu.Lock()
	s.exited = true
	s.mu.Unlock()
	close(s.ended)
}

func (s *sentry) wait() unix.WaitStatus {
	<-s.ended
	return unix.WaitStatus(s.cmd.ProcessState.Sys().(syscall.WaitStatus))
}

func (s *sentry) run() error {
	score := []byte(strconv.Itoa(oomScore))
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.cmd.Process.Pid), score, 0); err != nil {
		return fmt.Errorf("mark the sentry for lack of memory: %w", err)
	}
	if s.restoreDir != "" {
		return s.restore(s.restoreDir)
	}
	return s.calls.call(call{"containerManager.SetNetworkArgs", loopback()}, call{"containerManager.StartRoot", s.id})
}

func (s *sentry) pause() error  { return s.calls.call(call{Method: "containerManager.Pause"}) }
func (s *sentry) resume() error { return s.calls.call(call{Method: "containerManager.Resume"}) }

func (s *sentry) destroy() error {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // the process may have ended already
		<-s.ended
	}
	if s.calls != nil {
		s.calls.dir.Close()
	}
	return s.trees.close()
}

// controlSocket is the socket on which a sentry accepts calls.
type controlSocket struct {
	dir  *os.File
	path string
}

// call is one call to a sentry.
type call struct {
	Method string `json:"method"`
	Arg    any    `json:"arg"`
}

// call makes calls to a sentry in sequence, and waits for each result. It then
// closes the connection, because an open connection prevents the sentry from
// exiting.
func (e *controlSocket) call(calls ...call) error {
	c, err := net.Dial("unix", e.path)
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	defer c.Close()
	responses := json.NewDecoder(io.LimitReader(c, oneRead))
	for _, one := range calls {
		b, err := json.Marshal(one)
		if err == nil {
			_, err = c.Write(b)
		}
		var response struct {
			Success bool   `json:"success"`
			Err     string `json:"err"`
		}
		if err == nil {
			err = responses.Decode(&response)
		}
		if err == nil && !response.Success {
			err = errors.New(response.Err)
		}
		if err != nil {
			return fmt.Errorf("call %s: %w", one.Method, err)
		}
	}
	return nil
}

// hostMemory returns the total memory of this machine.
func hostMemory() (uint64, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 0, fmt.Errorf("read size of memory: %w", err)
	}
	return host.Totalram * uint64(host.Unit), nil
}

// mountConfs returns the mount configurations of the root and the bind mounts.
// A file backs the writable layer above the root.
func (o *order) mountConfs() string {
	confs := []string{fmt.Sprintf("lisafs:anon:size=%d", o.Limits.Disk)}
	for range len(o.binds()) + len(o.Volumes) {
		confs = append(confs, "lisafs:none")
	}
	return strings.Join(confs, ",")
}

// listen donates the socket on which the sentry accepts calls. Only the owner
// may enter the socket's directory. The socket's path refers to the directory
// by a descriptor, because socket paths must be short.
func (b *sentryLaunch) listen(l layout) (*controlSocket, error) {
	dir, err := os.Open(l.path(stateDir))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.dir, err)
	}
	e := &controlSocket{dir: dir, path: filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), controlFile)}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		b.donate("controller-fd", os.NewFile(uintptr(fd), controlFile))
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: e.path})
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("make the sentry's socket: %w", err)
	}
	return e, nil
}

// kernel is the gVisor kernel of one sandbox: the sentry's process and its
// resources. A shim starts the sentry itself or, if a gofer is needed, through
// gVisor's own library.
type kernel interface {
	// pid returns the sentry's process ID, or 0 if the sentry has ended.
	pid() int
	// kill ends the sentry's process, and reports whether all processes of the
	// kernel end with it.
	kill() bool
	// run starts the agent in the kernel. No guest code runs before this call.
	run() error
	// wait waits for the sentry to exit and returns its status.
	wait() unix.WaitStatus
	pause() error
	resume() error
	// destroy ends the kernel, and removes its resources on the host.
	destroy() error
}

// donatedFiles contains the files that a sandbox receives.
type donatedFiles struct {
	control  *os.File
	agent    *os.File // nil if the agent is in one of the trees
	counters *os.File // nil if refusals are not counted
}
