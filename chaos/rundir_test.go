package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestLeftoversOfInterruptedRunAreRemoved checks that a run removes the processes, mounts and
// cgroups of an interrupted run, but nothing of a run in progress.
func TestLeftoversOfInterruptedRunAreRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	parent := filepath.Join(t.TempDir(), "link") // as TMPDIR may be
	if err := os.Symlink(t.TempDir(), parent); err != nil {
		t.Fatal(err)
	}
	first, removed, err := LockRunDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(removed) > 0 {
		t.Errorf("an empty folder had %q", removed)
	}
	data := filepath.Join(first.Path, "TestX1", "001")
	mount := filepath.Join(data, "sandboxes", "box", "root")
	if err := os.MkdirAll(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", mount, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	group := "/sys/fs/cgroup/pids" + Group(data)
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err != nil {
		group = "/sys/fs/cgroup" + Group(data)
	}
	if err := os.MkdirAll(group+"/box", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(group + "/box"); os.Remove(group) })
	start := func(env string) *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		cmd.Env = []string{env}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	ours := start("TMPDIR=" + first.Path)
	inGroup := start("X=1")
	if err := os.WriteFile(group+"/box/cgroup.procs", []byte(strconv.Itoa(inGroup.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	control := start("TMPDIR=" + first.Path + "0")

	// While the first run continues, another one takes the next directory and removes nothing.
	second, removed, err := LockRunDir(parent)
	if err != nil || second.Path == first.Path || len(removed) > 0 {
		t.Fatalf("beside the first run: %+v, removed %q, %v", second, removed, err)
	}
	if list, err := second.Release(); err != nil || len(list) > 0 {
		t.Errorf("the second run left %q, %v", list, err)
	}

	first.lock.Close() // as if the run had been killed
	next, removed, err := LockRunDir(parent)
	if err != nil || next.Path != first.Path {
		t.Fatalf("after the interrupted run: %+v, %v", next, err)
	}
	all := strings.Join(removed, "\n")
	for _, want := range []string{strconv.Itoa(ours.Process.Pid), strconv.Itoa(inGroup.Process.Pid), "the mount " + mount, "the cgroup " + group} {
		if !strings.Contains(all, want) {
			t.Errorf("it did not remove %s:\n%s", want, all)
		}
	}
	if _, err := os.Stat(group); err == nil {
		t.Error("the cgroup is left")
	}
	if err := control.Process.Signal(syscall.Signal(0)); err != nil || strings.Contains(all, strconv.Itoa(control.Process.Pid)) {
		t.Errorf("it ended a process of somebody else: %v", err)
	}
	if entries, err := os.ReadDir(next.Path); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if list, err := next.Release(); err != nil || len(list) > 0 {
		t.Errorf("the last run left %q, %v", list, err)
	}
}
