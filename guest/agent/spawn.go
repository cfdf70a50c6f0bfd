package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// pipeSize is the capacity in bytes that is requested for a process's output
// pipes.
const pipeSize = 256 << 10

// process is a started process with the agent's ends of its pipes.
type process struct {
	stdin, stdout, stderr, result *os.File
	ended                         <-chan syscall.WaitStatus
}

// expire sets a deadline after d for reads of the process's output.
func (p *process) expire(d time.Duration) {
	deadline := time.Now().Add(d)
	for _, f := range []*os.File{p.stdout, p.stderr, p.result} {
		if f != nil {
			f.SetReadDeadline(deadline)
		}
	}
}

// spawn starts the process of x on pipes of the agent.
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
		agentEnd := readEnd
		if i == 0 {
			agentEnd = writeEnd
		}
		f, fd, err := a.openPipe("pipe", agentEnd, x.call)
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

// maxOtherUsers is the maximum number of users besides user and root that may run commands during the
// life of a sandbox. The process limit holds for each user, and the host's limit of threads is sized
// for this number.
const maxOtherUsers = 2

// otherUsers are the users besides user and root that have run commands.
type otherUsers struct {
	mu   sync.Mutex // guards the field below
	uids []uint32
}

// add adds a user, and reports whether the user may run commands.
func (o *otherUsers) add(uid uint32) bool {
	if uid == 0 || uid == userID {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.uids, uid) {
		return true
	}
	if len(o.uids) == maxOtherUsers {
		return false
	}
	o.uids = append(o.uids, uid)
	return true
}

// start starts the process of x on the given descriptors, in a new session and
// without privileges.
func (a *Agent) start(x *execution, fds []uintptr) (<-chan syscall.WaitStatus, error) {
	argv := x.call.Argv
	if x.call.Shell != "" {
		argv = []string{a.shell, "-c", x.call.Shell}
	}
	if st, err := os.Stat(x.call.Dir); err != nil || !st.IsDir() {
		return nil, newFailure("not_found", "cwd", "no directory %q", x.call.Dir)
	}
	file, err := lookPath(argv[0], x.call.Dir, x.call.Env)
	if err != nil {
		return nil, err
	}
	if file == wire.AgentFile {
		// The agent also drives shells. Its program is not in any directory of
		// the image, and only init itself may follow the link to it.
		file = "/proc/self/exe"
	}
	if !a.plain && (x.call.UID == agentID || x.call.GID == agentID) {
		return nil, newFailure("invalid", "user", "nobody else is the agent's user")
	}
	if !a.others.add(x.call.UID) {
		return nil, newFailure("invalid", "user", "commands of %d other users have run in this sandbox; use one of them, or root", maxOtherUsers)
	}
	attr := &syscall.ProcAttr{
		Dir: x.call.Dir, Env: withLocale(x.call.Env), Files: fds,
		Sys: &syscall.SysProcAttr{
			Setsid:  true,
			Setctty: x.call.Terminal != nil, // descriptor 0 is the controlling terminal
			// The tag is a group that no process outside this tree has. A
			// process without capabilities cannot leave a supplementary group,
			// and neither can its descendants. Thus the tag identifies the
			// whole tree, regardless of forks and reparenting.
			Credential: &syscall.Credential{Uid: x.call.UID, Gid: x.call.GID, Groups: []uint32{x.call.GID, x.tag}},
		},
	}
	if a.plain {
		// A plain agent cannot set groups. Instead an environment variable
		// marks the tree, but a process can remove it.
		attr.Sys.Credential.NoSetGroups = true
		attr.Env = append(attr.Env[:len(attr.Env):len(attr.Env)], treeMark(x.tag))
	}
	leader, ended, err := a.reaper.fork(func() (int, error) {
		// A forked process inherits the limits. The reaper's lock serializes
		// forks, so no other child inherits these limits.
		if a.plain {
			return forkLimited(file, argv, attr, x.call)
		}
		restore := setLimits(processLimit(x.call), x.call.OpenFiles)
		defer restore()
		if a.build && x.call.UID != 0 {
			return forkBare(file, argv, attr)
		}
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

// forkBare starts a program that does not inherit the bounding set of a build. It forks on a
// thread of its own, because the bounding set belongs to the thread and a capability cannot be put
// back. The thread exits with the goroutine that is locked to it.
func forkBare(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		if err = reduceBoundingSet(0, syscall.RawSyscall); err == nil {
			pid, err = syscall.ForkExec(file, argv, attr)
		}
	})
	done.Wait()
	return pid, err
}

// processLimit returns the process limit for a call. gVisor counts the processes of root together
// with the threads of the agent that started them, because a task that becomes root keeps its
// parent's counter. The limit for root is therefore increased by the number of threads.
func processLimit(call wire.Exec) uint64 {
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
		return newFailure("exhausted", "", "start %q: %v", name, err)
	case errors.Is(err, fs.ErrNotExist):
		return newFailure("not_found", "command", "start %q: %v (is its interpreter in the image?)", name, err)
	default:
		return newFailure("invalid", "command", "start %q: %v", name, err)
	}
}

// lookPath finds a program as a shell does, in the PATH of env.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		file := name
		if !path.IsAbs(file) {
			file = path.Join(dir, name)
		}
		if st, err := os.Stat(file); err != nil || st.IsDir() {
			return "", newFailure("not_found", "command", "no program %q", name)
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
	return "", newFailure("not_found", "command", "no program %q in PATH %q", name, search)
}

// plainLocale is the default locale of a program: UTF-8 characters, and C for all other categories.
// It sets only LC_CTYPE, as Python does for itself. With LANG, every program that loads its locale
// would also load a dozen other categories that equal those of C, which takes a quarter of bash's
// start time. The image must contain the locale, because bash warns about an invalid LC_CTYPE (but
// not about an invalid LANG).
var plainLocale = sync.OnceValue(func() string {
	for _, name := range []string{"C.utf8", "C.UTF-8"} {
		if _, err := os.Stat("/usr/lib/locale/" + name + "/LC_CTYPE"); err == nil {
			return "LC_CTYPE=C.UTF-8"
		}
	}
	return "LANG=C.UTF-8"
})

// withLocale returns env with plainLocale added, unless env already sets a
// locale.
func withLocale(env []string) []string {
	if slices.ContainsFunc(env, func(kv string) bool {
		return strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_")
	}) {
		return env
	}
	return append(env[:len(env):len(env)], plainLocale())
}

// Indexes of the ends of a pipe.
const (
	readEnd = iota
	writeEnd
)

// openPipe creates a pipe for the process of a call. The agent's end is
// non-blocking, for the runtime's poller. The process's end is blocking, as
// programs expect. The pipe belongs to the process's user, who can open it by name
// (/dev/stdout). The function needs fewer system calls than os.Pipe, each of which
// costs 20 µs or more at the start of a program.
func (a *Agent) openPipe(name string, agentEnd int, call wire.Exec) (ours *os.File, theirs int, err error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, 0, newFailure("exhausted", "", "open a pipe: %v", err)
	}
	theirs = p[1-agentEnd]
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(theirs), syscall.F_SETFL, 0); errno != 0 {
		closeAll([]uintptr{uintptr(p[0]), uintptr(p[1])})
		return nil, 0, newFailure("internal", "", "make a pipe block: %v", errno)
	}
	if !a.plain { // otherwise the process has the agent's user
		_ = syscall.Fchown(theirs, int(call.UID), int(call.GID)) // without it, only the open by name fails
	}
	return os.NewFile(uintptr(p[agentEnd]), name), theirs, nil
}
