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

// sentryLaunch contains the arguments of a sentry that has not started yet, and
// the files donated to it.
type sentryLaunch struct {
	cmd   *exec.Cmd
	owned []*os.File // closed in this process by close
}

// donate donates a file and passes its descriptor in the flag. close closes the
// file in this process.
func (b *sentryLaunch) donate(flag string, f *os.File) {
	b.owned = append(b.owned, f)
	b.donateOpen(flag, f)
}

// donateOpen donates files that stay open in this process.
func (b *sentryLaunch) donateOpen(flag string, files ...*os.File) {
	for _, f := range files {
		b.cmd.Args = append(b.cmd.Args, fmt.Sprintf("--%s=%d", flag, b.next()))
		b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, f)
	}
}

// passToGuest passes a file to the guest as the given descriptor. It returns
// the corresponding argument for the sentry.
func (b *sentryLaunch) passToGuest(f *os.File, guest int) (arg string) {
	arg = fmt.Sprintf("--pass-fd=%d:%d", b.next(), guest)
	b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, f)
	return arg
}

// next returns the descriptor number of the next donated file.
func (b *sentryLaunch) next() int { return 3 + len(b.cmd.ExtraFiles) }

func (b *sentryLaunch) close() {
	for _, f := range b.owned {
		f.Close()
	}
	b.owned = nil
}

// log donates a log file, opened for appending.
func (b *sentryLaunch) log(flag, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", flag, err)
	}
	b.donate(flag, f)
	return nil
}

// pipe donates one end of a pipe and returns the other.
func (b *sentryLaunch) pipe(flag string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	b.donate(flag, w)
	return r, nil
}

// donateStore donates the file that backs the writable layer. The file is
// unlinked.
func (b *sentryLaunch) donateStore(l layout) error {
	f, err := os.CreateTemp(l.path(overlayDir), "layer-")
	if err != nil {
		return fmt.Errorf("make writable layer: %w", err)
	}
	b.donate("gofer-filestore-fds", f)
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("make writable layer: %w", err)
	}
	// A kernel that measures executed files (IMA) would otherwise measure the
	// whole file later, whatever its size. Mapping the file once while it is
	// empty avoids that.
	if m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_EXEC, unix.MAP_SHARED); err == nil {
		return unix.Munmap(m)
	}
	return nil
}

// start starts the sentry in the given cgroup, if any, and in new namespaces.
func (b *sentryLaunch) start(g *cgroup.Group) (err error) {
	// The sentry briefly locks pages when it needs many of them. Its cgroup
	// limits its memory.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	attr := &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Credential: &syscall.Credential{},
	}
	// Map the IDs of this process unchanged, so that the sentry owns the
	// image's files.
	if attr.UidMappings, err = sameIDs("/proc/self/uid_map"); err != nil {
		return err
	}
	if attr.GidMappings, err = sameIDs("/proc/self/gid_map"); err != nil {
		return err
	}
	b.cmd.SysProcAttr = attr
	b.widenTable()
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
	// Let the sentry join the group before it receives any data of the guest.
	if err := b.fork(); err != nil {
		return err
	}
	return g.Join(b.cmd.Process.Pid)
}

// sentryDescriptors exceeds the highest descriptor that gVisor uses when it
// starts: it moves the guest's standard streams to descriptors 253 to 255.
const sentryDescriptors = 260

// widenTable makes the sentry start with a large descriptor table. The forked
// child, which still has a single thread, grows the table by moving its files above
// their final numbers. In a process with several threads, the kernel waits for an
// RCU grace period of about 10 ms to grow the table.
func (b *sentryLaunch) widenTable() {
	for len(b.cmd.ExtraFiles) < sentryDescriptors {
		b.cmd.ExtraFiles = append(b.cmd.ExtraFiles, nil)
	}
}

// startInto starts the sentry directly in its group. It requires cgroup v2, and
// fails if the host denies the operation.
func (b *sentryLaunch) startInto(g *cgroup.Group) error {
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

func (b *sentryLaunch) fork() error {
	if err := b.cmd.Start(); err != nil {
		return fmt.Errorf("start the sentry: %w", err)
	}
	return nil
}

// sameIDs maps each ID of this process's user namespace to itself.
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
