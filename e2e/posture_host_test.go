package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig/image"
)

// What gVisor leaves to the processes of a sandbox. With directfs the sentry
// opens the image's files by itself, from directories that it was handed, and
// keeps what files of any owner take: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH,
// FOWNER and FSETID, beside its own SYS_PTRACE. They
// are the host's own, so what counts is all that is below: an empty root, a
// seccomp filter, and no descriptor that leads anywhere else.
var leftCapabilities = map[string]string{
	"sentry": "000000000008001f",
	"stub":   "000000000008001f",
}

// The processes of a sandbox, seen from the host.
//
//suite:part hostile
func TestPostureFromHost(t *testing.T) {
	needRoot(t)
	secret := rand.Text()
	t.Setenv("BRIG_E2E_SECRET", secret)
	before := hostMounts(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "outside", nil)
	m.sh("user", "sleep 60 >/dev/null 2>&1 & sleep 0.1")
	if after := hostMounts(t); after != before {
		t.Errorf("the host's mount table changed: before\n%s\nafter\n%s", before, after)
	}
	img, err := images.Resolve(t.Context(), "host")
	if err != nil {
		t.Fatal(err)
	}
	root, err := images.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, pid := range m.pids() {
		r := role(pid)
		seen[r]++
		t.Run(fmt.Sprintf("%s-%d", r, pid), func(t *testing.T) {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil || strings.Contains(string(env), secret) {
				t.Errorf("its environment: %q, %v", env, err)
			}
			for _, kv := range strings.Split(strings.TrimRight(string(env), "\x00"), "\x00") {
				if k, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"", "PATH", "RUNSC_START_TIME", "GODEBUG", "GOMAXPROCS", "GORACE"}, k) {
					t.Errorf("its environment has %s", kv)
				}
			}
			listensOnTCP(t, pid)
			if r == "shim" {
				for _, ns := range []string{"mnt", "net"} {
					apart(t, pid, ns)
				}
				return
			}
			s := statusOf(pid)
			if s["Seccomp"] != "2" || s["NoNewPrivs"] != "1" {
				t.Errorf("seccomp %s, no-new-privileges %s", s["Seccomp"], s["NoNewPrivs"])
			}
			want := leftCapabilities[r]
			for _, set := range []string{"CapPrm", "CapEff"} {
				if s[set] != want {
					t.Errorf("%s is %s, want %s", set, s[set], want)
				}
			}
			for _, ns := range []string{"mnt", "net", "pid", "ipc", "uts"} {
				apart(t, pid, ns)
			}
			leadNowhere(t, pid, m.dir, bin(t, "brig-agent"), root)
			leadUp(t, pid, false)
		})
	}
	leadUp(t, os.Getpid(), true) // the control: this test's own folder does
	for _, r := range []string{"shim", "sentry", "stub"} {
		if seen[r] == 0 {
			t.Errorf("no %s among %v", r, seen)
		}
	}
	if len(seen) > 3 {
		t.Errorf("more than a sandbox needs: %v", seen)
	}
}

func hostMounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// apart fails unless a process is in another namespace than this one.
func apart(t *testing.T, pid int, ns string) {
	t.Helper()
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
	ours, err2 := os.Readlink("/proc/self/ns/" + ns)
	if err != nil || err2 != nil || theirs == ours {
		t.Errorf("its %s namespace is the host's: %s, %v, %v", ns, theirs, err, err2)
	}
}

// leadNowhere fails if a process has a file open that is not its sandbox's.
func leadNowhere(t *testing.T, pid int, dir, agent string, root image.Root) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil {
			continue // closed meanwhile
		}
		kind, _, _ := strings.Cut(link, ":")
		quota := "/brig/" // of the sandbox's own cgroup, read for counting processors
		switch {
		case slices.Contains([]string{"socket", "pipe", "anon_inode", "/dev/null", "/memfd"}, kind):
		case strings.HasPrefix(link, dir+"/"):
		case link == "/" && !sameFile(fd, "/"): // a mount that is nowhere else
		case readOnly(pid, fd) && (link == agent || ofImage(fd, link, root)):
		case readOnly(pid, fd) && strings.Contains(link, quota) && strings.Contains(link, "/"+filepath.Base(dir)+"/cpu."):
		default:
			if again, err := os.Readlink(fd); err == nil && again == link {
				t.Errorf("%s leads to %s", fd, link)
			}
		}
	}
}

// leadUp looks whether the way up from a folder that a process has open leads to
// the host's root.
func leadUp(t *testing.T, pid int, want bool) {
	t.Helper()
	if want {
		d, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, fd := range fds {
		if sameFile(fd+strings.Repeat("/..", 20), "/") {
			found = fd
		}
	}
	if (found != "") != want {
		t.Errorf("a way up to the host's root: %q, want one: %v", found, want)
	}
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// readOnly reports whether a process cannot write to its descriptor.
func readOnly(pid int, fd string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(fd)))
	if err != nil {
		return true // closed meanwhile
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err == nil && flags&3 == 0 // O_RDONLY, or a path only
		}
	}
	return false
}

// ofImage reports whether a descriptor is a file of the image. Its name is that
// below the mount that it is in; which file it is, the inode tells.
func ofImage(fd, name string, root image.Root) bool {
	places := []string{root.Dir + name}
	for _, b := range root.Binds {
		places = append(places, b.Source+name)
	}
	for _, p := range places {
		// A link is opened as itself: the descriptor's own inode counts.
		have, err := os.Lstat(p)
		if st, err2 := os.Stat(fd); err == nil && err2 == nil && os.SameFile(st, have) || sameFile(fd, p) {
			return true
		}
	}
	return false
}

// listensOnTCP fails if one of a process's sockets does.
func listensOnTCP(t *testing.T, pid int) {
	t.Helper()
	for _, name := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			if w := strings.Fields(line); i > 0 && len(w) > 3 && w[3] == "0A" {
				t.Errorf("it can be reached over TCP: %s", line)
			}
		}
	}
}
