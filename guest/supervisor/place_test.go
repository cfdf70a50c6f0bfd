package supervisor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A read-only bind mount stays read-only if its flags cannot be removed, as in
// an unprivileged container.
func TestBindKeepsLockedFlags(t *testing.T) {
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
	script := `mkdir from to && mount -t tmpfs -o nodev,noexec,mode=777 tmpfs from && echo text > from/file && exec unshare -Urm "$0" -test.run '^TestBindKeepsLockedFlags$'`
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

// The copy of /etc of an unprivileged machine is in memory. On the disk, each machine would create
// and remove a thousand files.
func TestEtcIsInMemory(t *testing.T) {
	const role = "BRIG_TEST_ETC"
	if dir := os.Getenv(role); dir != "" {
		if err := (initConfig{Dir: dir, Plain: true}).bindRoot(filepath.Join(dir, "root")); err != nil {
			t.Fatal(err)
		}
		var disk, etc syscall.Statfs_t
		if err := errors.Join(syscall.Statfs(dir, &disk), syscall.Statfs(filepath.Join(dir, "root/etc"), &etc)); err != nil {
			t.Fatal(err)
		}
		const tmpfs = 0x01021994
		if etc.Type != tmpfs || etc.Fsid == disk.Fsid {
			t.Errorf("/etc is on a file system of type %x", etc.Type)
		}
		original, err := os.ReadFile("/etc/passwd")
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "root/etc/passwd")
		if b, err := os.ReadFile(copied); err != nil || !bytes.Equal(b, original) {
			t.Errorf("the copy of /etc/passwd has %d of %d bytes, %v", len(b), len(original), err)
		}
		if err := os.WriteFile(copied, []byte("changed"), 0o600); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile("/etc/passwd"); err != nil || !bytes.Equal(b, original) {
			t.Errorf("a change of the copy changes the original: %v", err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to make mounts")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "--propagation", "private", self, "-test.run", "^TestEtcIsInMemory$")
	cmd.Env = append(os.Environ(), role+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
