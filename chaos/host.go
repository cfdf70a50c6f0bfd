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

// Host looks at what belongs to a data folder on this machine. How that is
// named is written down here once more, so that a provider that changes a
// name, or forgets what has an older one, is noticed.
type Host struct {
	Dir   string // without symbolic links
	Group string // the cgroup above those of its sandboxes
}

// NewHost returns a Host for a data folder.
func NewHost(dir string) (*Host, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the data folder: %w", err)
	}
	sum := sha256.Sum256([]byte(real))
	return &Host{Dir: real, Group: "/brig/" + hex.EncodeToString(sum[:6])}, nil
}

// Process is one of the machine's, as /proc shows it.
type Process struct {
	PID, Parent int
	State       byte
	Cmdline     string // its words, separated by spaces
	Cgroups     string // its line in each hierarchy
}

// String names a process in a list of leaks.
func (p Process) String() string {
	return fmt.Sprintf("process %d (%c, parent %d) %.120s", p.PID, p.State, p.Parent, p.Cmdline)
}

// name is the program, without its folder.
func (p Process) name() string {
	word, _, _ := strings.Cut(p.Cmdline, " ")
	return filepath.Base(word)
}

// The names of the processes that a sandbox is made of.
const (
	shimName   = "brig-shim"
	sentryName = "runsc-sandbox"
)

// Processes lists the processes that belong to a data folder: those whose
// command line or program is in it, and those in its cgroup. This process and
// the given ones do not count, and neither do zombies that this process itself
// has not waited for.
func (h *Host) Processes(except ...int) []Process {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	var out []Process
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() || slices.Contains(except, pid) {
			continue
		}
		// Each may end while it is looked at; what cannot be read is gone.
		cmdline, _ := os.ReadFile(d + "/cmdline")
		exe, _ := os.Readlink(d + "/exe")
		groups, _ := os.ReadFile(d + "/cgroup")
		p := Process{PID: pid, Cmdline: strings.ReplaceAll(string(cmdline), "\x00", " "), Cgroups: string(groups)}
		if !strings.Contains(p.Cmdline, h.Dir) && !strings.Contains(exe, h.Dir) && !strings.Contains(p.Cgroups, h.Group+"/") {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		p.State = fields[0][0]
		p.Parent, _ = strconv.Atoi(fields[1])
		if p.State != 'X' && (p.State != 'Z' || p.Parent != os.Getpid()) {
			out = append(out, p)
		}
	}
	return out
}

// Cgroups lists the groups of the sandboxes, in every hierarchy.
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

// Folders lists the sandboxes' folders.
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

// Mounts lists the mounts below the data folder, in every mount namespace that
// a process keeps alive.
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

// files lists what else is in the data folder, but for what SQLite has beside
// its file.
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

// leaks lists by kind what there is although no server runs and no sandbox
// was left.
func (h *Host) leaks(before []string) map[string][]string {
	folders, err := h.Folders()
	if err != nil {
		folders = []string{err.Error()} // what cannot be seen may be there
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

// none reports whether there are no leaks.
func none(leaks map[string][]string) bool {
	for _, list := range leaks {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

// usage is what a server's process holds.
type usage struct {
	Descriptors int   `json:"descriptors"`
	RSS         int64 `json:"rss_bytes"`
	Threads     int   `json:"threads"`
}

func usageOf(pid int) (u usage) {
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
