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

// leftCapabilities are the capabilities that the host processes of a sandbox retain. With
// directfs, the sentry opens the image's files directly, below directories that it received as
// descriptors. It retains the capabilities to access files of any owner (CHOWN, DAC_OVERRIDE,
// DAC_READ_SEARCH, FOWNER and FSETID), in addition to its own SYS_PTRACE. These capabilities are
// effective on the host, so the protection depends on an empty root, a seccomp filter, and the
// absence of descriptors of other directories.
var leftCapabilities = map[string]string{
	"sentry": "000000000008001f",
	"stub":   "000000000008001f",
}

// TestHostProcessPrivileges verifies the privileges of a sandbox's host processes.
//
//suite:part hostile
func TestHostProcessPrivileges(t *testing.T) {
	if !runWithOwnMounts(t) { // other tests mount in the host's namespace
		return
	}
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
					checkNamespaceDiffers(t, pid, ns)
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
				checkNamespaceDiffers(t, pid, ns)
			}
			checkDescriptors(t, pid, m.dir, bin(t, "brig-agent"), root)
			checkParents(t, pid, false)
		})
	}
	checkParents(t, os.Getpid(), true) // the control: the parents of the test's own directory are reachable
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

// checkNamespaceDiffers fails the test if a process is in the same namespace as the test.
func checkNamespaceDiffers(t *testing.T, pid int, ns string) {
	t.Helper()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
	ours, err2 := os.Readlink("/proc/self/ns/" + ns)
	if err != nil || err2 != nil || namespace == ours {
		t.Errorf("its %s namespace is the host's: %s, %v, %v", ns, namespace, err, err2)
	}
}

// checkDescriptors fails the test if a process has open files that do not
// belong to its sandbox.
func checkDescriptors(t *testing.T, pid int, dir, agent string, root image.Root) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil {
			continue // closed concurrently
		}
		kind, _, _ := strings.Cut(link, ":")
		quota := "/brig/" // the quota file of the sandbox's own cgroup, which determines the number of CPUs
		switch {
		case slices.Contains([]string{"socket", "pipe", "anon_inode", "/dev/null", "/memfd"}, kind):
		case strings.HasPrefix(link, dir+"/"):
		case link == "/" && !sameFile(fd, "/"): // a mount that is not visible elsewhere
		case readOnly(pid, fd) && (link == agent || isImageFile(fd, link, root)):
		case readOnly(pid, fd) && strings.Contains(link, quota) && strings.Contains(link, "/"+filepath.Base(dir)+"/cpu."):
		default:
			if target, err := os.Readlink(fd); err == nil && target == link {
				t.Errorf("%s leads to %s", fd, link)
			}
		}
	}
}

// checkParents verifies whether the host's root is reachable through the parents of a directory
// that a process has open.
func checkParents(t *testing.T, pid int, want bool) {
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
		return true // closed concurrently
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err == nil && flags&3 == 0 // O_RDONLY, or a path only
		}
	}
	return false
}

// isImageFile reports whether a descriptor refers to a file of the image. It compares inodes,
// because the file's name is relative to its mount.
func isImageFile(fd, name string, root image.Root) bool {
	places := []string{root.Dir + name}
	for _, b := range root.Binds {
		places = append(places, b.Source+name)
	}
	for _, p := range places {
		// The sentry opens symbolic links without following them, so compare the link's own
		// inode, too.
		have, err := os.Lstat(p)
		if st, err2 := os.Stat(fd); err == nil && err2 == nil && os.SameFile(st, have) || sameFile(fd, p) {
			return true
		}
	}
	return false
}

// listensOnTCP fails the test if a process listens on a TCP socket.
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
