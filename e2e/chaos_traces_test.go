package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/gvisor"
)

// groupOf is the cgroup above those of a data folder's sandboxes. It is
// written down here once more, so that a provider that changes the name, or
// forgets groups of an older one, is noticed.
func groupOf(t testing.TB, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(real))
	return "/brig/" + hex.EncodeToString(sum[:6])
}

// dataDirOf is the data folder of an engine on gVisor.
func dataDirOf(t testing.TB, e *engine.Engine) string {
	t.Helper()
	p, ok := e.Provider.(*gvisor.Provider)
	if !ok {
		t.Fatal("the engine's provider is not gVisor")
	}
	return p.DataDir
}

// dataDir is a data folder from which, when the test is over and its servers
// are dead, everything is removed, so that a test that fails leaves nothing
// running either.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p, _ := newProvider(t, dir)
	t.Cleanup(func() {
		if _, err := p.Sweep(context.WithoutCancel(t.Context()), nil); err != nil {
			t.Errorf("sweep: %v", err)
		}
	})
	return dir
}

// process is one of the host's, as /proc shows it.
type process struct {
	pid, parent int
	state       byte
	cmdline     string
}

// String names a process in a list of leaks.
func (p process) String() string {
	return fmt.Sprintf("process %d (%c, parent %d) %.120s", p.pid, p.state, p.parent, p.cmdline)
}

// processes lists the host's processes that belong to a data folder: those
// whose command line or program is in it, and those in its cgroup. The test's
// own process and the given ones do not count, and neither do zombies that
// the test itself has not waited for.
func processes(t testing.TB, dir string, except ...int) []process {
	t.Helper()
	group := groupOf(t, dir)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []process
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() || slices.Contains(except, pid) {
			continue
		}
		// Each may end while it is looked at; what cannot be read is gone.
		cmdline, _ := os.ReadFile(d + "/cmdline")
		exe, _ := os.Readlink(d + "/exe")
		groups, _ := os.ReadFile(d + "/cgroup")
		if !strings.Contains(string(cmdline), dir) && !strings.Contains(exe, dir) && !strings.Contains(string(groups), group+"/") {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		p := process{pid: pid, cmdline: strings.ReplaceAll(string(cmdline), "\x00", " ")}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		p.state = fields[0][0]
		p.parent, _ = strconv.Atoi(fields[1])
		if p.state != 'X' && (p.state != 'Z' || p.parent != os.Getpid()) {
			out = append(out, p)
		}
	}
	return out
}

// cgroups lists the cgroups of a data folder's sandboxes, in every hierarchy.
func cgroups(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		names, err := filepath.Glob(root + groupOf(t, dir) + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && st.IsDir() {
				out = append(out, name)
			}
		}
	}
	return out
}

// folders lists the folders of a data folder's sandboxes.
func folders(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// mounts lists the mounts under a data folder, in every mount namespace that
// a process keeps alive.
func mounts(t testing.TB, dir string) []string {
	t.Helper()
	seen := map[string]bool{}
	var out []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		ns, err := os.Readlink(d + "/ns/mnt")
		if err != nil || seen[ns] {
			continue
		}
		seen[ns] = true
		b, _ := os.ReadFile(d + "/mountinfo")
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, dir) {
				out = append(out, ns+" "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// traces lists everything on the host that belongs to sandboxes of a data
// folder: processes, cgroups, mounts and folders.
func traces(t testing.TB, dir string, except ...int) []string {
	t.Helper()
	var out []string
	for _, p := range processes(t, dir, except...) {
		out = append(out, p.String())
	}
	for _, g := range cgroups(t, dir) {
		out = append(out, "cgroup "+g)
	}
	for _, m := range mounts(t, dir) {
		out = append(out, "mount "+m)
	}
	for _, f := range folders(t, dir) {
		out = append(out, "folder "+f+": "+strings.Join(filesIn(filepath.Join(dir, "sandboxes", f)), " "))
	}
	return out
}

// filesIn names what is in a folder, for a report.
func filesIn(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(name, dir+"/"))
		}
		return nil
	})
	return out
}

// goneWithin is how long the host may take to forget a sandbox.
const goneWithin = 2 * time.Second

// wantNoTraces fails the test unless, within goneWithin, nothing is left of
// any sandbox of a data folder.
func wantNoTraces(t testing.TB, dir string, except ...int) {
	t.Helper()
	start := time.Now()
	var left []string
	for time.Since(start) < goneWithin {
		if left = traces(t, dir, except...); len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%v later %d things are left:\n%s", goneWithin, len(left), strings.Join(left, "\n"))
}

// wantOnlyPool fails the test unless what a server with nothing to do has on
// the host is exactly what waits in its pool.
func wantOnlyPool(t *testing.T, srv *server) {
	t.Helper()
	svc, why := srv.client(), ""
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		shelves, err := svc.Pool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ready, making := 0, 0
		for _, s := range shelves {
			ready, making = ready+s.Ready, making+s.Making
		}
		have := folders(t, srv.dir)
		why = fmt.Sprintf("%d wait, %d are being made, and there are folders %v", ready, making, have)
		if making > 0 || len(have) != ready {
			continue
		}
		stranger := func(text string) bool {
			return !slices.ContainsFunc(have, func(id string) bool { return strings.Contains(text, id) })
		}
		if i := slices.IndexFunc(cgroups(t, srv.dir), stranger); i >= 0 {
			why += ", and a cgroup " + cgroups(t, srv.dir)[i]
			continue
		}
		if i := slices.IndexFunc(processes(t, srv.dir, srv.cmd.Process.Pid), func(p process) bool {
			groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
			return stranger(p.cmdline + string(groups))
		}); i >= 0 {
			why += fmt.Sprintf(", and one of %v", processes(t, srv.dir, srv.cmd.Process.Pid))
			continue
		}
		return
	}
	t.Error(why)
}
