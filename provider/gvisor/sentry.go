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

// sentry is a kernel that the shim has started itself, and that has no gofer:
// the image's files are donated to it as mounts that are nowhere else (see
// tree). It is the "boot" command of gVisor's command line, with the arguments
// that gVisor's own library would have given it.
type sentry struct {
	id    string
	cmd   *exec.Cmd
	trees trees
	calls *callee
	ended chan struct{} // closed when status is known
	mu    sync.Mutex    // guards gone
	gone  bool
}

// controlFile is the socket on which a sentry takes calls, among gVisor's own
// state.
const controlFile = "sentry.sock"

// alone starts a kernel without a gofer. The sandbox dies with the thread that
// calls it.
func alone(l layout, o *order, g *cgroup.Group, d donated) (_ kernel, err error) {
	s := &sentry{id: o.ID, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.destroy())
		}
	}()
	a := boarding{cmd: exec.Command(o.Engine)}
	defer a.close()
	a.cmd.Args = []string{sentryName}
	for name, value := range o.flags(l, false) {
		a.cmd.Args = append(a.cmd.Args, "--"+name+"="+value)
	}
	slices.Sort(a.cmd.Args[1:])
	a.cmd.Env = []string{}
	a.cmd.Dir = "/"
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
	if s.trees, err = a.donateTrees(o); err != nil {
		return nil, err
	}
	if err := a.donateStore(l); err != nil {
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
	a.own("spec-fd", spec)
	a.lend("stdio-fds", os.Stdin, os.Stdout, os.Stderr)
	a.lend("exec-fd", d.agent)
	a.pass(d.control, agentFD)
	a.cmd.Args = append(a.cmd.Args, o.ID)
	err = a.start(g)
	if a.cmd.Process != nil {
		s.cmd = a.cmd
		go s.reap()
	}
	if err != nil {
		return nil, err
	}
	a.close() // so that its end is seen
	if _, err := io.ReadFull(booted, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("wait for the sentry: %w", err)
	}
	return s, nil
}

func (s *sentry) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// kill ends the sentry, the init of a process namespace: the kernel ends
// everything in it.
func (s *sentry) kill() bool {
	_ = s.cmd.Process.Kill() // it may have gone
	return true
}

// reap waits for the sentry's end.
func (s *sentry) reap() {
	_ = s.cmd.Wait() // its state says it
	s.mu.Lock()
	s.gone = true
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
	return s.calls.call(call{"containerManager.SetNetworkArgs", loopback()}, call{"containerManager.StartRoot", s.id})
}

func (s *sentry) pause() error  { return s.calls.call(call{Method: "containerManager.Pause"}) }
func (s *sentry) resume() error { return s.calls.call(call{Method: "containerManager.Resume"}) }

func (s *sentry) destroy() error {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // it may have gone
		<-s.ended
	}
	if s.calls != nil {
		s.calls.dir.Close()
	}
	return s.trees.close()
}

// callee is where a sentry takes calls.
type callee struct {
	dir  *os.File
	path string
}

// call is what a sentry is to do.
type call struct {
	Method string `json:"method"`
	Arg    any    `json:"arg"`
}

// call has a sentry do things, one after the other, and waits until it has. No
// connection stays: one that is open keeps a sentry from ending by itself.
func (e *callee) call(calls ...call) error {
	c, err := net.Dial("unix", e.path)
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	defer c.Close()
	answers := json.NewDecoder(io.LimitReader(c, oneRead))
	for _, one := range calls {
		b, err := json.Marshal(one)
		if err == nil {
			_, err = c.Write(b)
		}
		var answer struct {
			Success bool   `json:"success"`
			Err     string `json:"err"`
		}
		if err == nil {
			err = answers.Decode(&answer)
		}
		if err == nil && !answer.Success {
			err = errors.New(answer.Err)
		}
		if err != nil {
			return fmt.Errorf("call %s: %w", one.Method, err)
		}
	}
	return nil
}

// hostMemory is how much memory this machine has.
func hostMemory() (uint64, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 0, fmt.Errorf("read size of memory: %w", err)
	}
	return host.Totalram * uint64(host.Unit), nil
}

// mountConfs says how the root and the binds are mounted: the root below a
// writable layer in a file.
func (o *order) mountConfs() string {
	confs := []string{fmt.Sprintf("lisafs:anon:size=%d", o.Limits.Disk)}
	for range o.Root.Binds {
		confs = append(confs, "lisafs:none")
	}
	return strings.Join(confs, ",")
}

// listen donates the socket on which the sentry takes calls. It is in a
// folder that only its owner may enter, and reached through a descriptor,
// since paths of sockets must be short.
func (b *boarding) listen(l layout) (*callee, error) {
	dir, err := os.Open(l.path(stateDir))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.dir, err)
	}
	e := &callee{dir: dir, path: filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), controlFile)}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		b.own("controller-fd", os.NewFile(uintptr(fd), controlFile))
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: e.path})
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("make the sentry's socket: %w", err)
	}
	return e, nil
}
