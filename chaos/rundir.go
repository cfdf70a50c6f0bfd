package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/race"
)

// RunDir is the directory for all temporary files of one run of the test suite. Data folders of
// tests are in it, and their processes have it as TMPDIR. The suite identifies the leftovers of an
// interrupted run by this directory.
type RunDir struct {
	Path  string
	Alone bool // no other run had a directory when this one was locked
	lock  *os.File
}

// maxRunDirs bounds the runs on one host at the same time.
const maxRunDirs = 8

// LockRunDir locks a run directory below parent. It clears this directory and all others that are
// not locked, and lists the removed resources, even with an error. The names are the same in each
// run, because test results are cached by TMPDIR.
func LockRunDir(parent string) (r *RunDir, removed []string, err error) {
	// The paths of mounts, programs and cgroups have no links.
	if parent, err = filepath.Abs(parent); err == nil {
		parent, err = filepath.EvalSymlinks(parent)
	}
	if err != nil {
		return nil, nil, err
	}
	alone := true
	var failed []error
	for i := range maxRunDirs {
		dir := filepath.Join(parent, fmt.Sprintf("brig.%d", i))
		if _, err := os.Lstat(dir); r != nil && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		lock, err := openLock(dir)
		if err != nil {
			alone = false // the directory belongs to another run or another user
			failed = append(failed, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		list, err := clear(dir)
		removed = append(removed, list...)
		if err == nil && r == nil {
			if err = makeRunDir(dir); err == nil {
				r = &RunDir{Path: dir, lock: lock}
				continue
			}
		}
		lock.Close()
		if err != nil {
			failed = append(failed, fmt.Errorf("clear %s after an interrupted run: %w", dir, err))
		}
	}
	if r == nil {
		return nil, removed, fmt.Errorf("no folder for the files of this run: %w", errors.Join(failed...))
	}
	r.Alone = alone
	return r, removed, nil
}

// openLock opens and locks the lock file of a run directory. The lock ends with the process that holds it.
func openLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// makeRunDir makes a run directory. Like /tmp, it is open to programs of other users, which some
// tests run.
func makeRunDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// Release clears the directory and unlocks it. It lists the removed resources. The list is empty if
// each test removed its own processes, mounts and cgroups.
func (r *RunDir) Release() ([]string, error) {
	defer r.lock.Close() // the lock file stays, because its removal could remove the lock of the next run
	return clear(r.Path)
}

// EndProcesses ends all processes of the run, so that a test that must run alone is not disturbed.
// It lists these processes.
func (r *RunDir) EndProcesses() []string {
	groups := groupsOf(r.Path)
	return endProcesses(r.Path, groups, &groups)
}

// clear removes a run directory with all processes, mounts and cgroups of its tests.
func clear(dir string) (removed []string, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	own := groupsOf(dir)
	groups := slices.Clone(own)
	removed = endProcesses(dir, own, &groups)
	list, err := unmountBelow(dir)
	removed = append(removed, list...)
	for _, group := range groups {
		removed = append(removed, removeGroup(group)...)
	}
	if err != nil { // a mount may lead to another user's files
		return removed, err
	}
	if os.Getuid() != 0 { // RemoveAll cannot empty a directory without write permission for its owner
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(name, 0o700)
			}
			return nil
		})
	}
	return removed, os.RemoveAll(dir)
}

// groupsOf returns the parent cgroups of the sandboxes of all data folders in a run
// directory.
func groupsOf(dir string) (groups []string) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && d.IsDir() && d.Name() == "sandboxes":
			groups = append(groups, Group(filepath.Dir(name)))
			return filepath.SkipDir
		case err == nil && d.IsDir() && strings.Count(strings.TrimPrefix(name, dir), "/") > 5:
			return filepath.SkipDir // data folders are near the top; images below them have many directories
		}
		return nil // skip directories that cannot be read
	})
	return groups
}

// leftover is a process of an interrupted run.
type leftover struct {
	Process
	env string // the content of /proc/PID/environ
}

// String describes the process in the list of removed resources.
func (l leftover) String() string { return fmt.Sprintf("process %d %.120s", l.PID, l.Cmdline) }

// programs lists the programs that tests start and that may have no environment. A process of any
// other program belongs to the suite only if its TMPDIR is the run directory, or if its cgroup or
// its parent belongs to the run. A path below the run directory in the arguments of a shell is not
// sufficient.
var programs = []string{
	"brig", "brig-agent", "brig-engine", "brig-shim", "runsc", "runsc-sandbox", "runsc-gofer",
	"dockerd", "containerd", "containerd-shim-runc-v2", "containerd-shim-runsc-v1",
}

// belongsTo reports whether a process belongs to the run with the directory dir.
func (l leftover) belongsTo(dir string, groups []string) bool {
	if strings.Contains("\x00"+l.env, "\x00TMPDIR="+dir+"\x00") {
		return true
	}
	for line := range strings.Lines(l.Cgroups) {
		if slices.ContainsFunc(groups, func(g string) bool { return strings.Contains(line, ":"+g+"/") }) {
			return true
		}
	}
	return len(l.argv) > 0 && slices.Contains(programs, filepath.Base(l.argv[0])) && slices.ContainsFunc(l.argv, func(arg string) bool {
		_, value, _ := strings.Cut(arg, "=")
		return strings.HasPrefix(arg, dir+"/") || strings.HasPrefix(value, dir+"/") || strings.HasPrefix(arg, "unix://"+dir+"/")
	})
}

// readLeftover reads a process that still runs. The environment is empty if it belongs to
// another user.
func readLeftover(pid int) (leftover, bool) {
	p, ok := readProcess(pid)
	if !ok || p.State == 'Z' || p.State == 'X' {
		return leftover{}, false
	}
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return leftover{p, string(env)}, true
}

// endProcesses kills the processes of a run with their descendants, and waits until they have
// ended. The argument own lists the parent cgroups of the run's data folders. endProcesses adds
// the parent cgroups of the killed processes to groups.
func endProcesses(dir string, own []string, groups *[]string) (ended []string) {
	for range 5 { // a process may start others before it ends
		all := map[int]leftover{}
		for _, pid := range processIDs() {
			if l, ok := readLeftover(pid); ok {
				all[l.PID] = l
			}
		}
		kept := map[int]bool{} // this process and its ancestors
		for pid := os.Getpid(); pid != 0 && !kept[pid]; pid = all[pid].Parent {
			kept[pid] = true
		}
		var list []leftover
		for _, l := range all {
			// A descendant of a process of the run also belongs to the run, for example the program
			// in a container.
			for p, seen := l, 0; seen < 100 && !kept[p.PID]; p, seen = all[p.Parent], seen+1 {
				if p.belongsTo(dir, own) {
					list = append(list, l)
					break
				}
				if _, ok := all[p.Parent]; !ok || p.Parent <= 1 {
					break
				}
			}
		}
		if len(list) == 0 {
			return ended
		}
		for _, l := range list {
			if l.kill() {
				ended = append(ended, l.String())
			}
			*groups = append(*groups, l.groups()...)
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && slices.ContainsFunc(list, leftover.isRunning); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return ended
}

// isRunning reports whether the process is still running.
func (l leftover) isRunning() bool {
	now, ok := readLeftover(l.PID)
	return ok && slices.Equal(now.argv, l.argv)
}

// kill kills a process, unless another process now has its ID.
func (l leftover) kill() bool {
	p, err := os.FindProcess(l.PID) // from here on, p refers to this process
	if err != nil || !l.isRunning() {
		return false
	}
	return p.Kill() == nil
}

// groups returns the parent cgroups that tests made for a process.
func (l leftover) groups() (groups []string) {
	for line := range strings.Lines(l.Cgroups) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		if first, rest, ok := strings.Cut(path, "/"); ok && (first == "brig" || first == "brig-test") {
			name, _, _ := strings.Cut(rest, "/")
			if group := "/" + first + "/" + name; !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

// unmountBelow detaches the mounts at and below a directory, the newest first. It returns an error
// if a mount remains.
func unmountBelow(dir string) (removed []string, err error) {
	for _, mount := range slices.Backward(mountsBelow(dir)) {
		if err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err == nil {
			removed = append(removed, "the mount "+mount)
		}
	}
	if leftovers := mountsBelow(dir); len(leftovers) > 0 {
		return removed, fmt.Errorf("these mounts stay: %s", strings.Join(leftovers, ", "))
	}
	return removed, nil
}

// mountsBelow lists the mounts at and below a directory.
func mountsBelow(dir string) (list []string) {
	mounts, _ := os.ReadFile("/proc/self/mounts") // without it, RemoveAll fails at the first mount
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		mount := octal.ReplaceAllStringFunc(fields[1], func(s string) string {
			n, _ := strconv.ParseUint(s[1:], 8, 8)
			return string([]byte{byte(n)})
		})
		if mount == dir || strings.HasPrefix(mount, dir+"/") {
			list = append(list, mount)
		}
	}
	return list
}

// octal matches a character that the kernel escapes in a list of mounts.
var octal = regexp.MustCompile(`\\[0-3][0-7][0-7]`)

// removeGroup removes a cgroup and those below it, in each hierarchy.
func removeGroup(group string) (removed []string) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		names, _ := filepath.Glob(top + group)
		for _, name := range names {
			if cgroup.RemoveTree(name) == nil {
				removed = append(removed, "the cgroup "+name)
			}
		}
	}
	return removed
}

// sharedFolders are the directories that tests make outside of their run directory, because a
// sandbox has a /tmp of its own.
var sharedFolders = []string{"/var/tmp/brig-canary-*", "/var/tmp/brig-socket-*", "/var/tmp/brig-venv-*"}

// ClearShared removes resources of interrupted runs outside of their run directories,
// unless they may belong to another run.
func (r *RunDir) ClearShared() (removed []string) {
	if !r.Alone {
		return nil
	}
	dead := func(name, prefix string) bool { // the name is the prefix and the ID of a process that has ended
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), prefix), "-")
		pid, err := strconv.Atoi(number)
		return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	spaces, _ := filepath.Glob("/run/netns/brig-lab-*")
	for _, name := range spaces {
		if dead(name, "brig-lab-") && exec.Command("ip", "netns", "delete", filepath.Base(name)).Run() == nil {
			removed = append(removed, "the network namespace "+filepath.Base(name))
		}
	}
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		for _, place := range []struct{ dir, prefix string }{{"/brig-test/", ""}, {"/", "brig-shed-"}, {"/", "brig-unit-"}} {
			groups, _ := filepath.Glob(top + place.dir + place.prefix + "*")
			for _, name := range groups {
				if dead(name, place.prefix) {
					removed = append(removed, removeGroup(place.dir+filepath.Base(name))...)
				}
			}
		}
	}
	for _, pattern := range sharedFolders {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			// A run with a different TMPDIR is unknown here, but it takes less than a day.
			if fi, err := os.Lstat(name); err == nil && time.Since(fi.ModTime()) > 24*time.Hour && os.RemoveAll(name) == nil {
				removed = append(removed, name)
			}
		}
	}
	// Every program with the race detector would report a race.
	if os.Remove(race.Plant) == nil {
		removed = append(removed, race.Plant)
	}
	return removed
}
