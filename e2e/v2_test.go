package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// A sandbox takes seconds to start on an emulated CPU, and the virtual machine starts about
// twenty. This takes 100 seconds on an idle host, and twice as long while the rest of the suite
// runs.
const (
	v2BootTime = 3 * time.Minute
	v2Time     = 15 * time.Minute
)

// v2Step is the result of one step of testdata/v2/script.
type v2Step struct {
	code int
	out  string
}

// TestCgroupV2 verifies limits and verdicts on cgroup v2. The checks run in a small virtual
// machine, because the host may lack cgroup v2, and the test examines their output.
//
//suite:part install full
func TestCgroupV2(t *testing.T) {
	steps := bootV2(t)
	step := func(name string, code int) string {
		t.Helper()
		s, ok := steps[name]
		if !ok {
			t.Fatalf("step %s did not happen", name)
		}
		if s.code != code {
			t.Errorf("step %s: exit code %d, want %d: %s", name, s.code, code, s.out)
		}
		return s.out
	}
	doctor := step("doctor", 0)
	for _, want := range []string{`(?m)^ok +kernel .*cgroup v2$`, `(?m)^ok +limits .*by cgroup v2$`, `(?m)^ok +python `} {
		if !regexp.MustCompile(want).MatchString(doctor) {
			t.Errorf("doctor does not say %s: %s", want, doctor)
		}
	}
	if out := step("answer", 0); out != "42" {
		t.Errorf("answer %q", out)
	}
	// The two programs of each pair ran concurrently: one ran out of memory, and the other killed
	// itself. Both exited with code 137.
	for i := range 5 {
		for name, oom := range map[string]bool{"oom": true, "kill": false} {
			name += strconv.Itoa(i + 1)
			var o struct {
				OOMKilled bool `json:"oom_killed"`
				Error     *struct{ Code string }
			}
			out := step(name, 137)
			if err := json.Unmarshal([]byte(out), &o); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
				continue
			}
			if o.OOMKilled != oom || (o.Error != nil && o.Error.Code == "SB006") != oom {
				t.Errorf("%s: out of memory must be %v: %s", name, oom, out)
			}
		}
	}
	if out := step("delegated", 0); out != "memory+pids\n42" {
		t.Errorf("without the cpu controller: %q", out)
	}
	step("timeout", 124)
	limits := step("limits", 0)
	for _, want := range []string{
		"cpu.max 50000 100000", fmt.Sprint("memory.max ", 128*brig.MiB),
		"memory.swap.max 0", "memory.oom.group 1", "members yes",
		"processes seen", "folders seen",
	} {
		if !strings.Contains("\n"+limits+"\n", "\n"+want+"\n") {
			t.Errorf("while it runs, %q is not among: %s", want, limits)
		}
	}
	serve := step("serve", 0)
	for _, want := range []string{"said in box", "exec 137", `"reason": "out_of_memory"`} {
		if !strings.Contains(serve, want) {
			t.Errorf("serve: no %q in %s", want, serve)
		}
	}
	// The attestation reads the limits back from the files of this hierarchy.
	for _, want := range []string{`(?m)^memory +boundary +cgroup v2 `, `(?m)^cpus +boundary +cgroup v2 `, `(?m)^processes +boundary .*cgroup v2 `} {
		if !regexp.MustCompile(want).MatchString(serve) {
			t.Errorf("the attestation does not say %s: %s", want, serve)
		}
	}
	for _, name := range []string{"processes", "folders", "end"} {
		if out := step(name, 0); out != "" {
			t.Errorf("%s left: %s", name, out)
		}
	}
}

// v2Kernel returns the directory of the kernel and its modules, which .ci/setup creates.
func v2Kernel(t *testing.T) string {
	t.Helper()
	needRoot(t) // the virtual machine reads host files that only root may read
	if runtime.GOARCH != "amd64" {
		t.Skip("the machine's kernel is for amd64")
	}
	dir := os.Getenv("BRIG_V2_KERNEL")
	if dir == "" {
		dir = "/var/cache/brig-test/v2"
	}
	modules, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil || len(modules) == 0 {
		t.Skipf("no kernel modules in %s (make setup fetches them)", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "vmlinuz")); err != nil {
		t.Skipf("no kernel (make setup fetches it): %v", err)
	}
	return dir
}

// bootV2 starts the virtual machine, waits until it has shut down, and returns
// the results of its steps.
func bootV2(t *testing.T) map[string]v2Step {
	t.Helper()
	kernel := v2Kernel(t)
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("no qemu-system-x86_64 (make setup installs it)")
	}
	brigDir := filepath.Dir(bin(t, "brig"))
	dir := t.TempDir()
	initrd, console, results := filepath.Join(dir, "initrd"), filepath.Join(dir, "console"), filepath.Join(dir, "results")
	if err := os.WriteFile(initrd, v2Initramfs(t, kernel), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), v2Time)
	defer cancel()
	share := func(tag, path string) string {
		return fmt.Sprintf("local,path=%s,mount_tag=%s,security_model=none,readonly=on", strings.ReplaceAll(path, ",", ",,"), tag)
	}
	// Emulate the CPU even if the host has /dev/kvm: a nested virtual machine may hang with KVM,
	// and with two modes, neither would be tested sufficiently.
	cmd := exec.CommandContext(ctx, qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:"+console, "-serial", "file:"+results,
		"-kernel", filepath.Join(kernel, "vmlinuz"), "-initrd", initrd, "-append", "console=ttyS0 loglevel=1 panic=-1",
		"-virtfs", share("usr", "/usr"), "-virtfs", share("brig", brigDir))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	booted := time.AfterFunc(v2BootTime, func() {
		if b, err := os.ReadFile(results); err != nil || !bytes.Contains(b, []byte("@@ booted")) {
			cancel()
		}
	})
	err = cmd.Wait()
	booted.Stop()
	log, _ := os.ReadFile(console)
	b, readErr := os.ReadFile(results)
	if err != nil || readErr != nil {
		t.Fatalf("the machine ended after %v: %v %v %s\n%s\n%s", time.Since(start), err, readErr, &errs, b, log)
	}
	t.Logf("the machine ran for %v", time.Since(start))
	steps := parseV2(string(b))
	if _, ok := steps["end"]; !ok {
		t.Fatalf("the machine did not come to its end: %s\n%s", b, log)
	}
	return steps
}

func parseV2(results string) map[string]v2Step {
	steps := map[string]v2Step{}
	for _, part := range strings.Split("\n"+strings.ReplaceAll(results, "\r", ""), "\n@@ ")[1:] {
		head, out, _ := strings.Cut(part, "\n")
		name, code, _ := strings.Cut(head, " ")
		n, err := strconv.Atoi(code)
		if err != nil {
			n = -1
		}
		steps[name] = v2Step{n, strings.TrimSpace(out)}
	}
	return steps
}

// v2Initramfs packs the files that the virtual machine boots with: busybox, the
// kernel's modules, and the two scripts of testdata/v2.
func v2Initramfs(t *testing.T, kernel string) []byte {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox (make setup installs it)")
	}
	f, err := elf.Open(busybox)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Section(".interp") != nil {
		t.Skip("busybox is not static (make setup installs busybox-static)")
	}
	a := &cpio{t: t}
	for _, name := range []string{"bin", "modules", "proc", "dev"} {
		a.add(name, 0o040755, nil)
	}
	a.file("bin/busybox", busybox)
	a.add("bin/sh", 0o120777, []byte("busybox"))
	a.file("init", "testdata/v2/init")
	a.file("script", "testdata/v2/script")
	modules, err := filepath.Glob(filepath.Join(kernel, "*.ko"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		a.file("modules/"+filepath.Base(m), m)
	}
	a.add("TRAILER!!!", 0, nil)
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(a.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// cpio is an archive in the format that the kernel unpacks at boot.
type cpio struct {
	bytes.Buffer
	t *testing.T
	n int
}

func (a *cpio) file(name, from string) {
	a.t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		a.t.Fatal(err)
	}
	a.add(name, 0o100755, b)
}

func (a *cpio) add(name string, mode int, content []byte) {
	a.n++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x", a.n, mode, 0, 0, 1, 0, len(content))
	fmt.Fprintf(a, "%08x%08x%08x%08x%08x%08x%s\x00", 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(content)
	a.pad()
}

// pad pads the archive to a multiple of four bytes, as the format requires after every part.
func (a *cpio) pad() { a.Write(make([]byte, -a.Len()&3)) }
