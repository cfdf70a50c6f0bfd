package chaos

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Host inspects the resources of a data folder on this machine. It defines their names
// independently of the provider, so that the tests detect a provider that changes a name or leaves
// resources under an old name.
type Host struct {
	Dir   string // without symbolic links
	Group string // the parent cgroup of the sandboxes
}

// NewHost returns a Host for a data folder.
func NewHost(dir string) (*Host, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the data folder: %w", err)
	}
	return &Host{Dir: real, Group: Group(real)}, nil
}

// Group returns the parent cgroup of the sandboxes of a data folder. The path dir must not contain
// symbolic links, and need not exist.
func Group(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "/brig/" + hex.EncodeToString(sum[:6])
}

// Process describes a process on the machine, with the data from /proc.
type Process struct {
	PID, Parent int
	State       byte
	Cmdline     string // the arguments, separated by spaces
	Cgroups     string // the content of /proc/PID/cgroup
	argv        []string
}

// String describes a process in a list of leaks.
func (p Process) String() string {
	return fmt.Sprintf("process %d (%c, parent %d) %.120s", p.PID, p.State, p.Parent, p.Cmdline)
}

// name returns the base name of the program.
func (p Process) name() string {
	word, _, _ := strings.Cut(p.Cmdline, " ")
	return filepath.Base(word)
}

// These are the names of a sandbox's processes.
const (
	shimName   = "brig-shim"
	sentryName = "runsc-sandbox"
)

// Processes lists the processes of a data folder: those whose command line or executable refers to
// it, and those in its cgroup. It excludes this process, the given processes, and zombies that this
// process has not waited for.
func (h *Host) Processes(except ...int) []Process {
	var out []Process
	for _, pid := range processIDs() {
		if pid == os.Getpid() || slices.Contains(except, pid) {
			continue
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		p, ok := readProcess(pid)
		if !ok || !strings.Contains(p.Cmdline, h.Dir) && !strings.Contains(exe, h.Dir) && !strings.Contains(p.Cgroups, h.Group+"/") {
			continue
		}
		if p.State != 'X' && (p.State != 'Z' || p.Parent != os.Getpid()) {
			out = append(out, p)
		}
	}
	return out
}

// processIDs lists the IDs of all processes.
func processIDs() (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// readProcess reads a process from /proc. It returns false if the process has ended.
func readProcess(pid int) (Process, bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	// A process may end during the reads. If the first two files cannot be read, the
	// last one cannot be read either.
	cmdline, _ := os.ReadFile(dir + "cmdline")
	groups, _ := os.ReadFile(dir + "cgroup")
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Process{}, false
	}
	// The name, in parentheses, may contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	p := Process{PID: pid, State: fields[0][0], Cmdline: strings.ReplaceAll(string(cmdline), "\x00", " "), Cgroups: string(groups)}
	p.argv = strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	p.Parent, _ = strconv.Atoi(fields[1])
	return p, true
}

// Cgroups lists the cgroups of the sandboxes, in every hierarchy.
func (h *Host) Cgroups() []string {
	var out []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		names, _ := filepath.Glob(root + h.Group + "/*")
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && st.IsDir() {
				out = append(out, name)
			}
		}
	}
	return out
}

// Folders lists the directories of the sandboxes.
func (h *Host) Folders() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(h.Dir, "sandboxes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list folders of sandboxes: %w", err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// Mounts lists the mounts below the data folder, in every mount namespace that a process keeps
// alive.
func (h *Host) Mounts() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	seen := map[string]bool{}
	var out []string
	for _, d := range dirs {
		ns, err := os.Readlink(d + "/ns/mnt")
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		b, _ := os.ReadFile(d + "/mountinfo")
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, h.Dir) {
				out = append(out, ns+" "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// files lists the other files of the data folder, except SQLite's auxiliary files.
func (h *Host) files() []string {
	var out []string
	for _, pattern := range []string{"*", ".*", "bin/*", "bin/.*", "images/*", "images/.*"} {
		names, _ := filepath.Glob(filepath.Join(h.Dir, pattern))
		for _, name := range names {
			if !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") {
				out = append(out, strings.TrimPrefix(name, h.Dir+"/"))
			}
		}
	}
	return out
}

// findLeaks lists, by kind, the resources that still exist although no server runs
// and all sandboxes have been removed.
func (h *Host) findLeaks(before []string) map[string][]string {
	folders, err := h.Folders()
	if err != nil {
		folders = []string{err.Error()} // treat an error as a leak, because the directories may exist
	}
	out := map[string][]string{"cgroups": h.Cgroups(), "mounts": h.Mounts(), "folders": folders}
	for _, p := range h.Processes() {
		out["processes"] = append(out["processes"], p.String())
	}
	for _, f := range h.files() {
		if !slices.Contains(before, f) {
			out["files"] = append(out["files"], f)
		}
	}
	return out
}

// hasNoLeaks reports whether there are no leaks.
func hasNoLeaks(leaks map[string][]string) bool {
	for _, list := range leaks {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

// resourceUsage is the resource usage of a server process.
type resourceUsage struct {
	Descriptors int   `json:"descriptors"`
	RSS         int64 `json:"rss_bytes"`
	Threads     int   `json:"threads"`
}

func resourceUsageOf(pid int) (u resourceUsage) {
	dir := "/proc/" + strconv.Itoa(pid)
	fds, _ := os.ReadDir(dir + "/fd")
	u.Descriptors = len(fds)
	b, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(b)) {
		var n int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &n); err == nil {
			u.RSS = n << 10
		}
		if _, err := fmt.Sscanf(line, "Threads: %d", &n); err == nil {
			u.Threads = int(n)
		}
	}
	return u
}
