package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// pipeSize is the capacity asked for of a process's output pipes.
const pipeSize = 256 << 10

// process is a started process, seen from the agent's ends of its pipes.
type process struct {
	stdin, stdout, stderr, result *os.File
	ended                         <-chan syscall.WaitStatus
}

// expire makes reads of the process's output fail after d.
func (p *process) expire(d time.Duration) {
	at := time.Now().Add(d)
	for _, f := range []*os.File{p.stdout, p.stderr, p.result} {
		if f != nil {
			f.SetReadDeadline(at)
		}
	}
}

// spawn starts the process of x on pipes of ours.
func (a *Agent) spawn(x *execution) (_ *process, err error) {
	p := &process{}
	var theirs []uintptr
	defer func() {
		closeAll(theirs)
		if err != nil {
			for _, f := range []*os.File{p.stdin, p.stdout, p.stderr, p.result} {
				if f != nil {
					f.Close()
				}
			}
		}
	}()
	outputs := []**os.File{&p.stdout, &p.stderr}
	if x.call.Result {
		outputs = append(outputs, &p.result)
	}
	for i, ours := range append([]**os.File{&p.stdin}, outputs...) {
		mine := readEnd
		if i == 0 {
			mine = writeEnd
		}
		f, fd, err := openPipe("pipe", mine)
		if err != nil {
			return nil, err
		}
		*ours, theirs = f, append(theirs, uintptr(fd))
		if i > 0 {
			setPipeSize(fd)
		}
	}
	p.ended, err = a.start(x, theirs)
	return p, err
}

// start starts the process of x on the given descriptors, in a session of its
// own, without privileges.
func (a *Agent) start(x *execution, fds []uintptr) (<-chan syscall.WaitStatus, error) {
	argv := x.call.Argv
	if x.call.Shell != "" {
		argv = []string{a.shell, "-c", x.call.Shell}
	}
	if st, err := os.Stat(x.call.Dir); err != nil || !st.IsDir() {
		return nil, failure("not_found", "cwd", "no directory %q", x.call.Dir)
	}
	file, err := look(argv[0], x.call.Dir, x.call.Env)
	if err != nil {
		return nil, err
	}
	if file == wire.AgentFile {
		// The agent drives shells, too. It is in no folder of the image, and
		// only init itself may follow the link to its program.
		file = "/proc/self/exe"
	}
	if !a.plain && (x.call.UID == agentID || x.call.GID == agentID) {
		return nil, failure("invalid", "user", "nobody else is the agent's user")
	}
	attr := &syscall.ProcAttr{
		Dir: x.call.Dir, Env: localised(x.call.Env), Files: fds,
		Sys: &syscall.SysProcAttr{
			Setsid:  true,
			Setctty: x.call.Terminal != nil, // its descriptor 0
			// The tag is a group that nothing else has. Without capabilities
			// a process cannot leave a supplementary group, nor can anything
			// that it starts: the tag finds the whole tree, however often it
			// forked and whoever its parent is by now.
			Credential: &syscall.Credential{Uid: x.call.UID, Gid: x.call.GID, Groups: []uint32{x.call.GID, x.tag}},
		},
	}
	if a.plain {
		// Nobody has groups to give here. What a variable marks can take it off.
		attr.Sys.Credential.NoSetGroups = true
		attr.Env = append(attr.Env[:len(attr.Env):len(attr.Env)], treeMark(x.tag))
	}
	leader, ended, err := a.reaper.fork(func() (int, error) {
		// Limits are inherited over fork. Under the reaper's lock one fork
		// happens at a time, so nobody else inherits these.
		if a.plain {
			return forkLimited(file, argv, attr, x.call)
		}
		restore := setLimits(processes(x.call), x.call.OpenFiles)
		defer restore()
		return syscall.ForkExec(file, argv, attr)
	})
	if err != nil {
		return nil, spawnError(argv[0], err)
	}
	x.mu.Lock()
	x.leader = leader
	x.mu.Unlock()
	return ended, nil
}

// processes is the limit of processes for a call. gVisor counts what root runs
// together with the threads of the agent that started it (a task that becomes
// root stays with its parent's counter), so root gets that many more.
func processes(call wire.Exec) uint64 {
	if call.UID != 0 || call.Processes == 0 {
		return call.Processes
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return call.Processes
	}
	return call.Processes + uint64(len(threads))
}

func spawnError(name string, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOMEM):
		return failure("exhausted", "", "start %q: %v", name, err)
	case errors.Is(err, fs.ErrNotExist):
		return failure("not_found", "command", "start %q: %v (is its interpreter in the image?)", name, err)
	default:
		return failure("invalid", "command", "start %q: %v", name, err)
	}
}

// look finds a program as a shell would, in the PATH of its environment.
func look(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		file := name
		if !path.IsAbs(file) {
			file = path.Join(dir, name)
		}
		if st, err := os.Stat(file); err != nil || st.IsDir() {
			return "", failure("not_found", "command", "no program %q", name)
		}
		return file, nil
	}
	search := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for d := range strings.SplitSeq(search, ":") {
		file := path.Join(d, name)
		if st, err := os.Stat(file); name != "" && path.IsAbs(file) && err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", failure("not_found", "command", "no program %q in PATH %q", name, search)
}
