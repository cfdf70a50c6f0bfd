package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// arm64Timeout is the time limit for the arm64 virtual machine. Its CPU is emulated, so it takes
// two minutes on a busy host.
const arm64Timeout = 10 * time.Minute

// arm64Kernel returns the directory with a kernel and a busybox for arm64, which .ci/setup
// creates.
func arm64Kernel(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("BRIG_ARM64_KERNEL")
	if dir == "" {
		dir = "/var/cache/brig-test/arm64"
	}
	for _, name := range []string{"vmlinuz", "busybox"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Skipf("no machine for arm64 (make setup fetches it): %v", err)
		}
	}
	return dir
}

// arm64Program unpacks the arm64 program of the release, and returns its path.
func arm64Program(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	output(t, "tar", "-xzf", madeOf(t, releaseFolder(t), "brig_*_linux_arm64.tar.gz"), "-C", root, "--strip-components=1")
	program := filepath.Join(root, "brig")
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != elf.EM_AARCH64 {
		t.Fatalf("it is for %v", f.Machine)
	}
	return program
}

// TestReleaseForArm64 verifies that the release's arm64 program can run sandboxes, in a virtual
// machine with an emulated CPU and cgroup v2.
//
//suite:part install full
func TestReleaseForArm64(t *testing.T) {
	program, kernel := arm64Program(t), arm64Kernel(t)
	qemu, err := exec.LookPath("qemu-system-aarch64")
	if err != nil {
		t.Skip("no qemu-system-aarch64 (make setup installs it)")
	}
	steps := bootArm64(t, qemu, kernel, program)
	for name, want := range map[string]string{
		"booted": `^aarch64$`, "version": `linux/arm64$`, "image": `sha256:`, "run": `gvisor.* aarch64 `, "user": `^42\n1000$`, "serve": `(?m)^aarch64$`,
	} {
		if s, ok := steps[name]; !ok || s.code != 0 || !regexp.MustCompile(want).MatchString(s.out) {
			t.Errorf("%s: %+v, want %s", name, s, want)
		}
	}
	if s := steps["memory"]; s.code != 137 || !strings.Contains(s.out, "SB006") {
		t.Errorf("a program that uses too much memory: %+v", s)
	}
}

// bootArm64 starts the virtual machine, waits until it has shut down, and returns
// the results of its steps.
func bootArm64(t *testing.T, qemu, kernel, program string) map[string]v2Step {
	t.Helper()
	a := &cpio{t: t}
	for _, name := range []string{"bin", "proc", "dev"} {
		a.add(name, 0o040755, nil)
	}
	a.file("bin/busybox", filepath.Join(kernel, "busybox"))
	a.add("bin/sh", 0o120777, []byte("busybox"))
	a.file("bin/brig", program)
	a.file("init", "testdata/arm64/init")
	a.file("script", "testdata/arm64/script")
	a.add("TRAILER!!!", 0, nil)
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(a.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	initrd, console := filepath.Join(dir, "initrd"), filepath.Join(dir, "console")
	if err := os.WriteFile(initrd, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), arm64Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-M", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "4096",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "file:"+console,
		"-kernel", filepath.Join(kernel, "vmlinuz"), "-initrd", initrd, "-append", "console=ttyAMA0 quiet loglevel=0 panic=-1")
	out, err := cmd.CombinedOutput()
	log, readErr := os.ReadFile(console)
	steps := parseV2(string(log))
	if _, ok := steps["end"]; !ok {
		t.Fatalf("the machine did not come to its end: %v, %v: %s\n%s", err, readErr, out, log)
	}
	return steps
}
