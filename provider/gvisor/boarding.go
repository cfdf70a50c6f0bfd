package gvisor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/cgroup"
)

// boarding is a sentry before its start: its arguments, and the files that are
// donated to it.
type boarding struct {
	cmd   *exec.Cmd
	owned []*os.File // that are closed here
}

// own donates a file and closes it here; the flag says which descriptor it is.
func (b *boarding) own(flag string, f *os.File) {
	b.owned = append(b.owned, f)
	b.lend(flag, f)
}

// lend donates files that stay open here.
func (b *boarding) lend(flag string, files ...*os.File) {
	for _, f := range files {
		b.cmd.Args = append(b.cmd.Args, fmt.Sprintf("--%s=%d", flag, b.next()))
		b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, f)
	}
}

// pass hands a file on to the guest, which knows it by that descriptor.
func (b *boarding) pass(f *os.File, guest int) {
	b.cmd.Args = append(b.cmd.Args, fmt.Sprintf("--pass-fd=%d:%d", b.next(), guest))
	b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, f)
}

// next is the descriptor that the next file becomes.
func (b *boarding) next() int { return 3 + len(b.cmd.ExtraFiles) }

func (b *boarding) close() {
	for _, f := range b.owned {
		f.Close()
	}
	b.owned = nil
}

// log donates a file that is written to.
func (b *boarding) log(flag, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", flag, err)
	}
	b.own(flag, f)
	return nil
}

// pipe donates one end of a pipe and returns the other.
func (b *boarding) pipe(flag string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	b.own(flag, w)
	return r, nil
}

// donateStore donates the file that the writable layer is in. It has no name.
func (b *boarding) donateStore(l layout) error {
	f, err := os.CreateTemp(l.path(overlayDir), "layer-")
	if err != nil {
		return fmt.Errorf("make writable layer: %w", err)
	}
	b.own("gofer-filestore-fds", f)
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("make writable layer: %w", err)
	}
	// A kernel that measures what is executed would measure all of the file,
	// however large it has become, if it were not mapped while it is empty.
	if m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_EXEC, unix.MAP_SHARED); err == nil {
		return unix.Munmap(m)
	}
	return nil
}

// start starts the sentry in the group, if there is one, and in namespaces of
// its own.
func (b *boarding) start(g *cgroup.Group) (err error) {
	// It locks pages for a moment where it needs many; its group has a limit.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	attr := &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Credential: &syscall.Credential{},
	}
	// It owns the files of the image as this process does.
	if attr.UidMappings, err = sameIDs("/proc/self/uid_map"); err != nil {
		return err
	}
	if attr.GidMappings, err = sameIDs("/proc/self/gid_map"); err != nil {
		return err
	}
	b.cmd.SysProcAttr = attr
	if g == nil {
		return b.fork()
	}
	leave, err := g.EnterThread()
	if err == nil {
		return errors.Join(b.fork(), leave())
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if b.startInto(g) == nil {
		return nil
	}
	// It is moved before it has anything of the guest's.
	if err := b.fork(); err != nil {
		return err
	}
	return g.Join(b.cmd.Process.Pid)
}

// startInto has the kernel start the sentry in its group, as cgroup v2 can
// where nothing forbids it.
func (b *boarding) startInto(g *cgroup.Group) error {
	dir, err := g.Folder()
	if err != nil {
		return err
	}
	defer dir.Close()
	attr := *b.cmd.SysProcAttr
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	into := exec.Command(b.cmd.Path)
	into.Args, into.Env, into.Dir, into.ExtraFiles, into.SysProcAttr = b.cmd.Args, b.cmd.Env, b.cmd.Dir, b.cmd.ExtraFiles, &attr
	if err := into.Start(); err != nil {
		return err
	}
	b.cmd = into
	return nil
}

func (b *boarding) fork() error {
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start the sentry: %w", err)
	}
	return nil
}

// sameIDs maps each id that this process knows to itself.
func sameIDs(file string) (out []syscall.SysProcIDMap, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read own ids: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m syscall.SysProcIDMap
		var parent int
		if _, err := fmt.Sscan(strings.TrimSpace(lines.Text()), &m.ContainerID, &parent, &m.Size); err != nil {
			return nil, fmt.Errorf("read own ids: %w", err)
		}
		m.HostID = m.ContainerID
		out = append(out, m)
	}
	return out, nil
}
