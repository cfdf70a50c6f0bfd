package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnmounter verifies that the unmounter waits for a byte, unmounts the
// given directory, and reports the result in its exit status.
func TestUnmounter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	path, err := unmounter()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := func(dir string) (*exec.Cmd, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd := exec.Command(path, "umount", "--sync-fd=3", dir)
		cmd.ExtraFiles = []*os.File{r}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, w
	}
	mounted := func(dir string) bool {
		b, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(b), " "+dir+" ")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Skip("cannot mount here: ", err)
	}
	cmd, w := start(dir)
	if !mounted(dir) {
		t.Error("unmounted before it was told to")
	}
	w.Write([]byte{0})
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if mounted(dir) {
		t.Error("still mounted")
		unix.Unmount(dir, unix.MNT_DETACH)
	}

	cmd, w = start(dir) // the directory is no longer mounted
	w.Write([]byte{0})
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).ExitStatus() != 1 {
		t.Errorf("unmounting what is not mounted: %v", err)
	}
	cmd, w = start(dir)
	w.Close()
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).ExitStatus() != 1 {
		t.Errorf("told nothing: %v", err)
	}
}
