package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// systemd is the path of the systemd binary.
const systemd = "/lib/systemd/systemd"

// bootTimeout is the time limit for one boot, which takes 10 seconds on an idle machine.
const bootTimeout = 5 * time.Minute

// bootUnit runs a unit in a new systemd instance, runs the checks in
// testdata/unit/check, and returns their results.
func bootUnit(t *testing.T, unit string) map[string]v2Step {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat(systemd); err != nil {
		t.Skip("no systemd (make setup installs it)")
	}
	result, group := t.TempDir(), fmt.Sprintf("brig-unit-%d", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	script, err := filepath.Abs("testdata/unit/boot")
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs("../cmd/brig/brig.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "bash", script, "enter")
	cmd.Env = append(os.Environ(), "BRIG_GROUP="+group, "BRIG_GROUND="+t.TempDir(), "BRIG_RESULT="+result,
		"BRIG_BIN="+bin(t, "brig"), "BRIG_UNIT="+unit, "BRIG_CONFIG="+config, "BRIG_DATA_DIR=")
	cmd.WaitDelay = time.Second
	onCleanup(t, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // the processes in its PID namespace end, too
		}
		removeGroups(group)
	})
	out, runErr := cmd.CombinedOutput()
	b, err := os.ReadFile(filepath.Join(result, "out"))
	if err != nil {
		t.Fatalf("the checks did not run: %v, %v: %s", err, runErr, out)
	}
	steps := parseV2(string(b))
	if _, ok := steps["journal"]; !ok {
		t.Fatalf("the checks did not end: %v: %s\n%s", runErr, b, out)
	}
	return steps
}

// removeGroups removes a cgroup and its descendants in every hierarchy once its processes have
// ended.
func removeGroups(name string) {
	for range 100 {
		remaining := 0
		for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
			tops, _ := filepath.Glob(pattern)
			for _, top := range tops {
				// The option -depth removes subdirectories first.
				_ = exec.Command("find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
				if _, err := os.Stat(top); err == nil {
					remaining++
				}
			}
		}
		if remaining == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestServiceUnitRunsSandboxes runs the service unit with a real systemd, and verifies that sandboxes work under the
// unit's restrictions and outlive the server.
//
//suite:part install full
func TestServiceUnitRunsSandboxes(t *testing.T) {
	unit, err := filepath.Abs("../cmd/brig/brig.service")
	if err != nil {
		t.Fatal(err)
	}
	steps := bootUnit(t, unit)
	for name, want := range map[string]string{
		"ready": `^$`, "answer": `^42$`, "kernel": `gvisor$`, "create": `^box$`, "write": `^$`, "writable": `^$`, "restart": `^$`,
		"again": `^$`, "kept": `^kept$`, "stop": `^$`, "outlives": `^[1-9]`, "start": `^$`, "third": `^$`, "remove": `^box$`,
		"uninstall": `^$`, "absent": `^$`, "background": `(?m)^ok  started a server in the background`, "end": `^$`,
		"repeat": `(?m)^ok  systemd runs the server as brig.service already, and starts it with the machine`, "quickstart": `(?m)^ok  systemd runs the server as brig.service`, "unit": `^42$`, "enabled": `^enabled$`,
		"status": `(?m)^NoNewPrivs:\s+1$`, "attest": `(?m)^memory +boundary +cgroup`,
	} {
		if s, ok := steps[name]; !ok || s.code != 0 || !regexp.MustCompile(want).MatchString(s.out) {
			t.Errorf("%s: %+v, want %s", name, s, want)
		}
	}
	for name, want := range map[string]string{"memory": "SB006", "read-only": "Read-only file system", "devices": "No such file",
		"replaceable": "/usr/share/loose/brig is below /usr/share/loose, which is writable by other users", "foreign": "brig.service does not run it"} {
		if s := steps[name]; s.code == 0 || !strings.Contains(s.out, want) {
			t.Errorf("%s: %+v, want a failure with %q", name, s, want)
		}
	}
	filters := regexp.MustCompile(`(?m)^Seccomp_filters:\s+([0-9]+)$`).FindStringSubmatch(steps["status"].out)
	if filters == nil || filters[1] == "0" {
		t.Errorf("the server has no system call filter: %v", filters)
	}
	if s := steps["journal"]; strings.Contains(s.out, "rror") {
		t.Errorf("the journal has %s", s.out)
	}
}

// TestServiceUnitExposureIsLow verifies that systemd-analyze rates the exposure of the unit below 5 out of
// 10. The control is the unit without its protections, whose rating must be above 9.
//
//suite:part install
func TestServiceUnitExposureIsLow(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze (make setup installs systemd)")
	}
	b, err := os.ReadFile("../cmd/brig/brig.service")
	if err != nil {
		t.Fatal(err)
	}
	rate := func(unit string) float64 {
		t.Helper()
		file := filepath.Join(t.TempDir(), "brig.service")
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		out := output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", file)
		found := regexp.MustCompile(`Overall exposure level for brig.service: ([0-9.]+)`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("no rating in %s", out)
		}
		f, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := rate(string(b)); f >= 5 {
		t.Errorf("exposure %.1f, want less than 5", f)
	}
	bare := regexp.MustCompile(`(?m)^(NoNewPrivileges|CapabilityBoundingSet|Private|Protect|Lock|Restrict(Realtime|SUID|Address|Namespaces)|SystemCall).*$`).ReplaceAllString(string(b), "")
	if f := rate(bare); f < 9 {
		t.Errorf("without protections the exposure is %.1f, want at least 9", f)
	}
}
