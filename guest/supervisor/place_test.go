package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A read-only bind mount stays read-only if its flags cannot be removed, as in
// an unprivileged container.
func TestBindLocked(t *testing.T) {
	const role = "BRIG_TEST_BIND"
	if dir := os.Getenv(role); dir != "" {
		to := filepath.Join(dir, "to")
		if err := bind(filepath.Join(dir, "from"), to, syscall.MS_RDONLY|syscall.MS_NOSUID); err != nil {
			t.Errorf("it is not shown: %v", err)
		}
		if _, err := os.ReadFile(filepath.Join(to, "file")); err != nil {
			t.Errorf("it is not shown: %v", err)
		}
		if os.WriteFile(filepath.Join(to, "file"), []byte("x"), 0o600) == nil {
			t.Error("it can be written to")
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to make mounts")
	}
	dir := t.TempDir()
	// The inner user namespace does not own the mounts of the outer one.
	script := `mkdir from to && mount -t tmpfs -o nodev,noexec,mode=777 tmpfs from && echo text > from/file && exec unshare -Urm "$0" -test.run '^TestBindLocked$'`
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "/bin/sh", "-ec", script, self)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), role+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
