package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brig-run/brig/internal/race"
)

// Ground is the folder for all temporary files of one run. Everything that tests leave on
// the host can be found by it: their data folders are in it, and their processes have it
// as TMPDIR.
type Ground struct {
	Dir   string
	Alone bool // there was no other run when it was taken
	lock  *os.File
}

// maxGrounds bounds the runs on one host at the same time.
const maxGrounds = 8

// Occupy takes a ground below parent that no other run has, and removes what interrupted
// runs left, in this ground and in all others that are free. It returns what it removed.
// The names are the same in each run, because test results are cached by TMPDIR.
func Occupy(parent string) (g *Ground, removed []string, err error) {
	alone := true
	for i := range maxGrounds {
		dir := filepath.Join(parent, fmt.Sprintf("brig.%d", i))
		if _, err := os.Stat(dir); g != nil && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		lock, err := lockGround(dir)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, fs.ErrPermission) { // of another run, or user
			alone = false
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		list, err := clear(dir)
		removed = append(removed, list...)
		if err == nil && g == nil {
			if err = makeGround(dir); err == nil {
				g = &Ground{Dir: dir, lock: lock}
				continue
			}
		}
		lock.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("remove what an interrupted run left in %s: %w", dir, err)
		}
	}
	if g == nil {
		return nil, nil, fmt.Errorf("%d runs of the suite have the folders %s", maxGrounds, filepath.Join(parent, "brig.*"))
	}
	g.Alone = alone
	return g, removed, nil
}

// lockGround locks a ground. The lock ends with the process that has it.
func lockGround(dir string) (*os.File, error) {
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

// makeGround makes the folder of a ground. Like /tmp, it is open to programs of other
// users, which some tests run.
func makeGround(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777|os.ModeSticky)
}

// Leave removes the ground and what the run left in it, and returns what that was: a test
// that removes all its resources leaves nothing but files.
func (g *Ground) Leave() ([]string, error) {
	defer g.lock.Close() // the file stays: who removes it may remove that of the next run
	return clear(g.Dir)
}

// clear removes a ground with all processes, mounts and cgroups of its tests.
func clear(dir string) (removed []string, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	groups := groupsOf(dir)
	for range 5 { // a process may start others before it ends
		list := processesOf(dir, &groups)
		if len(list) == 0 {
			break
		}
		for _, p := range list {
			if syscall.Kill(p.PID, syscall.SIGKILL) == nil {
				removed = append(removed, p.String())
			}
		}
		awaitEnd(list)
	}
	removed = append(removed, unmountBelow(dir)...)
	for _, group := range groups {
		removed = append(removed, removeGroup(group)...)
	}
	// Tests that are not root's may have closed folders to their owner.
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	return removed, os.RemoveAll(dir)
}

// groupsOf returns the parent cgroups of the sandboxes of all data folders in a ground.
func groupsOf(dir string) (groups []string) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && d.IsDir() && d.Name() == "sandboxes":
			groups = append(groups, Group(filepath.Dir(name)))
			return filepath.SkipDir
		case err == nil && d.IsDir() && strings.Count(strings.TrimPrefix(name, dir), "/") > 5:
			return filepath.SkipDir // data folders are near the top; images below them have many folders
		}
		return nil // what cannot be read is skipped
	})
	return groups
}

// processesOf lists the processes of a ground: those with it as TMPDIR, those whose command
// line, program or working directory is in it, and those in its cgroups. It adds the
// cgroups that tests made for these processes.
func processesOf(dir string, groups *[]string) (list []Process) {
	list = (&Host{Dir: dir + "/", Group: "\x00"}).Processes()
	known := func(pid int) bool {
		return slices.ContainsFunc(list, func(p Process) bool { return p.PID == pid })
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() || pid == os.Getppid() || known(pid) {
			continue
		}
		env, _ := os.ReadFile(d + "/environ")
		cwd, _ := os.Readlink(d + "/cwd")
		in, _ := os.ReadFile(d + "/cgroup")
		if !bytes.Contains(append([]byte{0}, env...), []byte("\x00TMPDIR="+dir+"\x00")) && !strings.HasPrefix(cwd, dir+"/") &&
			!slices.ContainsFunc(*groups, func(g string) bool { return bytes.Contains(in, []byte(":"+g+"/")) }) {
			continue
		}
		stat, _ := os.ReadFile(d + "/stat")
		if len(stat) == 0 || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		cmdline, _ := os.ReadFile(d + "/cmdline")
		list = append(list, Process{PID: pid, State: '?', Cmdline: strings.ReplaceAll(string(cmdline), "\x00", " "), Cgroups: string(in)})
	}
	for _, p := range list {
		for line := range strings.Lines(p.Cgroups) {
			_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
			if first, rest, ok := strings.Cut(path, "/"); ok && (first == "brig" || first == "brig-test") {
				name, _, _ := strings.Cut(rest, "/")
				if group := "/" + first + "/" + name; !slices.Contains(*groups, group) {
					*groups = append(*groups, group)
				}
			}
		}
	}
	return list
}

// awaitEnd waits until killed processes have ended.
func awaitEnd(list []Process) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(list, func(p Process) bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
			return err == nil && !bytes.Contains(stat, []byte(") Z "))
		}) {
			return
		}
	}
}

// unmountBelow detaches the mounts below a folder, the newest first.
func unmountBelow(dir string) (removed []string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		at := strings.ReplaceAll(fields[1], `\040`, " ")
		if strings.HasPrefix(at, dir+"/") && syscall.Unmount(at, syscall.MNT_DETACH) == nil {
			removed = append(removed, "the mount "+at)
		}
	}
	return removed
}

// removeGroup removes a cgroup and those below it, in each hierarchy.
func removeGroup(group string) (removed []string) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		names, _ := filepath.Glob(top + group)
		for _, name := range names {
			var all []string
			_ = filepath.WalkDir(name, func(name string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, name)
				}
				return nil
			})
			for _, dir := range slices.Backward(all) {
				if syscall.Rmdir(dir) == nil && dir == name {
					removed = append(removed, "the cgroup "+name)
				}
			}
		}
	}
	return removed
}

// sharedFolders are the folders that tests make outside of their ground, because a sandbox
// has a /tmp of its own.
var sharedFolders = []string{"/var/tmp/brig-canary-*", "/var/tmp/brig-socket-*", "/var/tmp/brig-venv-*"}

// ClearShared removes what interrupted runs left outside of their grounds, unless another
// run may have made it.
func (g *Ground) ClearShared() (removed []string) {
	if !g.Alone {
		return nil
	}
	dead := func(name, prefix string) bool { // prefix, and the number of a process that ended
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), prefix), "-")
		pid, err := strconv.Atoi(number)
		return err == nil && syscall.Kill(pid, 0) != nil
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
	for _, pattern := range append(sharedFolders, race.Plant, race.Log+"*") {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if os.RemoveAll(name) == nil {
				removed = append(removed, name)
			}
		}
	}
	return removed
}
