package chaos

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// host looks at what belongs to a data folder on this machine. How that is
// named is written down here once more, so that a provider that changes a
// name, or forgets what has an older one, is noticed.
type host struct{ dir, group string }

func newHost(dir string) (*host, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the data folder: %w", err)
	}
	sum := sha256.Sum256([]byte(real))
	return &host{dir: real, group: "/brig/" + hex.EncodeToString(sum[:6])}, nil
}

// process is one of the data folder's.
type process struct {
	pid  int
	name string // the first word of its command line
	all  string // its command line and cgroups
}

// The names of the processes that a sandbox is made of.
const (
	shimName   = "brig-shim"
	sentryName = "runsc-sandbox"
	goferName  = "runsc-gofer"
)

// processes lists the processes that work for a data folder, apart from some.
func (h *host) processes(except ...int) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	var out []process
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() || slices.Contains(except, pid) {
			continue
		}
		// Each may end while it is looked at; what cannot be read is gone.
		cmdline, _ := os.ReadFile(d + "/cmdline")
		groups, _ := os.ReadFile(d + "/cgroup")
		if !bytes.Contains(cmdline, []byte(h.dir)) && !bytes.Contains(groups, []byte(h.group+"/")) {
			continue
		}
		if stat, err := os.ReadFile(d + "/stat"); err != nil || bytes.Contains(stat, []byte(") X ")) {
			continue
		}
		name, _, _ := bytes.Cut(cmdline, []byte{0})
		all := strings.ReplaceAll(string(cmdline), "\x00", " ")
		out = append(out, process{pid: pid, name: filepath.Base(string(name)), all: all + " " + string(groups)})
	}
	return out
}

// cgroups lists the groups of the sandboxes, in every hierarchy.
func (h *host) cgroups() []string {
	var out []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		names, _ := filepath.Glob(root + h.group + "/*")
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && st.IsDir() {
				out = append(out, name)
			}
		}
	}
	return out
}

// folders lists the sandboxes' folders.
func (h *host) folders() []string {
	entries, _ := os.ReadDir(filepath.Join(h.dir, "sandboxes"))
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// mounts lists the mounts below the data folder, in every mount namespace that
// a process keeps alive.
func (h *host) mounts() []string {
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
			if strings.Contains(line, h.dir) {
				out = append(out, ns+" "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// files lists what else is in the data folder, but for what SQLite has beside
// its file.
func (h *host) files() []string {
	var out []string
	for _, pattern := range []string{"*", ".*", "bin/*", "bin/.*", "images/*", "images/.*"} {
		names, _ := filepath.Glob(filepath.Join(h.dir, pattern))
		for _, name := range names {
			if !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") {
				out = append(out, strings.TrimPrefix(name, h.dir+"/"))
			}
		}
	}
	return out
}

// leaks lists by kind what there is although no server runs and no sandbox
// was left.
func (h *host) leaks(before []string) map[string][]string {
	out := map[string][]string{"cgroups": h.cgroups(), "mounts": h.mounts(), "folders": h.folders()}
	for _, p := range h.processes() {
		out["processes"] = append(out["processes"], fmt.Sprintf("%d %.120s", p.pid, p.all))
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
